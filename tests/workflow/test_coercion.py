"""From one type to another: what fits, what is refused, and that nothing is lost on the way."""

import math
from typing import Any

import pytest

from schemas.errors import MappingFailed
from streams.workflow.descriptors import SchemaSet
from streams.workflow.rule_text import RuleInvalid
from tests.workflow.samples import mapped

NAMES = {
    "anInt32": "an_int32",
    "anInt64": "an_int64",
    "anUint32": "an_uint32",
    "anUint64": "an_uint64",
    "aFloat": "a_float",
    "aDouble": "a_double",
    "aBool": "a_bool",
    "aString": "a_string",
    "aBytes": "a_bytes",
    "color": "color",
    "shade": "shade",
}


def coerced(kit: SchemaSet, source: str, value: object, target: str) -> Any:
    built = mapped(kit, f"{target} = input.{NAMES[source]}", given={source: value})
    return getattr(built, target)


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        ("anInt64", 2**31 - 1, "an_int32", 2**31 - 1),
        ("anInt64", -(2**31), "an_int32", -(2**31)),
        ("anUint64", 2**63 - 1, "an_int64", 2**63 - 1),
        ("anUint64", 2**64 - 1, "an_uint64", 2**64 - 1),
        ("anInt32", 5, "an_uint32", 5),
        ("aDouble", 7.0, "an_int64", 7),
        ("aDouble", -7.0, "an_int32", -7),
        ("aString", "42", "an_int32", 42),
        ("aString", "-9223372036854775808", "an_int64", -(2**63)),
        ("aString", "18446744073709551615", "an_uint64", 2**64 - 1),
        ("anInt64", 2**53, "a_double", 2.0**53),
        ("anInt32", 3, "a_float", 3.0),
        ("aString", "1.5e3", "a_double", 1500.0),
        ("aString", "-2", "a_float", -2.0),
        ("aDouble", "NaN", "a_float", "nan"),
        ("aDouble", "-Infinity", "a_float", -math.inf),
        ("aBool", True, "a_bool", True),
        ("aString", "TRUE", "a_bool", True),
        ("aString", "False", "a_bool", False),
        ("anInt64", 42, "a_string", "42"),
        ("anUint64", 2**64 - 1, "a_string", "18446744073709551615"),
        ("aDouble", 1.5, "a_string", "1.5"),
        ("aDouble", 42.0, "a_string", "42"),
        ("aDouble", 1e22, "a_string", "1" + "0" * 22),
        ("aDouble", 1e-7, "a_string", "0.0000001"),
        ("aFloat", 0.1, "a_string", "0.1"),
        ("aBool", True, "a_string", "true"),
        ("color", "RED", "a_string", "RED"),
        ("aBytes", "AAE=", "a_bytes", b"\0\1"),
        ("color", "BLUE", "color", 2),
        ("color", 7, "color", 7),
        ("aString", "BLUE", "color", 2),
        ("anInt64", 1, "color", 1),
        ("aDouble", 2.0, "color", 2),
    ],
)
def test_a_value_that_fits_arrives_whole(
    source: str, value: object, target: str, expected: object, kit: SchemaSet
) -> None:
    arrived = coerced(kit, source, value, target)

    if expected == "nan":
        assert math.isnan(arrived)
    else:
        assert (arrived, type(arrived)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("source", "value", "target"),
    [
        ("anInt64", 2**31, "an_int32"),
        ("anInt64", -1, "an_uint32"),
        ("anInt64", -1, "an_uint64"),
        ("anUint64", 2**63, "an_int64"),
        ("anUint32", 2**31, "an_int32"),
        ("aDouble", 1.5, "an_int64"),
        ("aDouble", 1e300, "an_int64"),
        ("aDouble", "NaN", "an_int32"),
        ("aDouble", "Infinity", "an_int32"),
        ("aString", "1.0", "an_int32"),
        ("aString", " 1", "an_int32"),
        ("aString", "1_000", "an_int32"),
        ("aString", "+1", "an_int32"),
        ("aString", "١", "an_int32"),
        ("aString", "9" * 5000, "an_int64"),
        ("aString", "x", "a_double"),
        ("aString", "nan", "a_double"),
        ("aString", "1e999", "a_double"),
        ("aString", "1e39", "a_float"),
        ("aDouble", 1e39, "a_float"),
        ("aString", "yes", "a_bool"),
        ("aString", "1", "a_bool"),
        ("aDouble", "NaN", "a_string"),
        ("color", 7, "a_string"),
        ("aString", "GREEN", "color"),
        ("aString", "1", "color"),
        ("anInt64", 9, "color"),
        ("aDouble", 1.5, "color"),
    ],
)
def test_a_value_that_does_not_fit_fails_the_rule(source: str, value: object, target: str, kit: SchemaSet) -> None:
    with pytest.raises(MappingFailed):
        coerced(kit, source, value, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("aBool", "an_int32"),
        ("aBool", "a_double"),
        ("aBool", "color"),
        ("anInt32", "a_bool"),
        ("aDouble", "a_bool"),
        ("aBytes", "a_string"),
        ("aString", "a_bytes"),
        ("aBytes", "an_int64"),
        ("color", "an_int32"),
        ("color", "shade"),
        ("color", "a_bool"),
        ("aBytes", "hint"),
    ],
)
def test_types_that_never_meet_are_refused_when_compiled(source: str, target: str, kit: SchemaSet) -> None:
    with pytest.raises(RuleInvalid, match="cannot become"):
        mapped(kit, f"{target} = input.{NAMES[source]}")


