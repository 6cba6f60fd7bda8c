"""CEL rules: filter, selector, target and fallback; what a selector gives and where it may go."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid, MappingFailed
from streams.evaluator.protoc import ProtocChild
from streams.workflow.cel_rules import CelRules
from streams.workflow.compiler import Compiled
from streams.workflow.composition import Composition
from streams.workflow.definition_cel import read_cel_rules
from streams.workflow.descriptors import SchemaSet
from streams.workflow.document import ObjectReader
from streams.workflow.findings import Findings
from streams.workflow.mapping import CompiledMapping, compile_rule
from streams.workflow.runner import Completed, StoredCheckpoint
from tests.workflow.samples import (
    ANSWER,
    DECIDED,
    EVALUATOR,
    RESPONSES,
    SCORED,
    Service,
    found,
    loan,
    loan_with,
    plan_of,
    segment,
)

KIT = "kit.v1.Kit"
Rules = list[dict[str, object]]


class Refused(Exception):
    """The faults of rules that do not verify."""


async def composed(
    schemas: SchemaSet,
    *cel_rules: Mapping[str, object],
    rules: tuple[str, ...] = (),
    given: Mapping[str, object] | None = None,
) -> Any:
    """The message that the rules build, with *given* as the input. Raises Refused when they do not verify."""
    target = schemas.message(KIT)
    types = {"input": target}
    findings = Findings()
    read = read_cel_rules(ObjectReader({"celRules": list(cel_rules)}, (), findings), (), findings)
    assert findings.listed() == []
    compiler = CelRules(target, types, schemas, EVALUATOR)
    compiled = []
    for rule in read:
        faults, made = await compiler.compile(rule)
        if made is None:
            raise Refused("; ".join(str(fault[0]) for fault in faults))
        compiled.append(made)
    mapping = CompiledMapping.into(target, [compile_rule(text, target, types, schemas) for text in rules])
    scope = {"input": schemas.parse_json(KIT, dict(given or {}))}
    return await Composition(mapping, tuple(compiled), schemas).build(scope, step="s", evaluator=EVALUATOR)


def rule(target: str, selector: str | None = None, **more: object) -> dict[str, object]:
    return {"target": target, **({} if selector is None else {"selector": selector}), **more}


@pytest.mark.spec(37)
async def test_text_rules_run_before_cel_rules(kit: SchemaSet) -> None:
    built = await composed(kit, rule("a_string", "'cel'"), rules=('a_string = "text"', 'left = "kept"'))

    assert (built.a_string, built.left) == ("cel", "kept")


@pytest.mark.spec(38)
@pytest.mark.parametrize(("filter", "expected"), [("false", ""), ("true", "x"), ("", "x"), ("  ", "x"), (None, "x")])
async def test_a_rule_whose_filter_is_false_has_no_effect_and_a_blank_one_applies(
    filter: str | None, expected: str, kit: SchemaSet
) -> None:
    more = {} if filter is None else {"filter": filter}

    assert (await composed(kit, rule("a_string", "'x'", **more))).a_string == expected
    assert (await composed(kit, rule("a_string", fallback=['a_string = "x"'], **more))).a_string == expected


@pytest.mark.spec(39)
async def test_a_selector_that_fails_fails_the_mapping_and_its_fallback_is_not_tried(kit: SchemaSet) -> None:
    failing = rule("a_string", "string(1 / input.an_int64)", fallback=['a_string = "x"'])

    with pytest.raises(
        MappingFailed, match=r"MAPPING: celRules\[1\] a_string = 'string\(1 / .*: divide by zero"
    ) as caught:
        await composed(kit, rule("a_bool", "true"), failing)
    assert (caught.value.step, caught.value.retryable) == ("s", False)


async def test_a_filter_that_fails_fails_the_mapping(kit: SchemaSet) -> None:
    for filter in ("1 / input.an_int64 == 1", "dyn(1)", "input.extras.none"):
        with pytest.raises(MappingFailed, match=r"celRules\[0\] a_string .*filter"):
            await composed(kit, rule("a_string", "'x'", filter=filter))
        with pytest.raises(MappingFailed, match=r"celRules\[0\] a_string .*filter"):
            await composed(kit, rule("a_string", filter=filter, fallback=['a_string = "x"']))


@pytest.mark.spec(40)
async def test_a_rule_sees_what_the_ones_before_it_wrote(kit: SchemaSet) -> None:
    built = await composed(
        kit,
        rule("an_int64", "target.an_int64 + 1"),
        rule("an_int64", "target.an_int64 * 10"),
        rule("a_string", "string(target.an_int64)", filter="target.an_int64 > 10"),
        rule("left", fallback=['left = "fell back"'], filter="target.a_string == '20'"),
        rule("strings", "[target.left]"),
        rules=("an_int64 = 1",),
    )

    assert (built.an_int64, built.a_string, list(built.strings)) == (20, "20", ["fell back"])


@pytest.mark.spec(42)
async def test_a_list_becomes_the_elements_of_a_repeated_field_anew(kit: SchemaSet) -> None:
    built = await composed(
        kit,
        rule("strings", "input.strings.map(s, s.upperAscii())"),
        rules=('strings += "old"',),
        given={"strings": ["a", "b"]},
    )
    assert list(built.strings) == ["A", "B"]

    built = await composed(kit, rule("strings", "[]"), rules=('strings += "old"',))
    assert list(built.strings) == []


@pytest.mark.spec(43)
async def test_a_fallback_reads_the_scope(protoc: ProtocChild) -> None:
    def change(document: dict[str, Any]) -> None:
        document["steps"][2]["celRules"] = [
            {"target": "subject", "filter": "!desk.approved", "selector": "'no'", "fallback": ["subject = desk.note"]},
            {
                "target": "subject",
                "filter": "desk.approved",
                "fallback": ["subject = desk.note", "labels += score.model"],
            },
        ]

    plan = await plan_of(loan_with(change), protoc)
    service = Service(plan.schema_set, RESPONSES)

    await segment(plan, service, stored=[SCORED, DECIDED])

    sent: Any = plan.schema_set.from_wire("loan.v1.Mail", service.requests[0].payload)
    assert (sent.subject, list(sent.labels)) == (ANSWER["note"], ["new", "auto", "v3"])


async def test_a_rule_without_selector_and_fallback_does_nothing(kit: SchemaSet) -> None:
    assert (await composed(kit, rule("a_string"), rules=('a_string = "kept"',))).a_string == "kept"


# What is given, where it goes, what stands there then. Text that begins with "!" is what a refusal says.
WRITES: list[tuple[str, str, object]] = [
    # null clears
    ("null", "a_string", ""),
    ("input.wrapped_string", "a_string", ""),
    ("null", "strings", []),
    ("input.hint", "a_string", ""),
    ("null", "inner", None),
    # scalars keep their digits and are coerced as by text rules
    ("input.an_int64", "an_int64", 9007199254740993),
    ("input.an_uint64", "an_uint64", 18446744073709551615),
    ("input.an_uint64", "an_int64", "!18446744073709551615 is out of the range of int64"),
    ("input.an_int64", "an_int32", "!out of the range of int32"),
    ("-1", "an_uint32", "!-1 is out of the range of uint32"),
    ("7.0", "an_int32", 7),
    ("1.5", "an_int32", "!1.5 is not an integer"),
    ("'12'", "an_int32", 12),
    ("'x'", "an_int32", "!'x' is not an integer|\"x\" is not an integer"),
    ("42", "a_string", "42"),
    ("1.5", "a_string", "1.5"),
    ("5u", "a_string", "5"),
    ("true", "a_string", "true"),
    ("'TRUE'", "a_bool", True),
    ("'yes'", "a_bool", "!is neither true nor false"),
    ("1", "a_double", 1.0),
    ("1e300", "a_float", "!out of the range of float"),
    ("b'\\xff'", "a_bytes", b"\xff"),
    # enums take a name or a declared number
    ("2", "color", 2),
    ("1u", "color", 1),
    ("kit.v1.Color.BLUE", "color", 2),
    ("'RED'", "color", 1),
    ("input.color", "color", 2),
    ("77", "color", "!77 is no value of kit.v1.Color"),
    ("'PINK'", "color", "!is no value of kit.v1.Color"),
    ("[1, 'BLUE', 0u]", "colors", [1, 2, 0]),
    # times keep their nanoseconds
    ("input.at", "at", "2026-01-01T00:00:00.123456789Z"),
    ("[input.at][0]", "at", "2026-01-01T00:00:00.123456789Z"),
    ("duration('-1.000000001s')", "took", "-1.000000001s"),
    ("input.at + duration('1ns')", "at", "2026-01-01T00:00:00.123456790Z"),
    # wrappers are seen as their values
    ("input.wrapped_int", "wrapped_int", "4"),
    ("5", "wrapped_int", "5"),
    ("'x'", "wrapped_string", "x"),
    ("5u", "wrapped_string", "5"),
    # lists
    ("['1', 2, 3u, 4.0]", "ints", [1, 2, 3, 4]),
    ("[9007199254740993, 1u]", "longs", [9007199254740993, 1]),
    ("[1, null]", "ints", "!null inside a list"),
    ("[[1]]", "ints", "!a LIST<INT> cannot become a int32"),
    ("dyn([])", "a_string", ""),
    ("dyn(['x'])", "a_string", "!a list cannot become a string"),
    ("dyn('x')", "strings", "!a single value cannot replace a list of string: give a list"),
    ("input.inners", "inners", [{"text": "x", "count": "0"}]),
    (
        "[kit.v1.Inner{text: 'y'}, {'text': 'z', 'count': 2}]",
        "inners",
        [{"text": "y", "count": "0"}, {"text": "z", "count": "2"}],
    ),
    # maps
    ("input.counts", "counts", {"k": "9007199254740993"}),
    ("{'a': 1, 'b': 2u}", "labels", {"a": "1", "b": "2"}),
    ("{1: input.inners[0]}", "by_number", {"1": {"text": "x", "count": "0"}}),
    ("{'7': {'text': 'x'}}", "by_number", {"7": {"text": "x", "count": "0"}}),
    ("{true: 1}", "by_truth", {"true": "1"}),
    ("{'x': null}", "labels", "!null inside a list or a map"),
    ("dyn({'text': 'x'})", "a_string", "!a map cannot become a string"),
    ("{'text': 'x', 'count': 9007199254740993, 'other': 1}", "inner", {"text": "x", "count": "9007199254740993"}),
    ("{'text': [1]}", "inner", "!the map cannot become a kit.v1.Inner"),
    ("{'text': 'x'}", "extras", {"text": "x"}),
    ("{'a': [1, null, {'b': b'\\xff', 'c': input.at}], 'd': input.inner}", "extras", {
        "a": [1, None, {"b": "/w==", "c": "2026-01-01T00:00:00.123456789Z"}],
        "d": {"text": "", "count": "0"},
    }),
    ("{'a': 9007199254740993}", "extras", "!cannot hold exactly"),
    ("input.extras", "extras", {"n": 1}),
    ("{'text': 'x'}", "any", {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"text": "x"}}),
    # free-form fields and keys take what JSON has
    ("[1, 'x', null, {'a': true}]", "hint", [1, "x", None, {"a": True}]),
    ("[1, 'x']", "list", [1, "x"]),
    ("5", "hint", 5),
    ("input.at", "hint", "2026-01-01T00:00:00.123456789Z"),
    ("[1, null, [2]]", "hints", [1, None, [2]]),
    ("{'a': 1}", "extras.deep.key", {"deep": {"key": {"a": 1}}}),
    ("[1, [2]]", "extras.key", {"key": [1, [2]]}),
    ("'x'", "extras.key", {"key": "x"}),
    # messages
    ("input.inners[0]", "inner", {"text": "x", "count": "0"}),
    ("input.inners[0].text", "inner.deeper.text", {"text": "", "count": "0", "deeper": {"text": "x", "count": "0"}}),
    ("kit.v1.Inner{text: 'y'}", "any", {"@type": "type.googleapis.com/kit.v1.Inner", "text": "y", "count": "0"}),
    ("input.any", "inner", {"text": "in", "count": "0"}),
    ("input.inners[0]", "extras", {"text": "x", "count": "0"}),
]  # fmt: skip

GIVEN: dict[str, object] = {
    "anInt64": "9007199254740993",
    "anUint64": "18446744073709551615",
    "color": "BLUE",
    "inners": [{"text": "x"}],
    "counts": {"k": "9007199254740993"},
    "extras": {"n": 1},
    "at": "2026-01-01T00:00:00.123456789Z",
    "wrappedInt": "4",
    "any": {"@type": "type.googleapis.com/kit.v1.Inner", "text": "in"},
}


@pytest.mark.parametrize(("selector", "target", "expected"), WRITES)
async def test_what_a_selector_gives_is_written_whole_or_refused(
    selector: str, target: str, expected: object, kit: SchemaSet
) -> None:
    name = target.partition(".")[0]
    if isinstance(expected, str) and expected.startswith("!"):
        with pytest.raises((MappingFailed, Refused), match=expected[1:]):
            await composed(kit, rule(target, selector), given=GIVEN)
        return

    built = await composed(kit, rule(target, selector), given=GIVEN)

    held = getattr(built, name)
    if (isinstance(expected, bool | int | float | bytes) and name != "hint") or (
        isinstance(expected, list) and name in ("ints", "longs", "colors")
    ):
        assert (list(held) if isinstance(expected, list) else held) == expected
        return
    rendered: Any = kit.to_json(built)
    json_name = built.DESCRIPTOR.fields_by_name[name].json_name
    assert rendered.get(json_name) == expected


@pytest.mark.parametrize(
    ("selector", "target"),
    [
        ("['x']", "a_string"),
        ("'x'", "strings"),
        ("{'a': 1}", "a_string"),
        ("{'a': 1}", "strings"),
        ("['x']", "labels"),
        ("'x'", "labels"),
        ("{'a': {'b': 1}}", "labels"),
        ("{b'x': 1}", "labels"),
        ("input.inners", "strings"),
        ("input.inners[0]", "a_string"),
        ("'x'", "inner"),
        ("input.at", "inner"),
        ("input.at", "a_string"),
        ("b'x'", "a_string"),
        ("'x'", "a_bytes"),
        ("true", "an_int32"),
        ("1", "a_bool"),
        ("[[1]]", "ints"),
        ("type(1)", "a_string"),
        ("[1]", "extras"),
        ("{'a': 1}", "at"),
        ("{'a': 1}", "wrapped_int"),
        ("input.inner", "wrapped_int"),
        ("b'x'", "hint"),
    ],
)
async def test_a_selector_whose_type_can_never_meet_its_target_is_refused_before_any_run(
    selector: str, target: str, kit: SchemaSet
) -> None:
    with pytest.raises(Refused, match=r"cannot|Unsupported map key type: BYTES"):
        await composed(kit, rule(target, selector), given=GIVEN)


@pytest.mark.parametrize(
    ("rule", "pointer"),
    [
        ({"target": "nothing", "selector": "1"}, "/target"),
        ({"target": "labels[0]", "selector": "'x'"}, "/target"),
        ({"target": "labels.x", "selector": "'x'"}, "/target"),
        ({"target": "subject", "selector": "1 +"}, "/selector"),
        ({"target": "subject", "selector": "notify.id"}, "/selector"),
        ({"target": "subject", "selector": "target.nothing"}, "/selector"),
        ({"target": "subject", "selector": "score"}, "/selector"),
        ({"target": "subject", "filter": "1", "selector": "'x'"}, "/filter"),
        ({"target": "subject", "filter": "score.value", "fallback": []}, "/filter"),
        ({"target": "subject", "fallback": ["nothing = 1"]}, "/fallback/0"),
        ({"target": "subject", "fallback": ["subject = target.subject"]}, "/fallback/0"),
        ({"target": "subject", "fallback": ["subject = input.applicant", ""]}, "/fallback/1"),
    ],
)
def test_every_part_of_a_rule_is_checked(
    rule: dict[str, object], pointer: str, compiled: Callable[[object], Compiled]
) -> None:
    def change(document: dict[str, Any]) -> None:
        document["steps"][2]["celRules"] = [{"target": "to", "selector": "'x'"}, rule]

    with pytest.raises(DefinitionInvalid) as caught:
        compiled(loan_with(change))
    assert found(caught.value.findings) == [("notify", "celRule", f"/steps/2/celRules/1{pointer}")]


def test_rules_of_the_output_are_checked_as_its_own(compiled: Callable[[object], Compiled]) -> None:
    def change(document: dict[str, Any]) -> None:
        document["output"]["celRules"] = [{"target": "approved", "selector": "1", "filter": "notify.id"}]

    with pytest.raises(DefinitionInvalid) as caught:
        compiled(loan_with(change))
    assert found(caught.value.findings) == [
        ("", "output", "/output/celRules/0/filter"),
        ("", "output", "/output/celRules/0/selector"),
    ]


async def test_the_output_is_built_by_its_cel_rules_too_and_a_failure_there_names_it(protoc: ProtocChild) -> None:
    document = loan()
    document["output"]["celRules"] = [
        {"target": "note", "selector": "notify.id + '/' + target.note"},
        {"target": "mail_id", "selector": "string(1 / (score.value > 1.0 ? 1 : 0))", "filter": "input.rush"},
    ]
    plan = await plan_of(document, protoc)
    stored = [SCORED, DECIDED, StoredCheckpoint(2, "notify", False, {"id": "m-1"})]

    with pytest.raises(MappingFailed, match=r"MAPPING: celRules\[1\] mail_id = .*divide by zero") as caught:
        await segment(plan, Service(plan.schema_set, {}), stored=stored)
    assert caught.value.step == "output"
    completed = await segment(plan, Service(plan.schema_set, {}), stored=stored, given={"applicant": "ana"})
    assert isinstance(completed, Completed)
    assert completed.result == {"applicant": "ana", "approved": True, "note": "m-1/fine", "mailId": "m-1"}


async def test_required_fields_may_be_filled_by_cel_rules_and_are_missed_when_they_are_not(protoc: ProtocChild) -> None:
    proto = """syntax = "proto2"; message A { required int32 a = 1; optional int32 b = 2; }
        service S { rpc M(A) returns (A); }"""

    def document(selector: str) -> dict[str, object]:
        step = {"name": "s", "target": "t", "method": "S/M", "celRules": [{"target": "a", "selector": selector}]}
        return {"schema": {"sources": {"a.proto": proto}}, "steps": [step]}

    for selector, missing in (("input.b + target.b", False), ("null", True)):
        plan = await plan_of(document(selector), protoc)
        service = Service(plan.schema_set, {"s": {"a": 1}})
        if missing:
            with pytest.raises(MappingFailed, match="leave out required fields: a"):
                await segment(plan, service, given={"a": 1, "b": 2})
        else:
            assert isinstance(await segment(plan, service, given={"a": 1, "b": 2}), Completed)
