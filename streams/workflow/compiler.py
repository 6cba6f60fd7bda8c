"""Compiling: a definition and its schema become a plan, or findings. All of them at once."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from schemas import strict_json
from schemas.errors import DefinitionInvalid, Finding, InputInvalid, WorkflowBroken
from streams.workflow.definition import Definition, read_definition
from streams.workflow.definition_kinds import AskDefinition, PublishDefinition
from streams.workflow.descriptors import NO_TYPES, Protoc, SchemaSet, Types, resolve_schema, root_of
from streams.workflow.evaluation import Evaluator
from streams.workflow.findings import Findings
from streams.workflow.limits import MAX_NAME_LENGTH
from streams.workflow.plan import ENGINE_LEVEL, Plan
from streams.workflow.verification import Verification

__all__ = ["ENGINE_LEVEL", "Compiled", "check", "compile_definition", "load_plan"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A verified definition in the form that is stored: the document as it was given, beside its pinned schema."""

    plan: Plan
    document: dict[str, object]
    descriptor_set: bytes
    definition_hash: bytes

    @property
    def engine_level(self) -> int:
        """The least that an engine must know to run it."""
        return self.plan.engine_level


async def compile_definition(
    document: object,
    *,
    name: str | None = None,
    protoc: Protoc,
    evaluator: Evaluator,
    types: Types = NO_TYPES,
    own_topics: Collection[str] = (),
) -> Compiled:
    """Read a definition, resolve its schema, verify all of it and pin what it resolved to.

    *name* is that of the stored workflow and has precedence over the document's own. No step may send to *own_topics*.

    Raises:
        DefinitionInvalid: with every finding.
        EvaluatorUnavailable: its expressions could not be checked now; nothing is known about them.
    """
    findings = Findings()
    if name is not None and not 0 < len(name) <= MAX_NAME_LENGTH:
        findings.add(f"the workflow's name must have 1 to {MAX_NAME_LENGTH} characters")
    definition = read_definition(document, findings)
    schemas = await _resolve(definition, findings, protoc, types) if definition is not None else None
    plan = (
        await Verification(definition, schemas, findings, evaluator).plan(name)
        if definition is not None and schemas is not None
        else None
    )
    if definition is not None:
        _refuse_own_topics(definition, own_topics, findings)
    listed = findings.listed()
    if listed or plan is None or schemas is None:
        raise DefinitionInvalid(listed)
    kept = cast("dict[str, object]", document)
    return Compiled(plan, kept, schemas.to_bytes(), _definition_hash(kept, schemas.to_bytes()))


async def _resolve(definition: Definition, findings: Findings, protoc: Protoc, types: Types) -> SchemaSet | None:
    if not isinstance(definition.schema, dict):
        return None  # that is a finding already
    try:
        return await resolve_schema(definition.schema, protoc=protoc, types=types)
    except InputInvalid as error:
        findings.add_at(error.pointer, str(error))
        return None


def _refuse_own_topics(definition: Definition, own_topics: Collection[str], findings: Findings) -> None:
    """What a step sends to a topic of the workers themselves would be taken for one of theirs."""
    for step in definition.steps:
        if isinstance(step.kind, PublishDefinition | AskDefinition) and step.kind.topic in own_topics:
            kind = "publish" if isinstance(step.kind, PublishDefinition) else "ask"
            fault = f"{step.kind.topic} is a topic of the workers themselves: send to one of your own"
            findings.add(fault, *step.path, kind, "topic", step=step.name)


def _definition_hash(document: dict[str, object], descriptor_set: bytes) -> bytes:
    """SHA-256 over both parts, each hashed by itself first so that no bytes can move from one to the other."""
    parts = hashlib.sha256(strict_json.canonical(document).encode()).digest() + hashlib.sha256(descriptor_set).digest()
    return hashlib.sha256(parts).digest()


async def load_plan(document: object, descriptor_set: bytes, *, evaluator: Evaluator) -> Plan:
    """The plan of a stored definition. Needs no compiler: the schema is the pinned one.

    Raises:
        WorkflowBroken: the pair cannot be read or does not verify; the text lists every finding, and `step` is the
            first one's.
        EvaluatorUnavailable: its expressions could not be checked now; call again.
    """
    findings = Findings()
    definition = read_definition(document, findings)
    plan = None
    if definition is not None:
        try:
            schemas = SchemaSet.from_bytes(descriptor_set, root=root_of(definition.schema))
            plan = await Verification(definition, schemas, findings, evaluator).plan(None)
        except InputInvalid as error:
            findings.add(f"the pinned schema cannot be read: {error}", "schema")
    listed = findings.listed()
    if listed or plan is None:
        texts = "; ".join(
            f"step {finding.step}: {finding.error}" if finding.step else finding.error for finding in listed
        )
        raise WorkflowBroken(f"the stored definition does not verify: {texts}", step=listed[0].step)
    return plan


async def check(definition: Definition, schemas: SchemaSet, *, evaluator: Evaluator) -> list[Finding]:
    """Every finding of a definition that was read, in step order; empty when it is sound. Raises as `load_plan`."""
    findings = Findings()
    await Verification(definition, schemas, findings, evaluator).plan(None)
    return findings.listed()
