"""Messages from JSON and to JSON: what is accepted, what is refused and where, and that both agree."""

import json
import math
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import InputInvalid
from streams.evaluator.protoc import ProtocChild
from streams.workflow.descriptors import SchemaSet
from streams.workflow.limits import MAX_DEPTH
from streams.workflow.wire_faults import fault_in_wire
from tests.workflow.samples import DATA, descriptor_set

KIT = "kit.v1.Kit"


@pytest.fixture(scope="module")
def parcels() -> SchemaSet:
    return SchemaSet.from_bytes(descriptor_set("parcel_full"))


@pytest.fixture(scope="module")
def trees() -> SchemaSet:
    return SchemaSet.from_bytes(descriptor_set("recur"))


def test_an_empty_message_shows_every_field_without_presence(parcels: SchemaSet) -> None:
    assert parcels.to_json(parcels.new("depot.Parcel")) == {
        "label": "",
        "serial": "0",
        "checksum": "0",
        "ratio": 0.0,
        "tare": 0.0,
        "fragile": False,
        "photo": "",
        "lane": "LANE_UNSPECIFIED",
        "tags": [],
        "counts": {},
        "stock": 0,
    }


WHOLE: dict[str, object] = {
    "anInt32": -5,
    "anInt64": "9007199254740993",
    "anUint64": "18446744073709551615",
    "aFloat": 0.1,
    "aDouble": "-Infinity",
    "aBool": True,
    "aString": "left\\u0000right é 𝔸",
    "aBytes": "AAH/",
    "color": "RED",
    "inner": {"text": "x", "count": "0"},
    "maybe": 0,
    "right": 0,
    "strings": ["a", ""],
    "longs": ["1", "-9223372036854775808"],
    "colors": ["BLUE", 7],
    "inners": [{"text": "", "count": "0"}],
    "labels": {"a": "1", "b": ""},
    "byNumber": {"-1": {"text": "", "count": "0"}, "7": {"text": "x", "count": "0"}},
    "byTruth": {"false": "1", "true": "2"},
    "extras": {"a": [1, 1.5, "x", None, True, {"b": {}}], "z": None},
    "hint": None,
    "list": [[], {}],
    "any": {"@type": "type.googleapis.com/kit.v1.Inner", "text": "x", "count": "0"},
    "anys": [{"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"}, {}],
    "at": "2026-01-02T03:04:05.123456789Z",
    "took": "-3.100s",
    "mask": "aB,c.dE",
    "wrappedString": "",
    "wrappedInt": "5",
    "nothing": {},
}


def test_what_is_read_is_written_the_same(kit: SchemaSet) -> None:
    message = kit.parse_json(KIT, WHOLE)
    written = kit.to_json(message)

    assert isinstance(written, dict)
    assert {name: written[name] for name in WHOLE} == WHOLE
    assert kit.parse_json(KIT, written) == message


def test_keys_of_maps_and_structs_come_sorted(kit: SchemaSet) -> None:
    message = kit.parse_json(
        KIT, {"labels": {"b": "", "a": ""}, "byNumber": {"10": {}, "9": {}}, "extras": {"z": 1, "y": 2}}
    )
    written: Any = kit.to_json(message)

    assert [list(written[name]) for name in ("labels", "byNumber", "extras")] == [["a", "b"], ["9", "10"], ["y", "z"]]


