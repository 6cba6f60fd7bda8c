"""Compiling CEL rules: filter, selector, target and fallback of each, with every fault there is."""

from google.protobuf.descriptor import Descriptor

from streams.workflow.cel import BOOL, TARGET, Expression, check_expression
from streams.workflow.cel_assignment import Assignment
from streams.workflow.composition import CompiledCelRule
from streams.workflow.definition_cel import CelRuleDefinition
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Evaluator, ExpressionRefused
from streams.workflow.mapping import CompiledRule, ScopeTypes, compile_rule
from streams.workflow.rule_text import RuleInvalid, parse_path

Fault = tuple[str, *tuple[str | int, ...]]
"""What is wrong, and where in the rule."""


class CelRules:
    """Compiles the CEL rules that write to messages of one type, over the types of one scope."""

    def __init__(self, target: Descriptor, scope: ScopeTypes, schemas: SchemaSet, evaluator: Evaluator) -> None:
        self._target = target
        self._scope = scope
        self._with_target: ScopeTypes = {**scope, TARGET: target}
        self._schemas = schemas
        self._evaluator = evaluator

    async def compile(self, rule: CelRuleDefinition) -> tuple[list[Fault], CompiledCelRule | None]:
        """The rule, ready to run, or its faults. Raises EvaluatorUnavailable when it could not be checked now."""
        faults: list[Fault] = []
        assignment = self._assignment(rule, faults)
        filter = await self._expression(rule.filter, "filter", BOOL, faults)
        selector = await self._expression(rule.selector, "selector", frozenset(), faults)
        if assignment is not None and selector is not None:
            try:
                assignment.check(selector.type)
            except RuleInvalid as error:
                faults.append((f"selector {rule.selector!r}: {error}", "selector"))
        fallback = self._fallback(rule, faults)
        if faults or assignment is None:
            return faults, None
        return [], CompiledCelRule(rule.target, filter, selector, fallback, assignment)

    def _assignment(self, rule: CelRuleDefinition, faults: list[Fault]) -> Assignment | None:
        if not rule.target:
            return None  # that is a finding already
        try:
            return Assignment(self._target, parse_path(rule.target), self._schemas)
        except RuleInvalid as error:
            faults.append((f"target {rule.target!r}: {error}", "target"))
            return None

    async def _expression(
        self, source: str, key: str, results: frozenset[str], faults: list[Fault]
    ) -> Expression | None:
        if not source:
            return None
        try:
            return await check_expression(source, self._with_target, self._schemas, self._evaluator, results=results)
        except ExpressionRefused as error:
            faults.append((f"{key} {source[:200]!r}: {error}", key))
            return None

    def _fallback(self, rule: CelRuleDefinition, faults: list[Fault]) -> tuple[CompiledRule, ...]:
        compiled = []
        for index, text in enumerate(rule.fallback):
            try:
                compiled.append(compile_rule(text, self._target, self._scope, self._schemas))
            except RuleInvalid as error:
                faults.append((f"rule {text!r}: {error}", "fallback", index))
        return tuple(compiled)