@pytest.mark.spec(33)
def test_a_fraction_into_an_integer_fails_and_an_integral_double_is_that_integer(kit: SchemaSet) -> None:
    with pytest.raises(MappingFailed, match=r"1\.5 is not an integer"):
        coerced(kit, "aDouble", 1.5, "an_int64")
    assert coerced(kit, "aDouble", 7.0, "an_int64") == 7


@pytest.mark.spec(34)
def test_an_integer_into_text_is_its_digits(kit: SchemaSet) -> None:
    assert coerced(kit, "anInt64", 42, "a_string") == "42"


@pytest.mark.parametrize(
    ("given", "rule", "held"),
    [
        ({"anInt64": 2**53}, "extras.k = input.an_int64", 2**53),
        ({"aDouble": 1.5}, "extras.k = input.a_double", 1.5),
        ({"aString": "x"}, "extras.k = input.a_string", "x"),
        ({"aBool": True}, "extras.k = input.a_bool", True),
        ({"color": "RED"}, "extras.k = input.color", "RED"),
        ({"strings": ["a"]}, "extras.k = input.strings", ["a"]),
        ({"at": "2026-01-02T03:04:05Z"}, "extras.k = input.at", "2026-01-02T03:04:05Z"),
        ({"wrappedInt": 0}, "extras.k = input.wrapped_int", "0"),
        ({"inner": {"text": "x"}}, "extras.k = input.inner", {"text": "x", "count": "0"}),
    ],
)
def test_what_goes_into_a_struct_is_its_json(given: dict[str, object], rule: str, held: object, kit: SchemaSet) -> None:
    assert kit.to_json(mapped(kit, rule, given=given).extras) == {"k": held}


@pytest.mark.parametrize(
    "given", [{"anInt64": 2**53 + 1}, {"aDouble": "NaN"}, {"aDouble": "Infinity"}], ids=["2^53+1", "NaN", "Infinity"]
)
def test_what_a_struct_cannot_hold_exactly_is_refused(given: dict[str, object], kit: SchemaSet) -> None:
    [name] = given

    with pytest.raises(MappingFailed, match="Struct cannot hold"):
        mapped(kit, f"extras.k = input.{NAMES[name]}", given=given)
