"""Compiling: a definition and its schema become a plan, or findings. All of them at once."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from schemas import strict_json
from schemas.errors import DefinitionInvalid, Finding, InputInvalid, WorkflowBroken
from streams.workflow.definition import EXTERNAL, Definition, StepDefinition, read_definition
from streams.workflow.descriptors import Protoc, SchemaSet, resolve_schema, root_of
from streams.workflow.findings import Findings
from streams.workflow.limits import MAX_NAME_LENGTH
from streams.workflow.mapping import CompiledMapping, compile_rule
from streams.workflow.names import fault_in_step_name, fault_in_target
from streams.workflow.plan import ENGINE_LEVEL, Plan, PlannedOutput, PlannedStep
from streams.workflow.rule_text import RuleInvalid

__all__ = ["ENGINE_LEVEL", "Compiled", "check", "compile_definition", "load_plan"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A verified definition in the form that is stored: the document as it was given, beside its pinned schema."""

    plan: Plan
    document: dict[str, object]
    descriptor_set: bytes
    definition_hash: bytes
    engine_level: int = ENGINE_LEVEL


async def compile_definition(document: object, *, name: str | None = None, protoc: Protoc) -> Compiled:
    """Read a definition, resolve its schema, verify all of it and pin what it resolved to.

    *name* is that of the stored workflow and has precedence over the document's own.

    Raises:
        DefinitionInvalid: with every finding.
    """
    findings = Findings()
    if name is not None and not 0 < len(name) <= MAX_NAME_LENGTH:
        findings.add(f"the workflow's name must have 1 to {MAX_NAME_LENGTH} characters")
    definition = read_definition(document, findings)
    schemas = await _resolve(definition, findings, protoc) if definition is not None else None
    plan = _verify(definition, schemas, findings, name) if definition is not None and schemas is not None else None
    listed = findings.listed()
    if listed or plan is None or schemas is None:
        raise DefinitionInvalid(listed)
    kept = cast("dict[str, object]", document)
    return Compiled(plan, kept, schemas.to_bytes(), _definition_hash(kept, schemas.to_bytes()))


async def _resolve(definition: Definition, findings: Findings, protoc: Protoc) -> SchemaSet | None:
    if not isinstance(definition.schema, dict):
        return None  # that is a finding already
    try:
        return await resolve_schema(definition.schema, protoc=protoc)
    except InputInvalid as error:
        findings.add_at(error.pointer, str(error))
        return None


def _definition_hash(document: dict[str, object], descriptor_set: bytes) -> bytes:
    """SHA-256 over both parts, each hashed by itself first so that no bytes can move from one to the other."""
    parts = hashlib.sha256(strict_json.canonical(document).encode()).digest() + hashlib.sha256(descriptor_set).digest()
    return hashlib.sha256(parts).digest()


def load_plan(document: object, descriptor_set: bytes) -> Plan:
    """The plan of a stored definition. Needs no compiler: the schema is the pinned one.

    Raises:
        WorkflowBroken: the pair cannot be read or does not verify; the text lists every finding, and `step` is the
            first one's.
    """
    findings = Findings()
    definition = read_definition(document, findings)
    plan = None
    if definition is not None:
        try:
            schemas = SchemaSet.from_bytes(descriptor_set, root=root_of(definition.schema))
            plan = _verify(definition, schemas, findings, None)
        except InputInvalid as error:
            findings.add(f"the pinned schema cannot be read: {error}", "schema")
    listed = findings.listed()
    if listed or plan is None:
        texts = "; ".join(
            f"step {finding.step}: {finding.error}" if finding.step else finding.error for finding in listed
        )
        raise WorkflowBroken(f"the stored definition does not verify: {texts}", step=listed[0].step)
    return plan


def check(definition: Definition, schemas: SchemaSet) -> list[Finding]:
    """Every finding of a definition that was read, in step order; empty when it is sound."""
    findings = Findings()
    _verify(definition, schemas, findings, None)
    return findings.listed()


def _verify(definition: Definition, schemas: SchemaSet, findings: Findings, name: str | None) -> Plan:
    """Verify and compile in one walk. The plan may be run only when there are no findings."""
    return _Verification(definition, schemas, findings).plan(name)


