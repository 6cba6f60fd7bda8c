"""A definition: the workflow document, read strictly into typed parts.

Keys of the language that this version does not support yet are refused by name, never passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas import strict_json
from schemas.errors import DefinitionInvalid, InputInvalid
from streams.workflow.definition_cel import CelRuleDefinition, read_cel_rules, rule_count
from streams.workflow.definition_steps import StepDefinition, read_step
from streams.workflow.document import ObjectReader
from streams.workflow.findings import Findings
from streams.workflow.json_values import check_json, shown
from streams.workflow.levels import level_of
from streams.workflow.limits import (
    MAX_DOCUMENT_BYTES,
    MAX_NAME_LENGTH,
    MAX_RULES,
    MAX_STEPS,
    MAX_TYPE_NAME_LENGTH,
    MAX_WAIT_MS,
)

DEFAULT_DEADLINE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class OutputDefinition:
    """The final mapping: the message type it builds, and its rules."""

    type: str
    rules: tuple[str, ...]
    cel_rules: tuple[CelRuleDefinition, ...] = ()

    @property
    def rule_count(self) -> int:
        return len(self.rules) + rule_count(self.cel_rules)


@dataclass(frozen=True, slots=True)
class Definition:
    """A whole document. `input_type` None means the schema's default message; `output` None, the last response.

    `run_deadline_ms` is how long a whole run may take, 0: as long as it likes. `engine_level` is the least that an
    engine must know to run it. `validate` asks for the rules of the input's type.
    """

    name: str | None
    schema: object
    input_type: str | None
    deadline_ms: int
    steps: tuple[StepDefinition, ...]
    output: OutputDefinition | None
    engine_level: int = 1
    run_deadline_ms: int = 0
    validate: bool = False


def parse_definition(document: object) -> Definition:
    """Read a document, which must be plain JSON values.

    Raises:
        DefinitionInvalid: with every fault of its form, each with a JSON pointer.
    """
    findings = Findings()
    definition = read_definition(document, findings)
    listed = findings.listed()
    if definition is None or listed:
        raise DefinitionInvalid(listed)
    return definition


def read_definition(document: object, findings: Findings) -> Definition | None:
    """Read as much of a document as there is, noting its faults. None when there is no use in looking further.

    A step whose method or target cannot be read keeps an empty text there; a step without a name is left out.
    """
    if not isinstance(document, dict):
        findings.add(f"the definition must be an object, not {shown(document)}")
        return None
    try:
        check_json(document)
    except InputInvalid as error:
        findings.add_at(error.pointer, str(error))
        return None
    size = len(strict_json.canonical(document).encode())
    if size > MAX_DOCUMENT_BYTES:
        way_out = "a large schema can be registered and named by type"
        findings.add(f"the definition has {size:,} bytes, over the limit of {MAX_DOCUMENT_BYTES:,}: {way_out}")
        return None
    return _read_envelope(ObjectReader(document, (), findings), findings, level_of(document))


def run_deadline_of(document: Mapping[str, object]) -> int | None:
    """How many milliseconds a whole run may take, as far as a document says so that may be newer than this engine."""
    stated = document.get("runDeadlineMs")
    is_sound = isinstance(stated, int) and not isinstance(stated, bool) and 0 < stated <= MAX_WAIT_MS
    return stated if isinstance(stated, int) and is_sound else None


def _read_envelope(envelope: ObjectReader, findings: Findings, engine_level: int) -> Definition | None:
    name = envelope.text("name", longest=MAX_NAME_LENGTH) or None
    schema = envelope.take("schema")
    if not envelope.has("schema"):
        envelope.fault("schema is missing")
    elif not isinstance(schema, dict):
        envelope.fault(f"schema must be an object, not {shown(schema)}", "schema")
    input_type = envelope.text("inputType", longest=MAX_TYPE_NAME_LENGTH) or None
    deadline_ms = envelope.milliseconds("deadlineMs")
    definition = Definition(
        name=name,
        schema=schema,
        input_type=input_type,
        deadline_ms=deadline_ms if deadline_ms > 0 else DEFAULT_DEADLINE_MS,
        steps=_read_steps(envelope, findings),
        output=_read_output(envelope, findings),
        engine_level=engine_level,
        run_deadline_ms=envelope.milliseconds("runDeadlineMs", lowest=1, most=MAX_WAIT_MS),
        validate=envelope.flag("validate"),
    )
    envelope.refuse_unknown()
    rules = sum(step.rule_count for step in definition.steps) + (
        definition.output.rule_count if definition.output else 0
    )
    if rules > MAX_RULES:
        envelope.fault(f"the definition has {rules:,} rules, over the limit of {MAX_RULES:,}")
        return None
    return definition


def _read_steps(envelope: ObjectReader, findings: Findings) -> tuple[StepDefinition, ...]:
    steps = envelope.take("steps")
    if not envelope.has("steps"):
        envelope.fault("steps is missing")
        return ()
    if not isinstance(steps, list):
        envelope.fault(f"steps must be an array, not {shown(steps)}", "steps")
        return ()
    if not 0 < len(steps) <= MAX_STEPS:
        envelope.fault(f"steps must hold 1 to {MAX_STEPS:,} steps, not {len(steps):,}", "steps")
        return ()
    read = (read_step(step, index, findings) for index, step in enumerate(steps))
    return tuple(step for step in read if step is not None)


def _read_output(envelope: ObjectReader, findings: Findings) -> OutputDefinition | None:
    output = envelope.take("output")
    if not envelope.has("output"):
        return None
    if not isinstance(output, dict):
        envelope.fault(f"output must be an object, not {shown(output)}", "output")
        return None
    reader = ObjectReader(output, ("output",), findings)
    definition = OutputDefinition(
        type=reader.text("type", required=True, longest=MAX_TYPE_NAME_LENGTH),
        rules=reader.texts("rules"),
        cel_rules=read_cel_rules(reader, ("output",), findings, kind="output"),
    )
    reader.refuse_unknown()
    return definition
