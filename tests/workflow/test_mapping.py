"""Mapping rules at work: reading, writing, skipping, clearing."""

from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.message import Message

from schemas.errors import MappingFailed
from streams.workflow.descriptors import SchemaSet
from streams.workflow.mapping import CompiledMapping, compile_rule
from streams.workflow.rule_text import RuleInvalid
from tests.workflow.samples import mapped


def fields(schemas: SchemaSet, *rules: str, given: Mapping[str, object] | None = None) -> dict[str, Any]:
    """What *rules* build as JSON, without the fields that an empty message shows as well."""
    whole, empty = schemas.to_json(mapped(schemas, *rules, given=given)), schemas.to_json(schemas.new("kit.v1.Kit"))
    assert isinstance(whole, dict)
    assert isinstance(empty, dict)
    return {name: value for name, value in whole.items() if name not in empty or value != empty[name]}


@pytest.mark.spec(24)
def test_reading_through_an_unset_message_skips_the_rule(kit: SchemaSet) -> None:
    rules = ('a_string = "kept"', "a_string = input.inner.deeper.text")

    assert fields(kit, *rules) == {"aString": "kept"}
    assert fields(kit, *rules, given={"inner": {"deeper": {"text": "x"}}}) == {"aString": "x"}


@pytest.mark.spec(25)
@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (('a_string = "default"', "a_string = input.a_string"), {"aString": "default"}),
        (("an_int64 = 5", "an_int64 = input.an_int64"), {"anInt64": "5"}),
        (("a_double = 0.5", "a_double = input.a_double"), {"aDouble": 0.5}),
        (("a_bool = true", "a_bool = input.a_bool"), {"aBool": True}),
        (('color = "RED"', "color = input.color"), {"color": "RED"}),
    ],
)
def test_a_scalar_at_zero_without_presence_is_no_value(
    rules: tuple[str, ...], kept: dict[str, object], kit: SchemaSet
) -> None:
    given = {"aString": "", "anInt64": 0, "aDouble": 0.0, "aBool": False, "color": "COLOR_UNSPECIFIED", "aBytes": ""}

    assert fields(kit, *rules, given=given) == kept


def test_a_scalar_with_presence_is_a_value_at_zero_too(kit: SchemaSet) -> None:
    assert mapped(kit, "maybe = 7", "maybe = input.maybe", given={"maybe": 0}).maybe == 0
    assert mapped(kit, "maybe = 7", "maybe = input.maybe").maybe == 7
    assert mapped(kit, "an_int32 = 7", "an_int32 = input.right", given={"right": 0}).an_int32 == 0


@pytest.mark.spec(26)
def test_an_empty_source_list_clears_the_target(kit: SchemaSet) -> None:
    rules = ('strings += "a"', 'strings += "b"', "strings = input.strings")

    assert fields(kit, *rules) == {}
    assert fields(kit, *rules, given={"strings": ["x"]}) == {"strings": ["x"]}


@pytest.mark.spec(27)
def test_a_list_assigned_twice_is_there_once_and_appended_twice(kit: SchemaSet) -> None:
    given = {"strings": ["x", "y"]}

    assert fields(kit, "strings = input.strings", "strings = input.strings", given=given) == {"strings": ["x", "y"]}
    assert fields(kit, "strings = input.strings", "strings += input.strings", given=given) == {
        "strings": ["x", "y", "x", "y"]
    }


@pytest.mark.spec(28)
@pytest.mark.parametrize("operator", ["=", "+="])
def test_null_clears_the_target_and_makes_no_parent(operator: str, kit: SchemaSet) -> None:
    assert fields(kit, 'strings += "a"', f"strings {operator} null") == {}
    assert not mapped(kit, f"inner.deeper.text {operator} null").HasField("inner")
    built = mapped(kit, 'inner.text = "a"', f"inner.text {operator} null")
    assert built.HasField("inner")
    assert built.inner.text == ""


@pytest.mark.spec(29)
def test_clearing_through_an_unset_parent_does_nothing(kit: SchemaSet) -> None:
    assert not mapped(kit, "-inner.deeper.text").HasField("inner")
    built = mapped(kit, 'inner.deeper.text = "x"', "-inner.deeper")
    assert built.HasField("inner")
    assert not built.inner.HasField("deeper")


@pytest.mark.spec(30)
def test_a_path_into_a_struct_makes_what_is_missing_and_keeps_siblings(kit: SchemaSet) -> None:
    built = fields(
        kit, "extras = input.extras", "extras.a.b.c = 1", 'extras.a.d = "x"', given={"extras": {"a": {"e": 2}}}
    )

    assert built == {"extras": {"a": {"b": {"c": 1}, "d": "x", "e": 2}}}