class _Verification:
    """Goes through the steps in order; each sees the types of `input` and of the steps before it."""

    def __init__(self, definition: Definition, schemas: SchemaSet, findings: Findings) -> None:
        self._definition = definition
        self._schemas = schemas
        self._findings = findings
        self._scope: dict[str, Descriptor | None] = {}

    def plan(self, name: str | None) -> Plan:
        definition = self._definition
        input_type = self._input_type()
        self._scope["input"] = input_type
        steps = [planned for step in definition.steps if (planned := self._step(step)) is not None]
        return Plan(
            name=name or definition.name,
            input_type=input_type.full_name if input_type is not None else "",
            budget_ms=definition.deadline_ms,
            steps=tuple(steps),
            output=self._output(),
            schema_set=self._schemas,
        )

    def _input_type(self) -> Descriptor | None:
        given = self._definition.input_type
        name = given or self._schemas.default_message()
        if name is None:
            self._findings.add("inputType is missing, and the schema has not exactly one message to stand in for it")
            return None
        try:
            return self._schemas.message(name)
        except InputInvalid as error:
            self._findings.add(f"inputType: {error}", "inputType")
            return None

    def _step(self, step: StepDefinition) -> PlannedStep | None:
        fault = fault_in_step_name(step.name)
        if fault is None and step.name in self._scope:
            fault = f"the step name {step.name} is used twice"
        if fault is not None:
            self._fault(step, "workflow", fault, "name")
            return None
        self._check_completion_and_target(step)
        method = self._method(step)
        request = self._mapping(step, method)
        self._scope[step.name] = method.output_type if method is not None else None
        if method is None or request is None:
            return None
        return PlannedStep(
            index=step.index,
            name=step.name,
            external=step.completion == EXTERNAL,
            target=step.target,
            tls=step.tls,
            method_path="/" + step.method,
            deadline_ms=step.deadline_ms,
            request=request,
            input_type=method.input_type.full_name,
            output_type=method.output_type.full_name,
        )

    def _fault(self, step: StepDefinition, kind: str, error: str, *inner: str | int) -> None:
        self._findings.add(error, "steps", step.index, *inner, kind=kind, step=step.name)

    def _check_completion_and_target(self, step: StepDefinition) -> None:
        if step.completion not in ("", EXTERNAL):
            self._fault(step, "completion", f'completion must be "" or "{EXTERNAL}"', "completion")
        if step.target and (fault := fault_in_target(step.target)):
            self._fault(step, "workflow", fault, "target")

    def _method(self, step: StepDefinition) -> MethodDescriptor | None:
        if not step.method:
            return None
        try:
            method = self._schemas.method(step.method)
        except InputInvalid as error:
            self._fault(step, "workflow", f"method: {error}", "method")
            return None
        if method.client_streaming or method.server_streaming:
            self._fault(step, "method", f"{step.method} is a streaming method: a step calls unary ones", "method")
        return method

    def _mapping(self, step: StepDefinition, method: MethodDescriptor | None) -> CompiledMapping | None:
        if method is None:
            return None
        path = ("steps", step.index, "rules")
        return self._rules(step.rules, method.input_type, path, kind="rule", step=step.name)

    def _rules(
        self, texts: Sequence[str], target: Descriptor, path: tuple[str | int, ...], *, kind: str, step: str = ""
    ) -> CompiledMapping:
        compiled = []
        for index, text in enumerate(texts):
            if self._findings.full:
                break
            try:
                compiled.append(compile_rule(text, target, self._scope, self._schemas))
            except RuleInvalid as error:
                fault = f"rule {text!r}: {error}" if text.strip() else str(error)
                self._findings.add(fault, *path, index, kind=kind, step=step)
        return CompiledMapping.into(target, compiled)

    def _output(self) -> PlannedOutput | None:
        output = self._definition.output
        if output is None or not output.type:
            return None
        try:
            descriptor = self._schemas.message(output.type)
        except InputInvalid as error:
            self._findings.add(f"type: {error}", "output", "type", kind="output")
            return None
        mapping = self._rules(output.rules, descriptor, ("output", "rules"), kind="output")
        return PlannedOutput(descriptor.full_name, mapping)
