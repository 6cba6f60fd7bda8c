"""Verifying a step with an edge: what it produces is the request itself, or holds the items of a fan-out."""

from collections.abc import Callable, Sequence
from typing import Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from schemas.errors import InputInvalid
from streams.workflow.composition import Composition
from streams.workflow.definition_cel import CelRuleDefinition
from streams.workflow.definition_fan_out import EdgeDefinition, FanOutDefinition
from streams.workflow.definition_steps import EXTERNAL, StepDefinition
from streams.workflow.descriptors import SchemaSet, field_hint, missing_fields
from streams.workflow.document import Path
from streams.workflow.findings import Findings
from streams.workflow.json_values import shown
from streams.workflow.mapping import ScopeTypes
from streams.workflow.mapping_read import Read, compile_reading
from streams.workflow.mapping_shapes import Many
from streams.workflow.plan import PlannedCall, PlannedFanOut
from streams.workflow.protojson_types import is_map
from streams.workflow.rule_text import RuleInvalid, parse_path


class Compose(Protocol):
    """Compiles the rules of one message: see `Verification.composition`."""

    async def __call__(
        self,
        rules: Sequence[str],
        cel_rules: Sequence[CelRuleDefinition],
        target: Descriptor,
        path: Path,
        *,
        kinds: tuple[str, str],
        step: str,
        scope: ScopeTypes,
    ) -> Composition: ...


class Validates(Protocol):
    """Whether messages of a type can break rules: see `Verification.validates`."""

    async def __call__(self, message: Descriptor | None, *path: str | int, kind: str, step: str) -> bool: ...


