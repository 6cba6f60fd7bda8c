"""Plans: what a compiled definition tells, and that the pinned pair gives the same plan again."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import Finding, InputInvalid, MappingFailed, WorkflowBroken
from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import ENGINE_LEVEL, Compiled, check, load_plan
from streams.workflow.definition import parse_definition
from streams.workflow.descriptors import SchemaSet
from streams.workflow.limits import MAX_VALUE_BYTES
from streams.workflow.plan import Plan
from tests.workflow.samples import DATA, EVALUATOR, descriptor_set, loan, loan_with, mapped

Compile = Callable[[object], Compiled]


def loaded(document: object, descriptor_set: bytes) -> Plan:
    return asyncio.run(load_plan(document, descriptor_set, evaluator=EVALUATOR))


def checked(document: object, schemas: SchemaSet) -> list[Finding]:
    return asyncio.run(check(parse_definition(document), schemas, evaluator=EVALUATOR))


def test_what_is_pinned_is_the_document_as_given_and_a_schema_that_stands_alone(compiled: Compile) -> None:
    document = loan()

    pinned = compiled(document)

    assert pinned.document == document
    assert pinned.engine_level == pinned.plan.engine_level == 1 < ENGINE_LEVEL
    assert SchemaSet.from_bytes(pinned.descriptor_set).message("loan.v1.Outcome")
    assert len(pinned.definition_hash) == 32


def test_a_stored_pair_gives_the_same_plan_without_a_compiler(compiled: Compile) -> None:
    pinned = compiled(loan())
    shuffled = json.loads(json.dumps(dict(reversed(pinned.document.items()))))

    plan = loaded(shuffled, pinned.descriptor_set)

    for step, again in zip(pinned.plan.steps, plan.steps, strict=True):
        assert (step.name, step.output_type) == (again.name, again.output_type)
    assert [plan.target_of(index) for index in range(3)] == [pinned.plan.target_of(index) for index in range(3)]
    assert plan.name == "loan-intake"
    assert plan.input_type == pinned.plan.input_type


def test_a_root_decides_the_default_message_of_the_pinned_pair_too(compiled: Compile) -> None:
    document: dict[str, Any] = {
        "schema": {
            "sources": {
                "a.proto": 'syntax = "proto3"; import "b.proto"; message A {} service S { rpc M(B) returns (A); }',
                "b.proto": 'syntax = "proto3"; message B {}',
            },
            "root": "a.proto",
        },
        "steps": [{"name": "s", "target": "t", "method": "S/M"}],
    }

    pinned = compiled(document)

    assert pinned.plan.input_type == loaded(pinned.document, pinned.descriptor_set).input_type == "A"


def test_the_hash_tells_definitions_and_schemas_apart_and_key_order_not(compiled: Compile) -> None:
    first = compiled(loan())

    assert compiled(dict(reversed(loan().items()))).definition_hash == first.definition_hash
    assert compiled({**loan(), "deadlineMs": 45_001}).definition_hash != first.definition_hash
    assert compiled(loan_with(_add_a_comment)).definition_hash != first.definition_hash


def _add_a_comment(document: dict[str, Any]) -> None:
    document["schema"]["sources"]["loan.proto"] += "// a word\n"


def test_the_order_of_files_in_a_set_does_not_change_the_pinned_schema(compiled: Compile) -> None:
    document = json.loads((DATA / "workflows" / "parcel.json").read_text())

    assert compiled(document).descriptor_set == SchemaSet.from_bytes(descriptor_set("parcel_full")).to_bytes()


@pytest.mark.parametrize("name", ["parcel", "text_v1", "text_v2", "recursive"])
def test_definitions_from_the_field_compile(name: str, compiled: Compile) -> None:
    document = json.loads((DATA / "workflows" / f"{name}.json").read_text())

    pinned = compiled(document)

    assert loaded(document, pinned.descriptor_set).next_target(0) == "TARGET"


def test_a_stored_definition_that_does_not_verify_is_broken_with_every_finding(compiled: Compile) -> None:
    pinned = compiled(loan())

    def change(document: dict[str, Any]) -> None:
        document["steps"][2]["rules"].append("x = 1")
        document["steps"][1]["structured"] = {}

    with pytest.raises(
        WorkflowBroken, match=r"step desk: structured is not supported.*step notify: rule 'x = 1'"
    ) as caught:
        loaded(loan_with(change), pinned.descriptor_set)
    assert caught.value.step == "desk"


@pytest.mark.parametrize("document", [None, [], "{}", {}, {"steps": {}}])
def test_a_stored_definition_that_does_not_parse_is_broken(document: object, compiled: Compile) -> None:
    with pytest.raises(WorkflowBroken, match="does not verify"):
        loaded(document, compiled(loan()).descriptor_set)


@pytest.mark.parametrize("data", [b"", b"\xff\xff", descriptor_set("import_cycle"), descriptor_set("text_v1")])
def test_a_pinned_schema_that_is_none_or_another_is_broken(data: bytes) -> None:
    with pytest.raises(WorkflowBroken, match="does not verify"):
        loaded(loan(), data)


def test_checking_gives_findings_and_raises_nothing(compiled: Compile) -> None:
    schemas = compiled(loan()).plan.schema_set

    assert checked(loan(), schemas) == []
    broken = loan_with(lambda d: d["steps"][0].update(rules=["x = 1"]))
    assert [finding.kind for finding in checked(broken, schemas)] == ["rule"]


def test_the_next_target_is_that_of_the_first_step_without_a_checkpoint(compiled: Compile) -> None:
    plan = compiled(loan()).plan

    assert [plan.next_target(finished) for finished in range(5)] == [
        "scorer:9443",
        "local:engine",
        "mailer",
        "local:engine",
        "local:engine",
    ]
    assert plan.target_of(2) == "mailer"
    assert [plan.index_of(name) for name in ("score", "notify", "input", "")] == [0, 2, None, None]


def test_input_is_parsed_from_text_or_values_with_a_pointer_to_the_fault(compiled: Compile) -> None:
    plan = compiled(loan()).plan

    message: Any = plan.parse_input('{"applicant": "ana", "amount_cents": 9007199254740993}')
    assert (message.applicant, message.amount_cents) == ("ana", 9007199254740993)
    assert plan.parse_input(b'{"applicant": "ana", "amountCents": "9007199254740993"}') == message
    assert plan.parse_input({"applicant": "ana", "amountCents": 9007199254740993}) == message
    for value, pointer in [({"applcant": "x"}, "/applcant"), ('{"rush": "true"}', "/rush"), ("[]", ""), (None, "")]:
        with pytest.raises(InputInvalid) as caught:
            plan.parse_input(value)
        assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"applicant": NaN}',
        '{"amountCents": 1e400}',
        '{"rush": true, "rush": true}',
        '{"applicant": "\\u0000"}',
        '{"applicant": "\\ud800"}',
        '{"amountCents": ' + "9" * 10_000 + "}",
        "[" * 100_000,
        '{"tags": ' * 100_000,
        b"\xff\xfe",
        '"' + "x" * MAX_VALUE_BYTES + '"',
    ],
)
def test_hostile_text_ends_in_a_refusal(text: str | bytes, compiled: Compile) -> None:
    with pytest.raises(InputInvalid):
        compiled(loan()).plan.parse_input(text)


def test_a_response_is_parsed_as_strictly_as_an_input(compiled: Compile) -> None:
    plan = compiled(loan()).plan

    answer: Any = plan.parse_response(1, {"approved": True})
    assert answer.approved
    assert plan.render(answer) == {"approved": True, "note": ""}
    with pytest.raises(InputInvalid) as caught:
        plan.parse_response(1, {"aproved": True})
    assert caught.value.pointer == "/aproved"


async def test_required_fields_left_out_are_refused_in_whatever_is_read_or_sent(protoc: ProtocChild) -> None:
    sources = {"a.proto": 'syntax = "proto2"; message A { required int32 a = 1; optional int32 b = 2 [default = 7]; }'}
    schemas = SchemaSet.from_bytes(await protoc(sources, None))

    assert schemas.to_json(schemas.parse_json("A", {"a": 0})) == {"a": 0}
    with pytest.raises(InputInvalid, match="A needs a"):
        schemas.parse_json("A", {"b": 1})
    with pytest.raises(InputInvalid, match="A needs a"):
        schemas.from_wire("A", b"")
    with pytest.raises(MappingFailed, match="leave out required fields: a"):
        mapped(schemas, "b = 1", given={"a": 1}, type_name="A", given_type="A")