@pytest.mark.parametrize("name", ["anInt64", "an_int64"])
@pytest.mark.parametrize("value", [9007199254740993, "9007199254740993", "0009007199254740993"])
def test_names_may_be_either_and_64_bit_integers_numbers_or_text(name: str, value: object, kit: SchemaSet) -> None:
    message: Any = kit.parse_json(KIT, {name: value})

    assert message.an_int64 == 9007199254740993


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"nobody": 1}, "/nobody"),
        ({"inner": {"txet": "x"}}, "/inner/txet"),
        ({"inners": [{}, {"a/b~c": 1}]}, "/inners/1/a~1b~0c"),
        ({"byNumber": {"7": {"x": 1}}}, "/byNumber/7/x"),
        ([], ""),
        (None, ""),
        ({"anInt32": 2**31}, "/anInt32"),
        ({"anInt32": 1.5}, "/anInt32"),
        ({"anInt32": True}, "/anInt32"),
        ({"anInt32": "0x1"}, "/anInt32"),
        ({"anInt32": "1e3"}, "/anInt32"),
        ({"anInt32": [1]}, "/anInt32"),
        ({"anUint64": -1}, "/anUint64"),
        ({"anInt64": "9" * 5000}, "/anInt64"),
        ({"anInt64": 10**400}, "/anInt64"),
        ({"aDouble": 10**400}, "/aDouble"),
        ({"aDouble": float("inf")}, "/aDouble"),
        ({"aDouble": "inf"}, "/aDouble"),
        ({"aDouble": "1_0"}, "/aDouble"),
        ({"aDouble": False}, "/aDouble"),
        ({"aFloat": 1e39}, "/aFloat"),
        ({"aBool": "true"}, "/aBool"),
        ({"aBool": 1}, "/aBool"),
        ({"aString": 5}, "/aString"),
        ({"aString": "a\0b"}, "/aString"),
        ({"aString": "a\ud800"}, "/aString"),
        ({"aBytes": "AB*="}, "/aBytes"),
        ({"aBytes": "A"}, "/aBytes"),
        ({"aBytes": "é"}, "/aBytes"),
        ({"color": "GREEN"}, "/color"),
        ({"color": True}, "/color"),
        ({"color": 2**31}, "/color"),
        ({"strings": "a"}, "/strings"),
        ({"strings": ["a", None]}, "/strings/1"),
        ({"inners": [None]}, "/inners/0"),
        ({"labels": []}, "/labels"),
        ({"labels": {"a": None}}, "/labels/a"),
        ({"labels": {"a\0": "x"}}, "/labels/a\0"),
        ({"byNumber": {"01": {}}}, "/byNumber/01"),
        ({"byNumber": {"x": {}}}, "/byNumber/x"),
        ({"byTruth": {"True": 1}}, "/byTruth/True"),
        ({"left": "a", "right": 1}, "/right"),
        ({"anInt64": 1, "an_int64": 1}, "/an_int64"),
        ({"extras": []}, "/extras"),
        ({"extras": {"k\0": 1}}, "/extras/k\0"),
        ({"extras": {"a": {"b": [0, float("nan")]}}}, "/extras/a/b/1"),
        ({"extras": {"a": 2**53 + 1}}, "/extras/a"),
        ({"extras": {"a": 10**400}}, "/extras/a"),
        ({"hint": float("inf")}, "/hint"),
        ({"list": {}}, "/list"),
        ({"any": {"text": "x"}}, "/any"),
        ({"any": {"@type": "kit.v1.Inner"}}, "/any"),
        ({"any": {"@type": "x/no.Such"}}, "/any/@type"),
        ({"any": {"@type": "x/\ud800"}}, "/any"),
        ({"any": {"@type": "x/kit.v1.Inner", "txet": 1}}, "/any/txet"),
        ({"any": {"@type": "x/google.protobuf.Duration", "seconds": 1}}, "/any"),
        ({"any": 5}, "/any"),
        ({"at": "2026-13-01T00:00:00Z"}, "/at"),
        ({"at": "2026-1-1T0:0:0Z"}, "/at"),
        ({"at": "10000-01-01T00:00:00Z"}, "/at"),
        ({"at": "0001-01-01T00:00:00+14:00"}, "/at"),
        ({"at": 5}, "/at"),
        ({"took": "1"}, "/took"),
        ({"took": "999999999999s"}, "/took"),
        ({"mask": "a_b"}, "/mask"),
        ({"mask": 5}, "/mask"),
        ({"mask": ","}, "/mask"),
        ({"wrappedInt": {}}, "/wrappedInt"),
        ({"nothing": {"a": 1}}, "/nothing/a"),
        ({"x" * 5000: 1}, "/" + "x" * 200 + "..."),
    ],
)
def test_what_does_not_fit_is_refused_with_its_pointer(value: object, pointer: str, kit: SchemaSet) -> None:
    with pytest.raises(InputInvalid) as caught:
        kit.parse_json(KIT, value)

    assert caught.value.pointer == pointer


