"""Rules over fields that are not set, and over values at the edge of their types: as gates and as mapping rules."""

import base64
import json
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid, GateFailed, MappingFailed, StepFailed
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


def _is_a_defect(error: StepFailed, expression: str) -> None:
    """Never retried, never read as false; it names its step and its rule."""
    assert (error.step, error.retryable) == ("accept", False)
    assert expression.replace("'", "") in str(error).replace("'", "").replace("\\", "")


def test_d17_every_row_is_there() -> None:
    assert len(ROWS) == 27
    assert {name for name, *_ in ROWS} >= REFUSED_AT_SUBMIT
