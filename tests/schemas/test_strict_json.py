import json
import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ContractError
from schemas.strict_json import canonical, members, parse, parse_object

STORABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
# Beyond 2**53 the shortest digits of a double, read as an integer, are another number than the double itself.
EXACT = st.floats(-(2.0**53), 2.0**53)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | EXACT | STORABLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE, inner, max_size=4),
    max_leaves=20,
)


def code_of(text: str) -> str:
    with pytest.raises(ContractError) as refused:
        parse(text)
    return refused.value.code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-json"),
        ("{", "bad-json"),
        ("{'a': 1}", "bad-json"),
        ("[1,]", "bad-json"),
        ("01", "bad-json"),
        ('"a\nb"', "bad-json"),
        ("1 2", "bad-json"),
        ("\ufeff{}", "bad-json"),
        ("NaN", "not-finite"),
        ('{"a": [-Infinity]}', "not-finite"),
        ("1e400", "not-finite"),
        ("-1e400", "not-finite"),
        ('{"a": 1, "a": 1}', "duplicate-key"),
        ('{"a": 1, "\\u0061": 2}', "duplicate-key"),
        ('[{"x": {"a": 1, "b": 2, "a": 3}}]', "duplicate-key"),
        ('"\\u0000"', "nul"),
        ('{"k\\u0000ey": 1}', "nul"),
        ('"\\ud800"', "surrogate"),
        ('{"a": ["\\udc00\\ud800"]}', "surrogate"),
        ('"\ud800"', "surrogate"),
        ("9" * 4301, "number-too-long"),
        ("[" * 65 + "]" * 65, "too-deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "too-deep"),
        ("[" * 1_000_000, "too-deep"),
        ("]" * 1_000_000, "bad-json"),
        ('"' + '\\"' * 500_000, "bad-json"),
        ("[" * 70 + '"' + '\\"' * 500_000, "too-deep"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_what_a_row_cannot_hold_is_refused(text: str, code: str) -> None:
    assert code_of(text) == code


@pytest.mark.timeout(20)
@pytest.mark.parametrize("before", ["[]," * 70, '{"a": ['])
def test_a_string_without_an_end_is_scanned_once(before: str) -> None:
    text = before + '"' + '\\"' * 500_000
    for read in (parse, members):
        with pytest.raises(ContractError):
            read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("-18446744073709551615", -18446744073709551615),
        ("9" * 4300, int("9" * 4300)),
        (' {"b": 1, "a": [true, null, 1.5]} ', {"b": 1, "a": [True, None, 1.5]}),
        ('"left\\\\u0000right"', "left\\u0000right"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"[[[{{{"', "[[[{{{"),
        ('["' + "[" * 1000 + '"]', ["[" * 1000]),
        ("[" * 64 + "]" * 64, None),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_what_a_row_can_hold_is_read_exactly(text: str, value: object) -> None:
    assert value is None or parse(text) == value
    parse(text)


def test_the_place_of_a_bad_character_is_told_as_a_json_pointer() -> None:
    with pytest.raises(ContractError, match=r"U\+0000 at /a/1/x~1y~0z cannot be stored"):
        parse('{"a": [1, {"x/y~z": "\\u0000"}]}')


def test_an_error_never_holds_what_it_complains_about() -> None:
    for text in [
        '{"k\\u0000": 1}',
        '{"\\ud800": 1}',
        '{"\\u0000": 1, "\\u0000": 2}',
        '{"' + "k" * 9999 + '": "\\u0000"}',
    ]:
        with pytest.raises(ContractError) as refused:
            parse(text)
        str(refused.value).encode()
        assert "\0" not in str(refused.value)
        assert len(str(refused.value)) < 400


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse, members):
        with suppress(ContractError):
            read(text)


@given(JSON_VALUES)
def test_a_canonical_text_means_what_it_was_made_of(value: object) -> None:
    written = canonical(value)
    assert parse(written) == value
    assert canonical(parse(written)) == written


@given(JSON_VALUES)
def test_layout_and_escapes_never_change_the_canonical_text(value: object) -> None:
    assert canonical(parse(json.dumps(value, indent=3))) == canonical(value)
    assert canonical(parse(json.dumps(value, ensure_ascii=False))) == canonical(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_its_canonical_text(number: float) -> None:
    assert float(canonical(number)) == number
    assert canonical(parse(canonical(number))) == canonical(number)


# The sample values of RFC 8785, appendix B, by the bits of the double.
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_doubles_are_printed_as_ecmascript_prints_them(bits: str, text: str) -> None:
    [number] = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == text


def test_keys_are_sorted_by_utf16_code_units() -> None:
    # U+1F600 is above U+FB33 as a code point, and below it as a surrogate pair.
    assert canonical({"\ufb33": 1, "\U0001f600": 2, "1": 3, "\r": 4, "ö": 5, "€": 6, "\x80": 7}) == (
        '{"\\r":4,"1":3,"\x80":7,"ö":5,"€":6,"\U0001f600":2,"\ufb33":1}'
    )


def test_strings_have_the_shortest_escapes() -> None:
    assert canonical('\b\t\n\f\r\x0f"\\/\x7f€') == '"\\b\\t\\n\\f\\r\\u000f\\"\\\\/\x7f€"'


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_what_is_not_json_has_no_canonical_text(value: object) -> None:
    with pytest.raises(ContractError) as refused:
        canonical(value)
    assert refused.value.code == "not-finite"


def test_an_endless_value_has_no_canonical_text() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ContractError) as refused:
        canonical(endless)
    assert refused.value.code == "too-deep"


def test_a_canonical_text_is_as_deep_as_what_is_read() -> None:
    deepest = "[" * 64 + "]" * 64
    assert canonical(parse(deepest)) == deepest


def test_members_come_as_the_very_text_that_was_sent() -> None:
    text = ' {"a" : [1, {"}": "]"}] ,"b":-1.50e3,"a":"x\\"}", "c": {"d":{}} }\n'
    assert members(text) == [("a", '[1, {"}": "]"}]'), ("b", "-1.50e3"), ("a", '"x\\"}"'), ("c", '{"d":{}}')]
    assert members("{}") == []


@pytest.mark.parametrize("text", ["", "[]", "1", '"{}"', "null"])
def test_only_an_object_has_members(text: str) -> None:
    with pytest.raises(ContractError) as refused:
        members(text)
    assert refused.value.code == "not-an-object"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{,}",
        '{"a"}',
        '{"a" 1}',
        '{"a":}',
        '{"a":1,}',
        '{"a":1 "b":2}',
        '{"a":1}}',
        '{"a":1}x',
        '{"a":[}',
        '{"a":"b}',
        "{1:2}",
    ],
)
def test_a_broken_object_has_none(text: str) -> None:
    with pytest.raises(ContractError) as refused:
        members(text)
    assert refused.value.code == "bad-json"


@given(st.dictionaries(STORABLE, JSON_VALUES))
def test_members_read_one_by_one_are_the_object(value: dict[str, object]) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False)):
        assert {key: parse(member) for key, member in members(text)} == value


def test_only_an_object_is_read_as_one() -> None:
    assert parse_object('{"a": 1}') == {"a": 1}
    with pytest.raises(ContractError, match="is an array, not an object"):
        parse_object("[]")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NaN", "NaN is not a JSON number"),
        ('{"a": [1, {"b/c": -Infinity}], "d": NaN}', "-Infinity at /a/1/b~1c is not a JSON number"),
        ("[1e999]", "1e999 at /0 is beyond the range of a double"),
        ('{"a": NaN', "NaN is not a JSON number"),
    ],
)
def test_what_is_no_finite_number_is_told_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse(text)
    assert (caught.value.code, str(caught.value)) == ("not-finite", says)
