"""What expressions are and give: the same in a child process and in this one."""

import base64
from typing import Any

import pytest

from streams.evaluator.bounds import MAX_ELEMENTS
from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import NOT_MET, ExpressionFailed, ExpressionRefused, Plain

KIT = "kit.v1.Kit"

GIVEN: dict[str, object] = {
    "anInt64": "9007199254740993",
    "anUint64": "18446744073709551615",
    "aDouble": 1.5,
    "aString": "ä",
    "aBytes": "/w==",
    "color": "BLUE",
    "strings": ["a", "b"],
    "colors": ["RED", "BLUE"],
    "inners": [{"text": "x"}],
    "counts": {"k": "3"},
    "byNumber": {"5": {"count": "7"}},
    "extras": {"n": 1, "deep": {"list": [1, None, "x", True]}},
    "at": "2026-01-01T00:00:00.123456789Z",
    "took": "-1.000000001s",
    "wrappedInt": "4",
    "any": {"@type": "type.googleapis.com/kit.v1.Inner", "text": "in"},
}


async def evaluated(evaluator: OperationsEvaluator, kit: SchemaSet, source: str, **given: object) -> Plain:
    await evaluator.check(kit, source, {"input": KIT})
    value = await evaluator.evaluate(kit, source, {"input": kit.parse_json(KIT, {**GIVEN, **given})})
    assert value is not NOT_MET
    return value


def inner(kit: SchemaSet, **given: object) -> dict[str, Plain]:
    data = kit.parse_json("kit.v1.Inner", given).SerializeToString(deterministic=True)
    return {"message": ["kit.v1.Inner", base64.b64encode(data).decode()]}


VALUES: list[tuple[str, str, Plain]] = [
    ("true", "BOOL", True),
    ("input.an_int64", "INT", 9007199254740993),
    ("input.an_uint64", "UINT", {"uint": 18446744073709551615}),
    ("input.a_double", "DOUBLE", 1.5),
    ("1.0", "DOUBLE", 1.0),
    ("input.a_string + 'b'", "STRING", "äb"),
    ("input.a_bytes", "BYTES", {"bytes": "/w=="}),
    ("input.color", "INT", 2),
    ("kit.v1.Color.RED", "INT", 1),
    ("input.strings", "LIST<STRING>", ["a", "b"]),
    ("input.colors", "LIST<INT>", [1, 2]),
    ("input.colors.map(x, x)", "LIST<INT>", [1, 2]),
    ("input.colors.filter(x, x > 1)", "LIST<INT>", [2]),
    ("input.colors.map(x, [x])", "LIST<LIST<INT>>", [[1], [2]]),
    ("input.counts", "MAP<STRING, INT>", {"map": [["k", 3]]}),
    ("{true: 1u}", "MAP<BOOL, UINT>", {"map": [[True, {"uint": 1}]]}),
    ("input.at", "TIMESTAMP", {"timestamp": [1767225600, 123456789]}),
    ("timestamp('0001-01-01T00:00:00Z')", "TIMESTAMP", {"timestamp": [-62135596800, 0]}),
    ("timestamp('9999-12-31T23:59:59.999999999Z')", "TIMESTAMP", {"timestamp": [253402300799, 999999999]}),
    ("input.took", "DURATION", {"duration": [-1, -1]}),
    ("duration('1h')", "DURATION", {"duration": [3600, 0]}),
    ("duration('-0.5s')", "DURATION", {"duration": [0, -500000000]}),
    ("duration('90m1.000000001s')", "DURATION", {"duration": [5401, 1]}),
    ("duration('0s')", "DURATION", {"duration": [0, 0]}),
    ("duration('1500us')", "DURATION", {"duration": [0, 1500000]}),
    ("duration('-315576000000s')", "DURATION", {"duration": [-315576000000, 0]}),
    ("duration('90m1.000000001s')", "DURATION", {"duration": [5401, 1]}),
    ("duration('0s')", "DURATION", {"duration": [0, 0]}),
    ("duration('1500us')", "DURATION", {"duration": [0, 1500000]}),
    ("duration('-315576000000s')", "DURATION", {"duration": [-315576000000, 0]}),
    ("[input.at, input.took]", "LIST<DYN>", [{"timestamp": [1767225600, 123456789]}, {"duration": [-1, -1]}]),
    (
        "input.extras",
        "MAP<STRING, DYN>",
        {"map": [["deep", {"map": [["list", [1.0, None, "x", True]]]}], ["n", 1.0]]},
    ),
    ("input.extras.deep.list", "DYN", [1.0, None, "x", True]),
    ("input.list", "LIST<DYN>", []),
    ("input.hint", "DYN", None),
    ("input.wrapped_int", "INT", 4),
    ("input.wrapped_string", "STRING", None),
    ("null", "NULL", None),
    ("[1, 2u, 'x', null, b'x']", "LIST<DYN>", [1, {"uint": 2}, "x", None, {"bytes": "eA=="}]),
    ("[[], {}]", "LIST<DYN>", [[], {"map": []}]),
    ("input.an_int64 > 1 ? dyn(1) : dyn('x')", "DYN", 1),
    ("size(input.strings)", "INT", 2),
    ("'a,b'.split(',')", "LIST<STRING>", ["a", "b"]),
    ("'x'.upperAscii()", "STRING", "X"),
    ("input.inner.deeper.text", "STRING", ""),
    ("has(input.inner)", "BOOL", False),
]