class EdgeVerification:
    """Verifies and plans one step with an edge, whose rules see the edge's sources and nothing else."""

    def __init__(
        self,
        step: StepDefinition,
        method: MethodDescriptor,
        schemas: SchemaSet,
        findings: Findings,
        compose: Compose,
        validates: Validates,
    ) -> None:
        self._step = step
        self._method = method
        self._schemas = schemas
        self._findings = findings
        self._compose = compose
        self._validates = validates

    async def work(
        self, scope: ScopeTypes, call: Callable[[Composition, bool], PlannedCall]
    ) -> PlannedCall | PlannedFanOut | None:
        """What the step does; None when it has findings.

        *call* gives the call of its method with a request, and is told whether that must keep the rules of its type.
        *scope* has the types of the input and of every earlier step.
        """
        edge, fan_out = self._step.edge, self._step.fan_out
        if self._step.completion == EXTERNAL:
            error = "a step that is answered from outside has neither edge nor fanOut: it composes one question"
            self._fault("edge", error, self._step.path, "edge" if edge is not None else "fanOut")
            return None
        if edge is None:
            error = "fanOut needs an edge, which produces what holds the items"
            self._fault("fanOut", error, self._step.path, "fanOut")
            return None
        produced, composition = await self._produced(edge, scope)
        validates = edge.validate and await self._validates(
            produced, *edge.path, "validate", kind="edge", step=self._step.name
        )
        made = call(composition, validates) if composition is not None else None
        if fan_out is not None:
            return self._fan_out(fan_out, produced, made)
        wanted = self._method.input_type.full_name
        if produced is not None and produced.full_name != wanted:
            error = f"the edge produces {produced.full_name}, and {self._step.method} takes {wanted}"
            self._fault("edge", error, edge.path, "produceType")
        return made

    def _fan_out(
        self, fan_out: FanOutDefinition, produced: Descriptor | None, call: PlannedCall | None
    ) -> PlannedFanOut | None:
        items = self._items(fan_out, produced) if produced is not None else None
        field = self._collecting_field(fan_out)
        if call is None or items is None or field is None or fan_out.failure_policy is None:
            return None
        return PlannedFanOut(
            call=call,
            items=items,
            items_path=parse_path(fan_out.items),
            response_type=self._method.output_type.full_name,
            max_items=fan_out.max_items,
            max_concurrency=fan_out.max_concurrency,
            failure_policy=fan_out.failure_policy,
            collect_into=field.name,
            collect_member=field.json_name,
            aligned=fan_out.aligned,
        )

    async def _produced(self, edge: EdgeDefinition, scope: ScopeTypes) -> tuple[Descriptor | None, Composition | None]:
        if self._step.rules or self._step.cel_rules:
            error = "a step with an edge has no rules of its own: they stand in the edge"
            self._fault("edge", error, self._step.path, "rules" if self._step.rules else "celRules")
        produced = self._message("edge", edge.produce_type, edge.path, "produceType")
        sources = self._sources(edge, scope)
        if produced is None:
            return None, None
        composition = await self._compose(
            edge.rules,
            edge.cel_rules,
            produced,
            edge.path,
            kinds=("edge", "edge"),
            step=self._step.name,
            scope=sources,
        )
        return produced, composition

    def _sources(self, edge: EdgeDefinition, scope: ScopeTypes) -> ScopeTypes:
        for index, source in enumerate(edge.sources):
            if source not in scope:
                error = f"unknown source {shown(source)}: it is neither input nor an earlier step"
                self._fault("edge", error, edge.path, "sources", index)
        return {source: scope.get(source) for source in edge.sources}

    def _items(self, fan_out: FanOutDefinition, produced: Descriptor) -> Read | None:
        if not fan_out.items:
            return None  # that is a finding already
        try:
            reading = compile_reading(produced, parse_path(fan_out.items), self._schemas)
        except RuleInvalid as error:
            self._fault("fanOut", f"items: {error}", fan_out.path, "items")
            return None
        wanted = self._method.input_type.full_name
        if not isinstance(reading.shape, Many) or reading.shape.element.message is None:
            fault = f"{fan_out.items} of {produced.full_name} is no repeated message"
        elif reading.shape.element.name != wanted:
            fault = f"{fan_out.items} holds {reading.shape.element}, and {self._step.method} takes {wanted}"
        else:
            return reading.read
        self._fault("fanOut", f"items: {fault}", fan_out.path, "items")
        return None

    def _collecting_field(self, fan_out: FanOutDefinition) -> FieldDescriptor | None:
        collected = self._message("fanOut", fan_out.collect_type, fan_out.path, "collectType")
        if collected is None or not fan_out.collect_into:
            return None
        if missing := missing_fields(self._schemas.new(collected.full_name)):
            error = f"collectType: {collected.full_name} needs {', '.join(missing)}, which nothing fills"
            self._fault("fanOut", error, fan_out.path, "collectType")
            return None
        field = collected.fields_by_name.get(fan_out.collect_into)
        wanted = self._method.output_type.full_name
        if field is None:
            hint = field_hint(fan_out.collect_into, collected)
            error = f"unknown field {shown(fan_out.collect_into)} in {collected.full_name}{hint}"
        elif field.message_type is None or not field.is_repeated or is_map(field):
            error = f"{field.name} of {collected.full_name} is no repeated message"
        elif field.message_type.full_name != wanted:
            error = f"{field.name} holds {field.message_type.full_name}, and {self._step.method} returns {wanted}"
        elif fan_out.aligned and (missing := missing_fields(self._schemas.new(wanted))):
            error = f"aligned: a gap is an empty {wanted}, which needs {', '.join(missing)}"
            self._fault("fanOut", error, fan_out.path, "aligned")
            return None
        else:
            return field
        self._fault("fanOut", f"collectInto: {error}", fan_out.path, "collectInto")
        return None

    def _message(self, kind: str, name: str, path: Path, key: str) -> Descriptor | None:
        if not name:
            return None  # that is a finding already
        try:
            return self._schemas.message(name)
        except InputInvalid as error:
            self._fault(kind, f"{key}: {error}", path, key)
            return None

    def _fault(self, kind: str, error: str, path: Path, *inner: str | int) -> None:
        self._findings.add(error, *path, *inner, kind=kind, step=self._step.name)
