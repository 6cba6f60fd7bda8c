"""Compositions: what builds one message of a run, by text rules first and then by CEL rules.

Rules run in their order, and each sees what the ones before it wrote.
"""

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from schemas.errors import MappingFailed
from streams.workflow.cel import TARGET, Expression
from streams.workflow.cel_assignment import Assignment
from streams.workflow.descriptors import SchemaSet, missing_fields
from streams.workflow.evaluation import NOT_MET, Evaluator, ExpressionFailed, NotMet, Plain
from streams.workflow.mapping import CompiledMapping, CompiledRule, Scope
from streams.workflow.mapping_shapes import ValueRefused

_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class CompiledCelRule:
    """One CEL rule, ready to run.

    Where its filter holds, its selector's value is assigned; without a selector its fallback rules are run.
    """

    target: str
    filter: Expression | None
    selector: Expression | None
    fallback: tuple[CompiledRule, ...]
    assignment: Assignment

    async def apply(self, message: Message, scope: Scope, schemas: SchemaSet, evaluator: Evaluator) -> None:
        """Write to *message*, the message as built so far.

        Raises:
            ExpressionFailed, ValueRefused: an expression failed, or what it gave does not fit.
            EvaluatorUnavailable: this machine could not evaluate now.
        """
        value: Plain | NotMet = None
        expressions = [expression for expression in (self.filter, self.selector) if expression is not None]
        if expressions:
            reads = frozenset[str]().union(*(expression.reads for expression in expressions))
            value = await evaluator.evaluate(
                schemas,
                self.selector.source if self.selector is not None else None,
                {name: message if name == TARGET else scope[name] for name in sorted(reads)},
                filter=self.filter.source if self.filter is not None else None,
            )
        if value is NOT_MET:
            return
        if self.selector is not None:
            self.assignment.write(message, value)
            return
        for rule in self.fallback:
            try:
                rule.apply(message, scope)
            except ValueRefused as error:
                raise ValueRefused(f"fallback {rule.text!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class Composition:
    """All rules of one message. `mapping` makes it and has the text rules."""

    mapping: CompiledMapping
    cel_rules: tuple[CompiledCelRule, ...]
    schemas: SchemaSet

    async def build(self, scope: Scope, *, step: str, evaluator: Evaluator) -> Message:
        """A new message, built from *scope*. Without CEL rules the evaluator is not touched.

        Raises:
            MappingFailed: a rule could not be applied, or required fields were left out; it names *step* and the rule.
            EvaluatorUnavailable: this machine could not evaluate a rule now.
        """
        message = self.mapping.make()
        self.mapping.apply(message, scope, step=step)
        for index, rule in enumerate(self.cel_rules):
            try:
                await rule.apply(message, scope, self.schemas, evaluator)
            except (ExpressionFailed, ValueRefused) as error:
                raise MappingFailed(f"celRules[{index}] {_shown(rule)}: {error}", step=step) from None
        if missing := missing_fields(message):
            raise MappingFailed(f"the rules leave out required fields: {', '.join(missing)}", step=step)
        return message


def _shown(rule: CompiledCelRule) -> str:
    selector = f" = {_cut(rule.selector.source)!r}" if rule.selector is not None else ""
    filter = f" (filter {_cut(rule.filter.source)!r})" if rule.filter is not None else ""
    return f"{rule.target}{selector}{filter}"


def _cut(source: str) -> str:
    return source if len(source) <= _SHOWN else f"{source[:_SHOWN]}..."
