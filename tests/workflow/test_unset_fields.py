"""Rules over fields that are not set, and over values at the edge of their types: as gates, mapping rules and rules."""

import base64
import json
import re
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protovalidate._gen.buf.validate.validate_pb import MessageRules, Rule

from schemas.errors import (
    DefinitionInvalid,
    GateFailed,
    MappingFailed,
    StepFailed,
    ValidationFailed,
    WorkflowBroken,
)
from streams.evaluator.protoc import ProtocChild
from streams.workflow.runner import Completed
from tests.workflow.samples import DATA, Log, Service, descriptor_set, plan_of, segment

ROWS: list[tuple[str, str, dict[str, object], Any]] = [
    tuple(row) for row in json.loads((DATA / "cel_rules.json").read_text())["rows"]
]
# The language is stricter than CEL's looser dialects in one row: a literal must be of the field's own type.
REFUSED_AT_SUBMIT = {"int literal against uint field", "non-boolean condition is an error"} | {
    "undeclared field is an error even under has()"
}
FIELD = {bool: "fragile", int: "serial", str: "serial", float: "ratio"}


def workflow(**step: object) -> dict[str, object]:
    """A workflow of one step over the parcel."""
    return {
        "schema": {"descriptorSetBase64": base64.b64encode(descriptor_set("parcel_full")).decode()},
        "inputType": "depot.Parcel",
        "steps": [{"name": "accept", "target": "t", "method": "depot.Intake/Accept", **step}],
    }


def literal(answer: bool | int | float | str) -> str:
    return str(answer).lower() if isinstance(answer, bool) else str(answer)


async def ran(document: dict[str, object], given: dict[str, object], protoc: ProtocChild) -> tuple[bool, Any]:
    """Whether the step was run, and with what. Raises as the engine does."""
    plan = await plan_of(document, protoc)
    service, log = Service(plan.schema_set, {"accept": {}}), Log()
    try:
        completed = await segment(plan, service, log, given=given)
    finally:
        assert len(log.stored) <= 1
    assert isinstance(completed, Completed)
    assert log.stored[0].skipped is (not service.requests)
    sent = [plan.schema_set.from_wire("depot.Parcel", request.payload) for request in service.requests]
    return bool(sent), sent[0] if sent else None


@pytest.mark.case("D17")
@pytest.mark.parametrize(("name", "expression", "given", "answer"), ROWS, ids=[row[0] for row in ROWS])
async def test_d17_each_row_as_a_gate(
    name: str, expression: str, given: dict[str, object], answer: Any, protoc: ProtocChild
) -> None:
    error = isinstance(answer, str) and answer.startswith("error")
    boolean = isinstance(answer, bool) or name in REFUSED_AT_SUBMIT
    document = workflow(when=expression if boolean else f"({expression}) == {1 if error else literal(answer)}")

    if name in REFUSED_AT_SUBMIT:
        with pytest.raises(DefinitionInvalid):
            await ran(document, given, protoc)
    elif error:
        with pytest.raises(GateFailed) as caught:
            await ran(document, given, protoc)
        _is_a_defect(caught.value, expression)
    else:
        assert (await ran(document, given, protoc))[0] is (answer if isinstance(answer, bool) else True)


@pytest.mark.case("D17")
@pytest.mark.parametrize(("name", "expression", "given", "answer"), ROWS, ids=[row[0] for row in ROWS])
async def test_d17_each_row_as_a_mapping_rule(
    name: str, expression: str, given: dict[str, object], answer: Any, protoc: ProtocChild
) -> None:
    field = FIELD[type(answer)]
    document = workflow(celRules=[{"target": field, "selector": expression}])

    if name in REFUSED_AT_SUBMIT:
        with pytest.raises(DefinitionInvalid):
            await ran(document, given, protoc)
    elif isinstance(answer, str) and answer.startswith("error"):
        with pytest.raises(MappingFailed) as caught:
            await ran(document, given, protoc)
        _is_a_defect(caught.value, expression)
    else:
        _, sent = await ran(document, given, protoc)
        assert getattr(sent, field) == (int(answer) if isinstance(answer, str) else answer)


def validating(expression: str) -> dict[str, object]:
    """The same workflow, whose step's response must keep one rule, over `this`."""
    rule = Rule(id="the.rule", message="it does not hold", expression=re.sub(r"\binput\b", "this", expression))
    rules = MessageRules(cel=[rule]).to_binary()
    files = FileDescriptorSet.FromString(descriptor_set("parcel_full"))
    [file] = [file for file in files.file if file.name == "depot/parcel.proto"]
    file.dependency.append("buf/validate/validate.proto")
    [parcel] = [message for message in file.message_type if message.name == "Parcel"]
    length = bytes([len(rules) & 0x7F | 0x80, len(rules) >> 7])
    parcel.options.MergeFromString(bytes([1159 << 3 & 0x7F | 2 | 0x80, 1159 >> 4]) + length + rules)
    schema = {"descriptorSetBase64": base64.b64encode(files.SerializeToString()).decode()}
    return {**workflow(validate=True), "schema": schema}


@pytest.mark.case("D17")
@pytest.mark.parametrize(("name", "expression", "given", "answer"), ROWS, ids=[row[0] for row in ROWS])
async def test_d17_each_row_as_a_validation_rule(
    name: str, expression: str, given: dict[str, object], answer: Any, protoc: ProtocChild
) -> None:
    error = isinstance(answer, str) and answer.startswith("error")
    document = validating(expression if isinstance(answer, bool) or error else f"({expression}) == {literal(answer)}")
    log = Log()

    async def validated() -> None:
        plan = await plan_of(document, protoc)
        await segment(plan, Service(plan.schema_set, {"accept": given}), log, given={})

    if error:
        with pytest.raises((WorkflowBroken, DefinitionInvalid), match=r"the\.rule") as caught:
            await validated()
        if isinstance(caught.value, WorkflowBroken):
            assert (caught.value.step, caught.value.retryable) == ("accept", False)
    elif answer is False:
        with pytest.raises(ValidationFailed, match="it does not hold"):
            await validated()
    else:
        await validated()
    assert len(log.stored) == (0 if error or answer is False else 1)


def _is_a_defect(error: StepFailed, expression: str) -> None:
    """Never retried, never read as false; it names its step and its rule."""
    assert (error.step, error.retryable) == ("accept", False)
    assert expression.replace("'", "") in str(error).replace("'", "").replace("\\", "")


def test_d17_every_row_is_there() -> None:
    assert len(ROWS) == 27
    assert {name for name, *_ in ROWS} >= REFUSED_AT_SUBMIT
