"""The grammar of mapping rules: text in, a `Rule` out.

    rule    :=  '-' path  |  path '+=' source  |  path '=' source
    source  :=  null | true | false | number | '"' text '"'  |  path

A path is names joined by dots, without blanks. The first name of a source path is `input` or an earlier step. Text has
no escapes: everything between the first and the last double quote stands for itself, operators and quotes included.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_RULE_LENGTH

# Names inside a Struct are people's own, so a segment may hold letters of any script, digits and inner hyphens.
_PATH: Final = r"\w+(?:-\w+)*(?:\.\w+(?:-\w+)*)*"
_CLEAR: Final = re.compile(rf"-\s*({_PATH})")
_WRITE: Final = re.compile(rf"({_PATH})\s*(\+=|=)\s*(.*)", re.DOTALL)
_REFERENCE: Final = re.compile(_PATH)
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_WORDS: Final[dict[str, bool | None]] = {"null": None, "true": True, "false": False}
_INT64: Final = range(-(2**63), 2**63)


class RuleInvalid(ValueError):
    """A rule that cannot be used, whatever the data: the text says why. Becomes a finding."""


class Operator(StrEnum):
    ASSIGN = "="
    APPEND = "+="
    CLEAR = "-"


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written in the rule itself. None clears the target."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A value read from the scope: `input` or a step, and the fields to walk from there (none: the whole message)."""

    scope: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One parsed rule. `source` is None exactly when the operator is CLEAR."""

    text: str
    operator: Operator
    target: tuple[str, ...]
    source: Literal | Reference | None


def parse_rule(text: str) -> Rule:
    """Parse one rule.

    Raises:
        RuleInvalid: the text is no rule. Nothing else is raised, whatever the text.
    """
    if len(text) > MAX_RULE_LENGTH:
        raise RuleInvalid(f"the rule has {len(text):,} characters, over the limit of {MAX_RULE_LENGTH:,}")
    stripped = text.strip()
    if not stripped:
        raise RuleInvalid("the rule is blank")
    if stripped.startswith("-"):
        cleared = _CLEAR.fullmatch(stripped)
        if cleared is None:
            raise RuleInvalid(f"after '-' comes the path of a field to clear, not {shown(stripped[1:].strip())}")
        return Rule(stripped, Operator.CLEAR, tuple(cleared[1].split(".")), None)
    written = _WRITE.fullmatch(stripped)
    if written is None:
        raise RuleInvalid(_why_no_rule(stripped))
    target, operator, source = written.groups()
    return Rule(stripped, Operator(operator), tuple(target.split(".")), _source(source))


def parse_path(text: str) -> tuple[str, ...]:
    """Parse the path of a field alone. Raises RuleInvalid when the text is none."""
    stripped = text.strip()
    if not _REFERENCE.fullmatch(stripped):
        raise RuleInvalid(f"{shown(stripped)} is not a path of field names joined by dots")
    return tuple(stripped.split("."))


def _why_no_rule(text: str) -> str:
    if text.startswith(("=", "+=")):
        return "the rule has no target before its operator"
    if "=" not in text:
        return "the rule has no operator: write `target = source`, `target += source` or `-target`"
    return f"{shown(re.split(r'[+]?=', text, maxsplit=1)[0].strip())} is not a path of field names joined by dots"


def _source(text: str) -> Literal | Reference:
    if not text:
        raise RuleInvalid("the rule has no source after its operator")
    if text in _WORDS:
        return Literal(_WORDS[text])
    if text.startswith('"'):
        if len(text) < 2 or not text.endswith('"'):
            raise RuleInvalid("the text in double quotes does not end")
        return Literal(text[1:-1])
    if number := _NUMBER.fullmatch(text):
        return Literal(_number(text, decimal=number[1] is not None))
    if _REFERENCE.fullmatch(text):
        scope, *path = text.split(".")
        return Reference(scope, tuple(path))
    hint = " (text stands in double quotes)" if text.startswith("'") else ""
    raise RuleInvalid(f"unknown source {shown(text)}{hint}")


def _number(text: str, *, decimal: bool) -> int | float:
    if decimal:
        number = float(text)
        if math.isinf(number):
            raise RuleInvalid(f"the number {shown(text)} is out of range")
        return number
    # A longer literal is out of range anyway, and int() itself refuses some thousands of digits.
    if len(text.lstrip("-").lstrip("0")) > 19 or int(text) not in _INT64:
        raise RuleInvalid(f"the integer {shown(text)} is beyond 64 bits")
    return int(text)