def test_null_stands_for_a_field_left_out(kit: SchemaSet) -> None:
    value = {"aString": None, "inner": None, "strings": None, "labels": None, "left": None, "right": 1, "maybe": None}

    assert kit.parse_json(KIT, value) == kit.parse_json(KIT, {"right": 1})


def test_what_was_made_lenient_drops_unknown_members_only(kit: SchemaSet) -> None:
    assert kit.to_json(kit.parse_json("kit.v1.Inner", {"text": "x", "more": 1}, drop_unknown=True)) == {
        "text": "x",
        "count": "0",
    }
    with pytest.raises(InputInvalid):
        kit.parse_json("kit.v1.Inner", {"text": 5}, drop_unknown=True)


def nested_node(levels: int) -> dict[str, object]:
    node: dict[str, object] = {"name": "leaf"}
    for _ in range(levels - 1):
        node = {"name": "", "children": [node]}
    return node


def test_depth_is_bounded_alike_in_both_directions(trees: SchemaSet) -> None:
    deepest = nested_node(MAX_DEPTH // 2)  # each level is an object in an array
    message = trees.parse_json("tree.Node", deepest)
    assert trees.parse_json("tree.Node", trees.to_json(message)) == message

    with pytest.raises(InputInvalid, match="nested deeper"):
        trees.parse_json("tree.Node", nested_node(MAX_DEPTH // 2 + 1))
    with pytest.raises(InputInvalid, match="nested deeper"):
        trees.parse_json("tree.Node", nested_node(200_000))
    with pytest.raises(InputInvalid, match="nested deeper"):
        trees.parse_json("tree.Node", {"notes": nested_node(200_000)})

    built: Any = trees.new("tree.Node")
    node = built
    for _ in range(MAX_DEPTH):
        node = node.children.add()
    with pytest.raises(InputInvalid, match="nested deeper"):
        trees.to_json(built)


REPLIES: dict[str, str] = json.loads((DATA / "step_replies.json").read_text())


@pytest.mark.parametrize(
    "name", ["any_of_workflow_type", "enum_number_7", "nan_in_double", "empty", "unknown_field_300", "wrong_wire_type"]
)
def test_a_reply_with_a_json_form_survives_being_kept(name: str, parcels: SchemaSet) -> None:
    message = parcels.from_wire("depot.Parcel", bytes.fromhex(REPLIES[name]))

    again = parcels.parse_json("depot.Parcel", parcels.to_json(message))

    known: Any = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    assert again.SerializeToString(deterministic=True) == known.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("name", "pointer"),
    [
        ("any_of_unknown_type", "/attachment"),
        ("timestamp_year_10000", "/packedAt"),
        ("nan_in_struct", "/extras/score"),
        ("nul_in_string", "/label"),
    ],
)
def test_a_reply_without_a_json_form_is_refused_naming_the_field(name: str, pointer: str, parcels: SchemaSet) -> None:
    message = parcels.from_wire("depot.Parcel", bytes.fromhex(REPLIES[name]))

    with pytest.raises(InputInvalid) as caught:
        parcels.to_json(message)

    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (bytes.fromhex(REPLIES["bad_utf8_in_string"]), "/label is not UTF-8"),
        (bytes.fromhex(REPLIES["cut_short"]), "/label is cut short"),
        (b"\x10\xff", "/serial is cut short"),
        (b"\x21\x00", "/ratio is cut short"),
        (b"\x0a", "/label is cut short"),
        (b"\x10" + b"\xff" * 10, "/serial has a number that does not end"),
        (b"\x0f", "/label has the wire type 7, which there is not"),
        (b"\xff", "the message is cut short"),
        (b"\x82\x01\x05\x0a\x03\x61\xff\x62", "/counts/key is not UTF-8"),
        (b"\x62\x07\x0a\x05\x0a\x01\xff\x12\x00", "/extras/fields/key is not UTF-8"),
        (b"\x13", "Error parsing"),
    ],
)
def test_a_reply_that_is_no_such_message_is_refused_naming_the_field(
    data: bytes, says: str, parcels: SchemaSet
) -> None:
    with pytest.raises(InputInvalid, match=f"the bytes are no depot.Parcel: {says}"):
        parcels.from_wire("depot.Parcel", data)