@pytest.mark.spec(31)
def test_appending_to_a_struct_key_makes_or_extends_a_list(kit: SchemaSet) -> None:
    given = {"strings": ["x", "y"], "extras": {"old": "o", "list": [1], "none": None, "object": {"a": 1}}}
    start = "extras = input.extras"

    assert fields(kit, start, 'extras.old += "n"', given=given)["extras"]["old"] == ["o", "n"]
    assert fields(kit, start, 'extras.list += "n"', given=given)["extras"]["list"] == [1, "n"]
    assert fields(kit, start, "extras.list += input.strings", given=given)["extras"]["list"] == [1, "x", "y"]
    assert fields(kit, start, 'extras.fresh += "n"', given=given)["extras"]["fresh"] == ["n"]
    assert fields(kit, start, 'extras.none += "n"', given=given)["extras"]["none"] == ["n"]
    assert fields(kit, start, 'extras.object += "n"', given=given)["extras"]["object"] == [{"a": 1}, "n"]


@pytest.mark.spec(32)
def test_a_struct_key_missing_midway_fails_and_missing_at_the_end_skips(kit: SchemaSet) -> None:
    given = {"extras": {"a": {"b": "x"}, "scalar": 1, "none": None}}

    assert fields(kit, "a_string = input.extras.a.b", given=given) == {"aString": "x"}
    assert fields(kit, "a_string = input.extras.a.nothing", given=given) == {}
    assert fields(kit, "a_string = input.extras.none", given=given) == {}
    assert fields(kit, "a_string = input.extras2.a.b", given=given) == {}
    for path in ("nothing.b", "scalar.b", "none.b", "a.b.c"):
        with pytest.raises(MappingFailed, match=f"rule 'a_string = input.extras.{path}'") as caught:
            mapped(kit, f"a_string = input.extras.{path}", given=given)
        assert caught.value.step == "s"


def test_a_struct_key_is_replaced_removed_and_never_put_below_a_scalar(kit: SchemaSet) -> None:
    given = {"extras": {"a": {"b": 1}, "s": "x"}}
    start = "extras = input.extras"

    assert fields(kit, start, "extras.a = 2", given=given)["extras"] == {"a": 2, "s": "x"}
    assert fields(kit, start, "-extras.a", given=given)["extras"] == {"s": "x"}
    assert fields(kit, start, "extras.a.b = null", given=given)["extras"] == {"a": {}, "s": "x"}
    assert fields(kit, start, "-extras.no.such.key", "-extras.s.t", given=given)["extras"] == given["extras"]
    with pytest.raises(MappingFailed, match='key "s" holds no object'):
        mapped(kit, start, "extras.s.t = 1", given=given)


def test_what_a_struct_holds_becomes_typed_by_its_value(kit: SchemaSet) -> None:
    given = {
        "extras": {
            "n": 7,
            "t": "x",
            "b": True,
            "list": ["x", "y"],
            "mixed": ["x", None],
            "o": {"text": "i", "count": "3"},
        }
    }

    assert fields(kit, "an_int64 = input.extras.n", given=given) == {"anInt64": "7"}
    assert fields(kit, "a_string = input.extras.t", given=given) == {"aString": "x"}
    assert fields(kit, "a_bool = input.extras.b", given=given) == {"aBool": True}
    assert fields(kit, "strings = input.extras.list", given=given) == {"strings": ["x", "y"]}
    assert fields(kit, "strings += input.extras.t", given=given) == {"strings": ["x"]}
    assert fields(kit, "inner = input.extras.o", given=given) == {"inner": {"text": "i", "count": "3"}}
    assert fields(kit, "extras.copy = input.extras.o", given=given) == {"extras": {"copy": {"text": "i", "count": "3"}}}
    assert fields(kit, "extras.copy = input.extras.mixed", given=given) == {"extras": {"copy": ["x", None]}}
    assert fields(kit, "extras = input.extras.o", given=given) == {"extras": {"text": "i", "count": "3"}}
    for rule in (
        "a_string = input.extras.list",
        "strings = input.extras.t",
        "a_string = input.extras.o",
        "an_int64 = input.extras.b",
        "strings = input.extras.mixed",
        "labels = input.extras.o",
    ):
        with pytest.raises(MappingFailed):
            mapped(kit, rule, given=given)


def test_an_empty_list_from_a_struct_clears_a_single_field(kit: SchemaSet) -> None:
    assert fields(kit, 'a_string = "x"', "a_string = input.extras.list", given={"extras": {"list": []}}) == {}