async def test_every_value_keeps_its_type_and_every_digit(evaluator: OperationsEvaluator, kit: SchemaSet) -> None:
    for source, static, value in VALUES:
        found = await evaluated(evaluator, kit, source)
        assert (source, found, type(found)) == (source, value, type(value))
        assert (source, (await evaluator.check(kit, source, {"input": KIT})).type) == (source, static)


async def test_an_expression_gives_the_same_in_every_process(kit: SchemaSet) -> None:
    """The keys of a map have another order in each; nothing of it may show in a request that is made twice."""
    many = {f"key {number}": number for number in range(50)}
    given = {"input": kit.parse_json(KIT, {**GIVEN, "counts": many, "extras": {**many, "list": list(range(50))}})}
    sources = [
        "input.counts",
        "input.extras",
        "[input.counts, input.extras]",
        "'%s %s'.format([input.counts, input.extras])",
        "input.extras.list.map(n, n + 1.0)",
        "input.counts.all(k, k.startsWith('key')) && input.counts.exists_one(k, input.counts[k] == 7)",
        "kit.v1.Kit{counts: input.counts, extras: input.extras}",
        "dyn(input.extras.list).filter(n, n > 40.0)",
    ]
    told = []
    for evaluator in (ChildEvaluator(), ChildEvaluator(), InProcessEvaluator()):
        told.append([await evaluator.evaluate(kit, source, given) for source in sources])
        await evaluator.close()

    assert told[0] == told[1] == told[2]


async def test_messages_come_whole(evaluator: OperationsEvaluator, kit: SchemaSet) -> None:
    assert await evaluated(evaluator, kit, "input.inners") == [inner(kit, text="x")]
    assert await evaluated(evaluator, kit, "input.by_number[5]") == inner(kit, count="7")
    assert await evaluated(evaluator, kit, "input.any") == inner(kit, text="in")
    assert await evaluated(evaluator, kit, "kit.v1.Inner{count: 2}") == inner(kit, count="2")
    assert await evaluated(evaluator, kit, "input.inner") == inner(kit)