@given(data=st.binary(max_size=40))
def test_nothing_but_a_sentence_comes_of_looking_for_a_fault(data: bytes, parcels: SchemaSet) -> None:
    said = fault_in_wire(parcels.message("depot.Parcel"), data)
    assert fault_in_wire(parcels.message("depot.Parcel"), b"\x13\x0a\x01\xff\x14") is None, "it is in an unknown group"
    try:
        parcels.from_wire("depot.Parcel", data)
    except InputInvalid:
        return
    assert said is None


async def test_text_that_is_not_utf8_is_refused_where_proto2_lets_it_pass(protoc: ProtocChild) -> None:
    sources = {"a.proto": 'syntax = "proto2"; message A { optional string a = 1; map<string, string> m = 2; }'}
    schemas = SchemaSet.from_bytes(await protoc(sources, None))

    value, key = b"\x0a\x02\xc3\x28", b"\x12\x08\x0a\x02\xc3\x28\x12\x02ok\x12\x06\x0a\x01k\x12\x01v"
    for data in (value, key):
        with pytest.raises(InputInvalid, match=r"/(a|m/.*) is not UTF-8"):
            schemas.to_json(schemas.from_wire("A", data))


@pytest.mark.parametrize("path", ["a,b", "", "A", "a_1", "a_", "é", "a\x01"])
def test_a_mask_whose_text_would_be_read_back_differently_is_refused(path: str, kit: SchemaSet) -> None:
    message: Any = kit.new(KIT)
    message.mask.paths.append(path)

    with pytest.raises(InputInvalid):
        kit.to_json(message)


# --- compared with the Protobuf library's own reader and writer

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | DOUBLES | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
INNERS = st.fixed_dictionaries({}, optional={"text": TEXTS, "count": st.integers(-(2**63), 2**63 - 1)})
KITS = st.fixed_dictionaries(
    {},
    optional={
        "anInt32": st.integers(-(2**31), 2**31 - 1),
        "an_int64": st.integers(-(2**63), 2**63 - 1).map(str),
        "anUint64": st.integers(0, 2**64 - 1),
        "aFloat": st.floats(width=32, allow_nan=False),
        "aDouble": DOUBLES | st.sampled_from(["Infinity", "-Infinity", "1.5"]),
        "aBool": st.booleans(),
        "aString": TEXTS,
        "color": st.sampled_from(["RED", 2, 7]),
        "inner": INNERS,
        "maybe": st.integers(-5, 5),
        "left": TEXTS,
        "strings": st.lists(TEXTS, max_size=3),
        "doubles": st.lists(DOUBLES, max_size=3),
        "inners": st.lists(INNERS, max_size=3),
        "labels": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "byNumber": st.dictionaries(st.integers(-9, 9).map(str), INNERS, max_size=3),
        "byTruth": st.dictionaries(st.sampled_from(["true", "false"]), st.integers(0, 9), max_size=2),
        "extras": st.dictionaries(TEXTS, JSON_VALUES, max_size=3),
        "hint": JSON_VALUES,
        "list": st.lists(JSON_VALUES, max_size=3),
        "any": INNERS.map(lambda inner: {"@type": "type.googleapis.com/kit.v1.Inner", **inner}),
        "at": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
        "took": st.integers(-(10**6), 10**6).map(lambda milliseconds: f"{milliseconds / 1000:.3f}s"),
        "wrappedString": TEXTS,
    },
)


def _finite(value: object) -> object:
    return ("Infinity" if value > 0 else "-Infinity") if isinstance(value, float) and math.isinf(value) else value


@given(KITS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_reading_and_writing_agree_with_the_protobuf_library(kit: SchemaSet, value: dict[str, Any]) -> None:
    if "aFloat" in value:
        value["aFloat"] = _finite(value["aFloat"])
    theirs: Message = kit.new(KIT)
    pool: Any = theirs.DESCRIPTOR.file.pool
    json_format.ParseDict(value, theirs, descriptor_pool=pool)

    ours = kit.parse_json(KIT, value)

    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)
    assert kit.to_json(ours) == json_format.MessageToDict(
        theirs, always_print_fields_with_no_presence=True, descriptor_pool=pool
    )
    assert kit.parse_json(KIT, json.loads(json.dumps(kit.to_json(ours)))) == ours