def test_a_value_and_a_list_value_give_up_what_they_hold(kit: SchemaSet) -> None:
    given = {"hint": 4, "list": [1, 2], "hints": ["a", "b"]}

    assert fields(kit, "an_int32 = input.hint", given=given) == {"anInt32": 4}
    assert fields(kit, "an_int32 = 1", "an_int32 = input.hint", given={"hint": None}) == {"anInt32": 1}
    assert fields(kit, "hint = input.hint", given={"hint": None}) == {"hint": None}
    assert fields(kit, "ints = input.list", given=given) == {"ints": [1, 2]}
    assert fields(kit, "list = input.list", given=given) == {"list": [1, 2]}
    assert fields(kit, "strings = input.hints", given=given) == {"strings": ["a", "b"]}
    assert fields(kit, "hints = input.hints", given=given) == {"hints": ["a", "b"]}
    assert fields(kit, "hints = input.strings", given={"strings": ["a"]}) == {"hints": ["a"]}
    assert fields(kit, "hint = input.a_string", given={"aString": "x"}) == {"hint": "x"}
    assert fields(kit, "hint = input.inner", given={"inner": {"text": "x"}}) == {"hint": {"text": "x", "count": "0"}}
    assert fields(kit, "extras.k = input.list", given=given) == {"extras": {"k": [1, 2]}}
    with pytest.raises(MappingFailed, match="list of"):
        mapped(kit, "a_string = input.list", given=given)


@pytest.mark.parametrize(
    "path", ["hint.string_value", "list.values", "labels.key", "inners.text", "hint.x.y", "a_string.x"]
)
def test_no_rule_leads_into_a_value_a_map_a_list_or_a_scalar(path: str, kit: SchemaSet) -> None:
    with pytest.raises(RuleInvalid):
        mapped(kit, f"a_string = input.{path}")
    with pytest.raises(RuleInvalid):
        mapped(kit, f'{path} = "x"')


def test_messages_of_one_type_are_copied_and_never_shared(kit: SchemaSet) -> None:
    given = {"inner": {"text": "x"}, "inners": [{"text": "a"}, {"text": "b"}], "nothing": {}}

    built = mapped(
        kit,
        "inner = input.inner",
        'inner.text = "changed"',
        "inners = input.inners",
        "inners += input.inner",
        "nothing = input.nothing",
        given=given,
    )

    assert fields(kit, "inner = input.inner", given=given) == {"inner": {"text": "x", "count": "0"}}
    assert [inner.text for inner in built.inners] == ["a", "b", "x"]
    assert built.inner.text == "changed"
    assert built.HasField("nothing")


def test_a_whole_step_is_a_source(kit: SchemaSet) -> None:
    built = mapped(kit, "third = input", given={"text": "x"}, given_type="kit.v1.Inner")

    assert built.third.text == "x"


def test_a_message_becomes_a_struct_by_its_json_and_a_struct_a_message_by_its_names(kit: SchemaSet) -> None:
    given = {"inner": {"text": "x", "count": "9007199254740993"}, "extras": {"text": "y", "count": 3, "unknown": 1}}

    assert fields(kit, "extras = input.inner", given=given) == {"extras": {"text": "x", "count": "9007199254740993"}}
    assert fields(kit, "extras.in = input.inner", given=given)["extras"]["in"]["count"] == "9007199254740993"
    assert fields(kit, "inner = input.extras", given=given) == {"inner": {"text": "y", "count": "3"}}
    with pytest.raises(MappingFailed, match="/count takes an integer"):
        mapped(kit, "inner = input.extras", given={"extras": {"count": 1.5}})


@pytest.mark.parametrize(
    "rule",
    [
        "extras = input.at",
        "at = input.extras",
        "inner = input.at",
        "at = input.took",
        "inner = input.a_string",
        "at = input.a_string",
        "wrapped_int = input.an_int64",
    ],
)
def test_messages_that_never_fit_are_refused_when_compiled(rule: str, kit: SchemaSet) -> None:
    with pytest.raises(RuleInvalid):
        mapped(kit, rule)


def test_a_map_is_copied_between_fields_of_equal_key_and_value_types_only(kit: SchemaSet) -> None:
    given = {"labels": {"a": "1"}, "moreLabels": {"b": "2"}, "byNumber": {"7": {"text": "x"}}, "byTruth": {"true": 4}}

    assert fields(kit, "labels = input.more_labels", given=given) == {"labels": {"b": "2"}}
    assert fields(kit, "labels = input.labels", "labels += input.more_labels", given=given) == {
        "labels": {"a": "1", "b": "2"}
    }
    assert fields(kit, "labels = input.labels", "labels = input.more_labels", given=given) == {"labels": {"b": "2"}}
    assert fields(kit, "labels = input.labels", "labels = input.more_labels", given={"labels": {"a": "1"}}) == {}
    assert fields(kit, "by_number = input.by_number", given=given)["byNumber"]["7"]["text"] == "x"
    assert fields(kit, "extras.m = input.by_truth", given=given) == {"extras": {"m": {"true": 4}}}
    for rule in (
        "counts = input.labels",
        "labels = input.by_number",
        "labels = input.a_string",
        "inners = input.by_number",
        "extras = input.labels",
    ):
        with pytest.raises(RuleInvalid):
            mapped(kit, rule)