FAILING = {
    "1 / 0": "divide by zero",
    "input.an_int64 / 0 == 1": "divide by zero",
    "input.an_int64 * input.an_int64": "overflow",
    "input.counts['none']": "not found",
    "input.extras.none": "not found",
    "input.strings[7]": "index",
    "timestamp('nonsense')": "timestamp",
    "input.any.nothing": "no_such_field",
    "kit.v1.Kit{}.any": "unable to find descriptor",
    "type(1)": "a type",
    "[type(1)]": "a type",
    "dyn('x') + dyn(1) == 1": "overload",
    "duration('1h') * 2": "",
    "input.extras.deep.map(k, k)": "gone over by map or filter: its keys have no order",
    "dyn(input.counts).filter(k, true)": "gone over by map or filter: its keys have no order",
    "dyn([input.counts]).map(m, m.map(k, k))": "gone over by map or filter: its keys have no order",
}


async def test_what_has_no_value_fails_and_is_never_a_value(evaluator: OperationsEvaluator, kit: SchemaSet) -> None:
    for source, said in FAILING.items():
        with pytest.raises((ExpressionFailed, ExpressionRefused), match=f"(?i){said}"):
            await evaluated(evaluator, kit, source)


REFUSED = {
    "": "1:1: Syntax error",
    "1 +": "1:4: Syntax error",
    "nothing": "1:1: undeclared reference to 'nothing'",
    "input.colour": "1:6: undefined field 'colour' not found in struct 'kit.v1.Kit'",
    "has(input.colour)": "undefined field 'colour'",
    "input.an_uint64 > 5": "no matching overload",
    "input.an_int64 ? 1 : 2": "no matching overload",
    "target.a_string": "undeclared reference to 'target.a_string'",
    "@too_many_elements()": "Syntax error",
    "'\ud800'": "it holds half a surrogate pair",
    "1), (2": "Syntax error",
    "input.counts.map(k, k)": "a map cannot be gone over by map or filter: its keys have no order",
    "input.extras.filter(k, true)": "a map cannot be gone over by map or filter",
    "{'a': 1}.map(k, k)": "a map cannot be gone over by map or filter",
    # over a bound
    "[1].all(a, [1].all(b, [1].exists(c, c == a)))": "3 macros inside each other, over the limit of 2",
    " && ".join(["[1].exists(a, a == 1)"] * 5): "5 macros .*, over the limit of 4",
    "'a'.replace('a', 'b').replace('b', 'c').replace('c', 'd')": "3 calls of .*replace.*, over the limit of 2",
    "['a'].join(',').split(',').join(',')": "3 calls of format, join, replace, split, over the limit of 2",
    "(" * 40 + "1" + ")" * 40: "nested too deeply: .* 32 levels",
    " + ".join(["1"] * 40): "nested too deeply",
    "input.inner" + ".deeper" * 60: "nested too deeply",
}


async def test_what_does_not_compile_or_is_over_a_bound_is_refused_with_its_place(
    evaluator: OperationsEvaluator, kit: SchemaSet
) -> None:
    for source, said in REFUSED.items():
        with pytest.raises(ExpressionRefused, match=f"(?i){said}"):
            await evaluator.check(kit, source, {"input": KIT})


@pytest.mark.parametrize("build", ["input.strings.map(s, s + '!')", "input.strings.filter(s, s != '')"])
async def test_lists_are_built_up_to_a_thousand_elements(
    build: str, evaluator: OperationsEvaluator, kit: SchemaSet
) -> None:
    enough = ["x"] * MAX_ELEMENTS

    assert await evaluated(evaluator, kit, f"size({build})", strings=enough) == MAX_ELEMENTS
    with pytest.raises(ExpressionFailed, match="map and filter build lists of at most 1,000 elements"):
        await evaluated(evaluator, kit, f"size({build})", strings=[*enough, "one more"])
    with pytest.raises(ExpressionFailed, match="at most 1,000 elements"):
        await evaluated(evaluator, kit, f"[1].exists(n, size({build}) > n)", strings=[*enough, "one more"])
    with pytest.raises(ExpressionFailed, match="at most 1,000 elements"):
        await evaluated(evaluator, kit, f"[1].map(n, size({build}))", strings=[*enough, "one more"])
    with pytest.raises(ExpressionFailed, match="at most 1,000 elements"):
        await evaluated(evaluator, kit, f"{build}.filter(n, size({build}) > 0)", strings=[*enough, "one more"])


