"""What rules of schemas say about a message: the same in a child process and in this one."""

import asyncio
import gc
import re
import weakref
from pathlib import Path

import pytest

from streams.evaluator.evaluators import OperationsEvaluator
from streams.evaluator.operations import LoadedSchemas
from streams.evaluator.protoc import ProtocChild
from streams.evaluator.rule_operations import check, reject
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Rejection, RuleFailed

DATA = Path(__file__).with_name("data")
RULES = "ruled.v1.Rules"
SOUND: dict[str, object] = {"name": "n", "count": 1, "needed": [0], "one": "ab", "must": {}}


@pytest.fixture(scope="session")
def ruled() -> SchemaSet:
    """`ruled.v1.Rules` has rules of every kind."""
    sources = {name: (DATA / name).read_text() for name in ("ruled.proto", "even.proto")}
    return SchemaSet.from_bytes(asyncio.run(ProtocChild()(sources, None)))


async def rejected(
    evaluator: OperationsEvaluator, schemas: SchemaSet, full_name: str, given: dict[str, object]
) -> list[tuple[str, str, str]]:
    """Path, rule and text of every violation."""
    rejections = await evaluator.rejections(schemas, schemas.parse_json(full_name, given))
    assert rejections.keys() <= {None}
    found = rejections.get(None, Rejection((), 0))
    assert found.count == len(found.violations)
    return [(violation.path, violation.rule_id, violation.message) for violation in found.violations]


VIOLATIONS: list[tuple[dict[str, object], list[tuple[str, str]]]] = [
    ({}, []),
    ({"name": ""}, [("name", "required")]),
    ({"must": None}, [("must", "required")]),
    ({"email": "x"}, [("email", "string.email")]),
    ({"email": ""}, []),
    ({"id": "1"}, [("id", "string.uuid")]),
    ({"count": 0}, [("count", "int32.gte")]),  # without presence: checked at zero, too
    ({"maybe": 0}, [("maybe", "int32.gte")]),
    ({"maybe": 1}, []),
    ({"big": "18446744073709551614"}, []),
    ({"big": "18446744073709551615"}, [("big", "uint64.lte")]),
    ({"ratio": 1.5}, [("ratio", "double.lt")]),
    ({"ratio": "Infinity"}, [("ratio", "double.lt"), ("ratio", "double.finite")]),
    ({"data": "AAAA"}, [("data", "bytes.max_len")]),
    ({"color": 7}, [("color", "enum.defined_only")]),
    ({"among": 4}, [("among", "int32.in")]),
    ({"tags": ["aa", "bb", "cc"]}, [("tags", "repeated.max_items")]),
    ({"tags": ["aa", "aa"]}, [("tags", "repeated.unique")]),
    ({"tags": ["aa", "b"]}, [("tags[1]", "string.min_len")]),
    ({"needed": []}, [("needed", "repeated.min_items")]),  # sizes are checked where nothing is there
    ({"stock": {"aa": 1, "bb": 1, "cc": 1}}, [("stock", "map.max_pairs")]),
    ({"stock": {"k": 1}}, [('stock["k"]#key', "string.min_len")]),
    ({"stock": {'k"ä': 0}}, [('stock["k\\"ä"]', "int32.gt")]),
    ({"byNumber": {"-5": {"code": "a"}}}, [("by_number[-5].code", "string.pattern")]),
    ({"byBool": {"true": {"code": "a"}}}, [("by_bool[true].code", "string.pattern")]),
    ({"at": "1970-01-01T00:01:40Z"}, [("at", "timestamp.lt")]),
    ({"at": "1970-01-01T00:01:39.999999999Z"}, []),
    ({"took": "0.999999999s"}, [("took", "duration.gte")]),
    ({"wrapped": "ab"}, [("wrapped", "string.len")]),
    ({"wrapped": None}, []),
    ({"inner": {"a": 2, "b": 1}}, [("inner", "inner.sum")]),
    ({"inners": [{}, {}, {"code": "x"}]}, [("inners[2].code", "string.pattern")]),
    ({"self": {**SOUND, "inner": {"code": "x"}}}, [("self.inner.code", "string.pattern")]),
    ({"one": None}, [("choice", "required")]),
    ({"one": "a"}, [("one", "string.min_len")]),
    ({"one": None, "two": 0}, []),
    ({"odd": "bad"}, [("odd", "odd.text")]),
    ({"plain": "no"}, [("plain", "this != 'no'")]),
    ({"even": 3}, [("even", "int32.even")]),
    ({"even": 4}, []),
    ({"skipped": "x"}, []),
    ({"left": "l", "right": "r"}, [("", "message.oneof")]),
    ({"low": 2, "high": 1}, [("", "this.low <= this.high")]),
    ({"name": "", "count": 0, "even": 1}, [("name", "required"), ("count", "int32.gte"), ("even", "int32.even")]),
]


async def test_every_kind_of_rule_is_applied_and_its_place_told(
    evaluator: OperationsEvaluator, ruled: SchemaSet
) -> None:
    for given, expected in VIOLATIONS:
        found = await rejected(evaluator, ruled, RULES, {**SOUND, **given})
        assert (given, [violation[:2] for violation in found]) == (given, expected)
        assert all(message for *_, message in found)


async def test_the_text_of_a_rejection_is_path_and_message_of_each_violation(
    evaluator: OperationsEvaluator, ruled: SchemaSet
) -> None:
    given = ruled.parse_json(RULES, {**SOUND, "odd": "bad", "even": 3, "inner": {"a": 1}, "left": "l", "right": "r"})

    rejection = (await evaluator.rejections(ruled, given))[None]

    assert str(rejection) == (
        "only one of left, right can be set; inner: parts must be in order; odd: it is bad: bad; even: must be even"
    )


