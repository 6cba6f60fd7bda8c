"""The envelope: what a document must, may and may not hold."""

import json
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid
from streams.workflow.definition import parse_definition
from streams.workflow.limits import MAX_DOCUMENT_BYTES, MAX_FINDINGS, MAX_RULES, MAX_STEPS
from tests.workflow.samples import found, loan, loan_with


def refusals(document: object) -> list[tuple[str, str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        parse_definition(document)
    return found(caught.value.findings)


def test_a_whole_document_is_read_as_written() -> None:
    definition = parse_definition(loan())

    assert (definition.name, definition.input_type, definition.deadline_ms) == (
        "loan-intake",
        "loan.v1.Application",
        45_000,
    )
    score, desk, _ = definition.steps
    assert (score.target, score.tls, score.deadline_ms, score.completion) == ("scorer:9443", True, 8_000, "")
    assert (desk.target, desk.completion, desk.pointer) == ("", "external", "/steps/1")
    assert definition.output is not None
    assert definition.output.type == "loan.v1.Outcome"


@pytest.mark.spec(1)
@pytest.mark.parametrize("given", [None, 0, -1, -(2**40)])
def test_without_a_positive_deadline_a_segment_has_30_seconds(given: int | None) -> None:
    document = loan()
    del document["deadlineMs"]
    if given is not None:
        document["deadlineMs"] = given

    assert parse_definition(document).deadline_ms == 30_000


@pytest.mark.spec(2)
@pytest.mark.parametrize("steps", [None, [], {}, "x", {"0": {}}])
def test_steps_that_are_no_list_of_steps_are_a_fault_of_the_workflow(steps: object) -> None:
    document = loan()
    del document["steps"]
    if steps is not None:
        document["steps"] = steps

    [(step, kind, _)] = refusals(document)

    assert (step, kind) == ("", "workflow")


@pytest.mark.spec(3)
def test_a_step_without_a_method_is_named() -> None:
    assert refusals(loan_with(lambda d: d["steps"][2].pop("method"))) == [("notify", "workflow", "/steps/2")]


def test_a_step_that_calls_needs_a_target_and_one_answered_from_outside_does_not() -> None:
    assert refusals(loan_with(lambda d: d["steps"][0].pop("target"))) == [("score", "workflow", "/steps/0")]


@pytest.mark.spec(4)
@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_a_step_without_a_name_is_a_fault_of_the_workflow(name: object) -> None:
    document = loan_with(lambda d: d["steps"][1].update(name=name))

    assert refusals(document) == [("", "workflow", "/steps/1/name")]


@pytest.mark.spec(13)
@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ((), "/vaildate"),
        (("steps", 1), "/steps/1/vaildate"),
        (("output",), "/output/vaildate"),
    ],
)
def test_an_unknown_key_is_refused_with_its_pointer(path: tuple[Any, ...], pointer: str) -> None:
    document = place = loan()
    for part in path:
        place = place[part]
    place["vaildate"] = True

    [(_, kind, at)] = refusals(document)

    assert (kind, at) == ("workflow", pointer)


@pytest.mark.parametrize(
    ("key", "kind", "way_out"),
    [
        ("structured", "structured", "call it from a service, or from a handler"),
        ("streamJoin", "workflow", "join them in a service"),
    ],
)
@pytest.mark.parametrize("value", [None, False, [], {"some": "thing"}])
def test_what_is_no_part_of_this_engine_is_refused_by_name_with_the_way_out(
    key: str, kind: str, way_out: str, value: object
) -> None:
    document = loan_with(lambda d: d["steps"][1].update({key: value}))

    with pytest.raises(DefinitionInvalid, match=f"{key} is not supported: .*{way_out}") as caught:
        parse_definition(document)

    assert found(caught.value.findings) == [("desk", kind, f"/steps/1/{key}")]


@pytest.mark.parametrize("value", [None, False, [], {"some": "thing"}, "", "  "])
def test_a_gate_is_text_and_not_blank(value: object) -> None:
    assert refusals(loan_with(lambda d: d["steps"][1].update(when=value))) == [("desk", "when", "/steps/1/when")]