async def test_reading_more_than_a_thousand_elements_is_no_matter(
    evaluator: OperationsEvaluator, kit: SchemaSet
) -> None:
    many = [str(number) for number in range(5_000)]

    assert await evaluated(evaluator, kit, "input.strings.exists(s, s == '4999')", strings=many) is True
    assert await evaluated(evaluator, kit, "input.strings.filter(s, s == '4999')", strings=many) == ["4999"]


async def test_it_is_told_which_variables_an_expression_reads(evaluator: OperationsEvaluator, kit: SchemaSet) -> None:
    variables = {"input": KIT, "one": "kit.v1.Inner", "two": "kit.v1.Inner", "any": "DYN"}

    async def reads(source: str) -> set[str]:
        return set((await evaluator.check(kit, source, variables)).reads)

    assert await reads("1 + 1") == set()
    assert await reads("one.text == input.a_string") == {"one", "input"}
    assert await reads("input.inners.exists(two, two.text == 'x')") == {"input", "two"}  # hidden, and read for nothing
    assert await reads("has(two.deeper.text) || any.what") == {"two", "any"}


async def test_a_filter_decides_whether_there_is_a_value(evaluator: OperationsEvaluator, kit: SchemaSet) -> None:
    given = {"input": kit.parse_json(KIT, GIVEN)}

    async def filtered(filter: str, source: str | None) -> object:
        return await evaluator.evaluate(kit, source, given, filter=filter)

    assert await filtered("input.a_double > 1.0", "input.a_double") == 1.5
    assert await filtered("input.a_double > 2.0", "1 / 0") is NOT_MET
    assert await filtered("true", None) is True
    assert await filtered("false", None) is NOT_MET
    for broken in ("1 / 0 == 1", "input.extras.n", "dyn(null)"):
        with pytest.raises(ExpressionFailed, match="filter: "):
            await filtered(broken, "1")


async def test_nulls_may_come_as_often_as_they_like(evaluator: OperationsEvaluator, kit: SchemaSet) -> None:
    """On Python 3.11 the engine's own way to a null's value takes a reference each time, until the process aborts."""
    nulls = "[" + ", ".join(["null"] * 900) + "]"

    for _ in range(10):
        assert await evaluated(evaluator, kit, nulls) == [None] * 900
        assert await evaluated(evaluator, kit, "input.wrapped_string") is None


async def test_a_message_in_the_making_may_lack_required_fields(evaluator: OperationsEvaluator) -> None:
    from streams.evaluator.protoc import ProtocChild

    text = 'syntax = "proto2"; message A { required int32 a = 1; optional int32 b = 2 [default = 7]; }'
    schemas = SchemaSet.from_bytes(await ProtocChild()({"a.proto": text}, None))
    partial: Any = schemas.new("A")

    assert await evaluator.evaluate(schemas, "target.b + target.a", {"target": partial}) == 7
    assert await evaluator.evaluate(schemas, "target", {"target": partial}) == {"message": ["A", ""]}


async def test_two_editions_of_a_schema_do_not_mix(evaluator: OperationsEvaluator) -> None:
    from streams.evaluator.protoc import ProtocChild

    editions = [
        SchemaSet.from_bytes(await ProtocChild()({"a.proto": f'syntax = "proto3"; message A {{ {fields} }}'}, None))
        for fields in ("string text = 1;", "int64 text = 1;")
    ]
    for _ in range(2):
        for schemas, static in zip(editions, ("STRING", "INT"), strict=True):
            assert (await evaluator.check(schemas, "input.text", {"input": "A"})).type == static
            await evaluator.evaluate(schemas, "input.text", {"input": schemas.new("A")})