def any_of(kit: SchemaSet, name: str, value: object) -> dict[str, object]:
    packed = kit.to_json(kit.parse_json("google.protobuf.Any", {"@type": f"type.googleapis.com/{name}", **value}))  # type: ignore[dict-item]
    assert isinstance(packed, dict)
    return packed


def test_an_any_is_walked_copied_packed_and_unpacked(kit: SchemaSet) -> None:
    given = {"any": any_of(kit, "kit.v1.Inner", {"text": "x", "deeper": {"count": 4}}), "inner": {"text": "i"}}

    assert fields(kit, "a_string = input.any.text", given=given) == {"aString": "x"}
    assert fields(kit, "an_int32 = input.any.deeper.count", given=given) == {"anInt32": 4}
    assert fields(kit, "an_int32 = input.any.deeper.deeper.count", given=given) == {}
    assert fields(kit, "a_string = input.any.text") == {}
    assert fields(kit, "inner = input.any", given=given)["inner"]["text"] == "x"
    assert fields(kit, "any = input.any", given=given)["any"]["deeper"] == {"text": "", "count": "4"}
    assert fields(kit, "any = input.inner", given=given)["any"]["@type"] == "type.googleapis.com/kit.v1.Inner"
    assert fields(kit, "anys += input.inner", "anys += input.any", given=given)["anys"][1]["text"] == "x"
    assert fields(kit, "extras.k = input.any", given=given)["extras"]["k"]["text"] == "x"
    with pytest.raises(MappingFailed, match="unknown field"):
        mapped(kit, "a_string = input.any.nothing", given=given)
    with pytest.raises(MappingFailed, match="a message"):
        mapped(kit, "a_string = input.any.deeper", given=given)
    for rule in ('any = "x"', "any = input.a_string", 'any.text = "x"'):
        with pytest.raises(RuleInvalid):
            mapped(kit, rule)


@pytest.mark.spec(35)
@pytest.mark.parametrize("rule", ["a_string = input.any.text", "inner = input.any", "strings = input.any.text"])
def test_an_any_of_an_unknown_type_fails_the_rule_that_looks_inside(rule: str, kit: SchemaSet) -> None:
    source: Any = kit.new("kit.v1.Kit")
    source.any.type_url = "type.googleapis.com/other.Thing"

    with pytest.raises(MappingFailed, match=r"other\.Thing") as caught:
        build(kit, rule, source)

    assert rule in str(caught.value)


def test_an_any_that_does_not_hold_its_type_fails_the_rule(kit: SchemaSet) -> None:
    source: Any = kit.new("kit.v1.Kit")
    source.any.type_url = "type.googleapis.com/kit.v1.Inner"
    source.any.value = b"\x0a\xff"

    with pytest.raises(MappingFailed, match="does not hold"):
        build(kit, "a_string = input.any.text", source)


def build(kit: SchemaSet, rule: str, source: Message) -> Message:
    descriptor = kit.message("kit.v1.Kit")
    compiled = compile_rule(rule, descriptor, {"input": descriptor}, kit)
    return CompiledMapping.into(descriptor, [compiled]).build({"input": source}, step="s")


@pytest.mark.spec(36)
def test_text_with_operators_in_it_is_written_as_it_stands(kit: SchemaSet) -> None:
    assert fields(kit, 'a_string = "a+=b"') == {"aString": "a+=b"}


def test_rules_run_in_order_and_later_ones_see_what_earlier_ones_wrote(kit: SchemaSet) -> None:
    assert fields(kit, 'a_string = "a"', 'a_string = "b"', "-strings", 'strings += "x"') == {
        "aString": "b",
        "strings": ["x"],
    }


def test_the_members_of_a_oneof_exclude_each_other(kit: SchemaSet) -> None:
    assert fields(kit, 'left = "l"', "right = 4") == {"right": 4}


def test_a_failing_rule_names_its_text_and_leaves_the_source_alone(kit: SchemaSet) -> None:
    with pytest.raises(MappingFailed, match=r"MAPPING: rule 'an_int32 = input.a_string': \"x\" is not an integer"):
        mapped(kit, "an_int32 = input.a_string", given={"aString": "x"})