@pytest.mark.parametrize(
    ("rules", "pointer"),
    [
        ({}, ""),
        (None, ""),
        (["x = 1"], "/0"),
        ([{"selector": "1"}], "/0"),
        ([{"target": " ", "selector": "1"}], "/0/target"),
        ([{"target": "to", "selector": 1}], "/0/selector"),
        ([{"target": "to", "filter": True}], "/0/filter"),
        ([{"target": "to", "fallback": "x = 1"}], "/0/fallback"),
        ([{"target": "to", "fallback": [1]}], "/0/fallback/0"),
        ([{"target": "to"}, {"target": "to", "slector": "1"}], "/1/slector"),
    ],
)
def test_cel_rules_are_read_strictly(rules: object, pointer: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["steps"][1]["celRules"] = rules
        document["output"]["celRules"] = rules

    assert refusals(loan_with(change)) == [
        ("desk", "celRule", f"/steps/1/celRules{pointer}"),
        ("", "output", f"/output/celRules{pointer}"),
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("name",), 7),
        (("name",), ""),
        (("name",), "n" * 201),
        (("schema",), None),
        (("schema",), "loan.proto"),
        (("inputType",), ["loan.v1.Application"]),
        (("deadlineMs",), "5000"),
        (("deadlineMs",), 1.5),
        (("deadlineMs",), True),
        (("deadlineMs",), 2**31),
        (("output",), "loan.v1.Outcome"),
        (("output", "type"), None),
        (("output", "rules"), "a = b"),
        (("steps", 0), "score"),
        (("steps", 0, "name"), "n" * 201),
        (("steps", 0, "target"), 5000),
        (("steps", 0, "target"), "t" * 256),
        (("steps", 0, "method"), {}),
        (("steps", 0, "tls"), "true"),
        (("steps", 0, "tls"), None),
        (("steps", 0, "rules"), {"a": "b"}),
        (("steps", 0, "deadlineMs"), "8000"),
        (("steps", 0, "deadlineMs"), -1),
        (("steps", 0, "completion"), True),
    ],
)
def test_a_wrong_type_is_refused_with_its_pointer(path: tuple[Any, ...], value: object) -> None:
    def change(document: dict[str, Any]) -> None:
        *way, last = path
        place: Any = document
        for part in way:
            place = place[part]
        place[last] = value

    [(_, kind, pointer)] = refusals(loan_with(change))

    assert kind == "workflow"
    assert pointer == "/" + "/".join(str(part) for part in path)


def test_a_rule_that_is_no_text_is_refused_with_its_index() -> None:
    document = loan_with(lambda d: d["steps"][2]["rules"].insert(1, 5))

    assert refusals(document) == [("notify", "workflow", "/steps/2/rules/1")]


def test_every_fault_is_told_at_once_and_in_step_order() -> None:
    def change(document: dict[str, Any]) -> None:
        document["output"]["type"] = 1
        document["steps"][2]["tls"] = 1
        document["steps"][0]["structured"] = {}
        document["nmae"] = "x"

    assert [pointer for _, _, pointer in refusals(loan_with(change))] == [
        "/nmae",
        "/steps/0/structured",
        "/steps/2/tls",
        "/output/type",
    ]


@pytest.mark.parametrize("document", [None, [], "x", 5, True])
def test_what_is_no_object_is_no_definition(document: object) -> None:
    assert refusals(document) == [("", "workflow", "")]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", float("nan"), float("inf"), b"bytes"])
def test_what_cannot_be_stored_is_refused_before_anything_else(name: object) -> None:
    assert refusals({**loan(), "name": name}) == [("", "workflow", "/name")]


def _nested(levels: int) -> list[Any]:
    value: list[Any] = [0]
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_is_bounded_and_never_ends_in_a_recursion_error() -> None:
    assert refusals({**loan(), "name": _nested(63)}) == [("", "workflow", "/name")]  # 64 levels: only the type is wrong
    assert refusals({**loan(), "name": _nested(64)}) == [("", "workflow", "/name" + "/0" * 63)]
    assert refusals({**loan(), "name": _nested(100_000)}) == [("", "workflow", "/name" + "/0" * 63)]


def test_keys_that_are_no_text_are_refused() -> None:
    document: dict[Any, Any] = loan()
    document[5] = "x"

    assert refusals(document) == [("", "workflow", "")]


def test_a_document_over_the_limit_is_refused_whole() -> None:
    document = loan_with(lambda d: d["steps"][0]["rules"].append('applicant = "' + "x" * MAX_DOCUMENT_BYTES + '"'))

    assert len(json.dumps(document)) > MAX_DOCUMENT_BYTES
    assert refusals(document) == [("", "workflow", "")]


def test_more_steps_than_allowed_are_refused() -> None:
    document = loan_with(lambda d: d.update(steps=[d["steps"][0]] * (MAX_STEPS + 1)))

    assert refusals(document) == [("", "workflow", "/steps")]


def test_findings_are_bounded_and_say_that_there_are_more() -> None:
    document = loan_with(lambda d: d["steps"][0].update({f"key{index}": 1 for index in range(1_000)}))

    with pytest.raises(DefinitionInvalid) as caught:
        parse_definition(document)

    assert len(caught.value.findings) == MAX_FINDINGS + 1
    assert caught.value.findings[-1].error == f"there are more findings than these {MAX_FINDINGS}"


def test_more_rules_than_allowed_are_refused() -> None:
    document = loan_with(lambda d: d["steps"][0].update(rules=["a=1"] * MAX_RULES))

    assert refusals(document) == [("", "workflow", "")]