async def test_a_rejection_lists_the_first_hundred_and_counts_all(
    evaluator: OperationsEvaluator, ruled: SchemaSet
) -> None:
    given = ruled.parse_json(RULES, {**SOUND, "inners": [{"code": "x"}] * 150})

    rejection = (await evaluator.rejections(ruled, given))[None]

    assert (len(rejection.violations), rejection.count) == (100, 150)
    assert str(rejection).endswith("; and 50 more")


async def test_what_is_broken_in_items_is_told_by_item(evaluator: OperationsEvaluator, ruled: SchemaSet) -> None:
    inners: list[dict[str, object]] = [{} for _ in range(21)]
    inners[3], inners[5] = {"code": "x", "a": 1}, {"b": 9}
    given = ruled.parse_json("ruled.v1.Batch", {"page": {"inners": inners}})

    rejections = await evaluator.rejections(ruled, given, items=("page", "inners"))

    assert {place: str(rejection) for place, rejection in rejections.items()} == {
        None: "page.inners: must contain no more than 20 item(s)",
        3: "parts must be in order; code: does not match regex pattern `^[A-Z]*$`",
        5: "not nine",
    }
    whole = await evaluator.rejections(ruled, given)
    assert [violation.path for violation in whole[None].violations] == [
        "page.inners",
        "page.inners[3]",
        "page.inners[3].code",
        "page.inners[5]",
    ]


async def test_a_rule_that_gives_no_answer_is_neither_kept_nor_broken(
    evaluator: OperationsEvaluator, ruled: SchemaSet
) -> None:
    assert await rejected(evaluator, ruled, "ruled.v1.Division", {"by": 2}) == []
    with pytest.raises(RuleFailed, match=r"div: .*divide by zero"):
        await rejected(evaluator, ruled, "ruled.v1.Division", {"by": 0})
    assert await evaluator.broken_rules(ruled, "ruled.v1.Division") == []  # an empty message proves nothing


BROKEN = {
    "string s = 1 [(buf.validate.field).cel = {id: 'x', expression: 'this +'}];": ("s", "expression x: .*Syntax error"),
    "string s = 1 [(buf.validate.field).string.pattern = '('];": ("s", r"string.pattern: missing \)"),
    "int32 n = 1 [(buf.validate.field).string.min_len = 3];": ("n", 'FieldRules.string" on field "t.A.n"'),
    "int32 n = 1 [(buf.validate.field).cel = {id: 'x', expression: 'no(this)'}];": ("n", "No overloads"),
    "int32 n = 1 [(buf.validate.field).cel = {id: 'x', expression: 'that == 3'}];": ("n", '"that"'),
    "int32 n = 1 [(buf.validate.field).cel = {id: 'x', expression: 'this + 3'}];": ("n", "either bool or string"),
    "option (buf.validate.message).cel = {id: 'x', expression: 'this.'}; int32 n = 1;": ("", "Syntax error"),
    "option (buf.validate.message).oneof = {fields: ['zz']}; int32 n = 1;": ("", "field zz not found in message t.A"),
    "repeated A s = 1 [(buf.validate.field).repeated.items.cel = {id: 'x', expression: '('}];": ("s", "items rules"),
    "map<string, A> s = 1 [(buf.validate.field).map.keys.cel = {id: 'x', expression: '('}];": ("s", "Syntax error"),
}


async def schema_of(body: str) -> SchemaSet:
    text = f'syntax = "proto3"; package t; import "buf/validate/validate.proto"; message A {{ {body} }}'
    return SchemaSet.from_bytes(await ProtocChild()({"a.proto": text}, None))


async def test_predefined_rules_hold_where_their_file_is_imported_for_its_options_alone(
    evaluator: OperationsEvaluator,
) -> None:
    text = """edition = "2024"; package t;
    import option "buf/validate/validate.proto"; import option "even.proto";
    message A { int32 n = 1 [(buf.validate.field).int32.(even.v1.even) = true]; }"""
    sources = {"a.proto": text, "even.proto": (DATA / "even.proto").read_text()}
    schemas = SchemaSet.from_bytes(await ProtocChild()(sources, None))

    assert await evaluator.broken_rules(schemas, "t.A") == []
    assert await rejected(evaluator, schemas, "t.A", {"n": 3}) == [("n", "int32.even", "must be even")]
    assert await rejected(evaluator, schemas, "t.A", {"n": 4}) == []


async def test_broken_rules_are_found_without_any_data(evaluator: OperationsEvaluator) -> None:
    for body, (field, said) in BROKEN.items():
        [broken] = await evaluator.broken_rules(schemas := await schema_of(body), "t.A")
        assert (body, broken.type, broken.field) == (body, "t.A", field)
        assert re.search(said, str(broken)), str(broken)
        assert [broken] == await evaluator.broken_rules(schemas, "t.A")


async def test_a_schema_that_makes_room_takes_its_validator_along(ruled: SchemaSet) -> None:
    """At once: it is memory that Python does not count, so that its collector would come late."""
    schemas = LoadedSchemas(most=1)
    gc.collect()
    gc.disable()
    try:
        schemas.load("first", ruled.to_bytes())
        first = weakref.ref(schemas.get("first"))
        for operation, more in ((check, []), (reject, [b""])):
            operation(schemas.get("first"), {"type": RULES, "items": []}, more)
        schemas.load("second", ruled.to_bytes())
        assert first() is None
    finally:
        gc.enable()
