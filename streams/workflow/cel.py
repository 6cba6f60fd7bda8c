"""Expressions of a plan: checked once, and evaluated over the messages that they read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import DYN, Evaluator, ExpressionFailed, ExpressionRefused, NotMet, Plain
from streams.workflow.limits import MAX_EXPRESSION_BYTES
from streams.workflow.mapping import ScopeTypes

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)

BOOL: Final = frozenset({"BOOL"})
TARGET: Final = "target"
"""The variable of mapping rules that holds the message as built so far."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression. `type` is its static type as CEL writes it, `reads` the variables that it mentions."""

    source: str
    type: str
    reads: frozenset[str]
    schemas: SchemaSet

    def read_of(self, scope: Mapping[str, Message]) -> dict[str, Message]:
        """The messages of *scope* that it reads."""
        return {name: scope[name] for name in sorted(self.reads)}

    async def value(self, scope: Mapping[str, Message], evaluator: Evaluator) -> Plain:
        """Its value over the messages of *scope*.

        Raises:
            ExpressionFailed: it has none for this data, or none within its limits.
            EvaluatorUnavailable: this machine could not evaluate it now.
        """
        value = await evaluator.evaluate(self.schemas, self.source, self.read_of(scope))
        assert not isinstance(value, NotMet), "there is no filter"
        return value

    async def is_true(self, scope: Mapping[str, Message], evaluator: Evaluator) -> bool:
        """Its value, which must be a truth value. Raises as `value` does."""
        value = await self.value(scope, evaluator)
        if not isinstance(value, bool):
            raise ExpressionFailed(f"it gives {described(value)}, not true or false")
        return value


async def check_expression(
    source: str, scope: ScopeTypes, schemas: SchemaSet, evaluator: Evaluator, *, results: frozenset[str] = frozenset()
) -> Expression:
    """Check an expression over the types of *scope*. *results* are the static types it may have; none allows all.

    What only the data tells is allowed too: its user must look at the value.

    Raises:
        ExpressionRefused: it does not compile, gives another type, or is over a limit; the text says so.
        EvaluatorUnavailable: this machine could not check it now.
    """
    size = len(source.encode(errors="surrogatepass"))
    if size > MAX_EXPRESSION_BYTES:
        raise ExpressionRefused(f"the expression has {size:,} bytes, over the limit of {MAX_EXPRESSION_BYTES:,}")
    # What the text does not name it cannot read: a scope may be large, and expressions are many.
    named = scope.keys() & set(_NAME.findall(source))
    variables = {name: descriptor.full_name if (descriptor := scope[name]) is not None else DYN for name in named}
    checked = await evaluator.check(schemas, source, variables)
    if results and checked.type not in results | {DYN}:
        wanted = " or ".join(sorted(results))
        raise ExpressionRefused(f"it gives {checked.type}, and {wanted} is needed here")
    return Expression(source, checked.type, checked.reads, schemas)


def described(value: Plain) -> str:
    """The type of a value, as errors name it."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        [(kind, content)] = value.items()
        return str(content[0]) if kind == "message" and isinstance(content, list) else f"a {kind}"
    return {bool: "a bool", int: "an int", float: "a double", str: "a string", list: "a list"}[type(value)]
