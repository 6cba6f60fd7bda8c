"""YAML read strictly: what it says is what JSON could say, whoever reads it.

YAML readers differ about plain words: `no`, `on`, `0777`, `12:30` or `2026-01-31` are texts to some, and booleans,
other numbers or dates to others. Here each of them is refused with the way out, and nothing is guessed. Anchors,
aliases, merge keys, tags and more than one document are refused too, so a value is never larger than its text.

Codes of the errors: `bad-yaml` (syntax, or something that is refused), `ambiguous` (a plain word that readers take in
different ways), and `duplicate-key`, `not-finite`, `number-too-long`, `too-deep` as in `schemas.strict_json`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from schemas import limits
from schemas.errors import ContractError
from schemas.text import cut

Path = tuple[str | int, ...]

# The compiled parser takes a tenth of the time; PyYAML brings it wherever libyaml was there when it was built.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[Mapping[str, object]] = {"": None, "~": None, "null": None, "true": True, "false": False}
_AMBIGUOUS_WORDS: Final = frozenset(
    {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "=", "<<", ".nan", ".inf", "+.inf", "-.inf"}
)
_AMBIGUOUS: Final = re.compile(
    r"[-+]?[0-9][0-9_,]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"  # 0777, 1_000, +1, 1.
    r"|[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?"  # .5
    r"|[-+]?0[xob][0-9A-Fa-f_]+"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # 12:30, which is 750 to some
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?"
)
_MOST_DIGITS: Final = 4_300


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """What a text says, and where: `lines` has the line, from 1 on, of each value by the path that leads to it."""

    value: object
    lines: Mapping[Path, int]

    def line_of(self, path: Path) -> int | None:
        """The line of that value, or of the nearest one around it; None for an empty document."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def parse(text: str) -> YamlDocument:
    """Read one document of plain mappings, sequences, texts, numbers, true, false and null.

    Integers are exact; other numbers are doubles; key order is kept.

    Raises:
        ContractError: with one of the codes of this module; the message begins with the line.
    """
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ContractError(f"{where}not YAML: {error.problem or error.context}", code="bad-yaml") from None
    except yaml.YAMLError as error:  # a character that YAML does not have
        raise ContractError(f"not YAML: {str(error).splitlines()[0]}", code="bad-yaml") from None
    return YamlDocument(reader.value, reader.lines)


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that is being read, and the key that its next value belongs to."""

    container: dict[str, object] | list[object]
    path: Path
    key: str | None = None
    key_line: int = 0

    @property
    def wants_key(self) -> bool:
        return isinstance(self.container, dict) and self.key is None


@dataclass(slots=True)
class _Reader:
    """Builds the value from events, without recursion. A member of a mapping stands in the line of its key."""

    value: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    _open: list[_Open] = field(default_factory=list)
    _documents: int = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match event:
            case yaml.AliasEvent():
                raise _refused(line, f"the alias *{event.anchor}: write the value out")
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _refused(line, "a second document: one file has one")
            case yaml.MappingStartEvent():
                self._begin({}, event, line)
            case yaml.SequenceStartEvent():
                self._begin([], event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()
            case yaml.ScalarEvent():
                _refuse_properties(event, line)
                if self._open and self._open[-1].wants_key:
                    self._name(event.value, line)
                else:
                    self._add(_scalar(event, line), line)

    def _begin(self, container: dict[str, object] | list[object], event: Any, line: int) -> None:
        _refuse_properties(event, line)
        if self._open and self._open[-1].wants_key:
            raise _refused(line, "a key that is not a text")
        path = self._add(container, line)
        self._open.append(_Open(container, path))
        if len(self._open) > limits.JSON_DEPTH:
            raise ContractError(f"line {line}: nested more than {limits.JSON_DEPTH} deep", code="too-deep")

    def _name(self, key: str, line: int) -> None:
        inner = self._open[-1]
        if key == "<<":
            raise _refused(line, "the merge key <<: write the members out")
        if key in inner.container:
            raise ContractError(f"line {line}: the key {cut(key, 200)!r} occurs twice", code="duplicate-key")
        inner.key, inner.key_line = key, line

    def _add(self, value: object, line: int) -> Path:
        path: Path = ()
        if not self._open:
            self.value = value
        else:
            inner = self._open[-1]
            if isinstance(inner.container, list):
                path = (*inner.path, len(inner.container))
                inner.container.append(value)
            elif inner.key is not None:
                path, line = (*inner.path, inner.key), inner.key_line
                inner.container[inner.key] = value
                inner.key = None
        self.lines[path] = line
        return path


def _refuse_properties(event: Any, line: int) -> None:
    if event.anchor is not None:
        raise _refused(line, f"the anchor &{event.anchor}: write each value where it belongs")
    if event.tag is not None:
        raise _refused(line, f"the tag {event.tag}: types follow from how a value is written")


def _scalar(event: Any, line: int) -> object:
    text: str = event.value
    if not event.implicit[0]:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise ContractError(f"line {line}: an integer has more than {_MOST_DIGITS} digits", code="number-too-long")
        return int(text)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ContractError(f"line {line}: {cut(text, 40)} is beyond the range of a double", code="not-finite")
        return number
    if text.lower() in _AMBIGUOUS_WORDS or _AMBIGUOUS.fullmatch(text):
        way_out = f'write "{cut(text, 40)}" for the text, or the value as JSON has it'
        raise ContractError(
            f"line {line}: {cut(text, 40)} means different things to readers: {way_out}", code="ambiguous"
        )
    return text


def _refused(line: int, what: str) -> ContractError:
    return ContractError(f"line {line}: {what}", code="bad-yaml")
