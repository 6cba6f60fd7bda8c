"""YAML read strictly: what it says is what JSON says, and nothing is guessed."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits, strict_yaml
from schemas.errors import ContractError
from schemas.strict_yaml import parse


def refused(text: str) -> ContractError:
    with pytest.raises(ContractError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a:", {"a": None}),
        ("a: ~", {"a": None}),
        ("a: null", {"a": None}),
        ("a: true", {"a": True}),
        ("a: false", {"a": False}),
        ("a: 0", {"a": 0}),
        ("a: -17", {"a": -17}),
        ("a: 9223372036854775807123", {"a": 9223372036854775807123}),
        ("a: 1.5", {"a": 1.5}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: 'yes'", {"a": "yes"}),
        ('a: "2026-01-31"', {"a": "2026-01-31"}),
        ("a: mail:9000", {"a": "mail:9000"}),
        ("a: 10.0.0.1:80", {"a": "10.0.0.1:80"}),
        ("a: 1.2.3", {"a": "1.2.3"}),
        ("a: yesterday", {"a": "yesterday"}),
        ("on: 1", {"on": 1}),  # a key is a text, whatever it looks like
        ("1: a", {"1": "a"}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("a: [1, {b: c}]", {"a": [1, {"b": "c"}]}),
        ("- -subject\n- to = input.to\n", ["-subject", "to = input.to"]),
        ('{"a": [1, "x"],\n\t"b": null}', {"a": [1, "x"], "b": None}),
    ],
)
def test_what_is_plain_is_read_as_json_has_it(text: str, value: object) -> None:
    assert parse(text).value == value
    assert json.dumps(parse(text).value) == json.dumps(value)  # 1 is not true, and 1000.0 is not 1000


@pytest.mark.parametrize(
    "word",
    [
        *("y", "n", "yes", "No", "ON", "off", "True", "FALSE", "Null", "NULL"),
        *(
            "0777",
            "0o17",
            "0x1F",
            "1_000",
            "+1",
            ".5",
            "1.",
            "12:30",
            "190:20:30",
            "2026-01-31",
            "2026-01-31T10:00:00Z",
        ),
        *(".inf", "-.INF", ".nan", "<<", "="),
    ],
)
def test_words_that_readers_take_in_different_ways_are_refused_with_the_way_out(word: str) -> None:
    error = refused(f"first: 1\nrules: [{word}]")

    assert error.code == "ambiguous"
    assert str(error).startswith(f"line 2: {word} means different things")
    assert f'"{word}"' in str(error)
    assert parse(f'rules: ["{word}"]').value == {"rules": [word]}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("a: 1\nb: 2\na: 3", "duplicate-key", "line 3: the key 'a' occurs twice"),
        ("a: &x 1", "bad-yaml", "line 1: the anchor &x"),
        ("a: 1\nb: *x", "bad-yaml", "line 2: the alias *x"),
        ("a: !!python/object:os.system 1", "bad-yaml", "line 1: the tag"),
        ("a: !mine {}", "bad-yaml", "line 1: the tag"),
        ("<<: {a: 1}", "bad-yaml", "line 1: the merge key"),
        ("? [a]\n: 1", "bad-yaml", "line 1: a key that is not a text"),
        ("--- 1\n--- 2", "bad-yaml", "line 2: a second document"),
        ("a: [1", "bad-yaml", "not YAML"),
        ("a: 1\n b: 2", "bad-yaml", "line 2: not YAML"),
        ("a: \0", "bad-yaml", "not YAML"),
        ("a: 1e999", "not-finite", "beyond the range of a double"),
        (f"a: {'9' * 4_301}", "number-too-long", "more than 4300 digits"),
        ("[" * (limits.JSON_DEPTH + 1), "too-deep", "nested more than"),
        ("[" * 200_000, "bad-yaml", "not YAML"),  # the library has a limit of its own
        ("- " * (limits.JSON_DEPTH + 1) + "a", "too-deep", "nested more than"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_line(text: str, code: str, message: str) -> None:
    error = refused(text)

    assert error.code == code
    assert message in str(error)


def test_each_value_has_the_line_of_its_key() -> None:
    document = parse("name: a\nsteps:\n  - name: one\n    rules:\n      - x = 1\n      - y = 2\n")

    assert document.line_of(("steps",)) == 2
    assert document.line_of(("steps", 0, "rules")) == 4
    assert document.line_of(("steps", 0, "rules", 1)) == 6
    assert document.line_of(("steps", 0, "rules", 7, "deeper")) == 4  # what it would stand in
    assert document.line_of(("nowhere",)) == 1


def test_both_parsers_of_the_library_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [1, {b: text}]\nc: |\n  text\n"
    compiled = parse(text)
    monkeypatch.setattr(strict_yaml, "_LOADER", yaml.SafeLoader)

    assert parse(text) == compiled


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab: -#'yn01"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc ", min_size=1), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_whatever_json_says_is_read_as_json_reads_it(value: object) -> None:
    text = json.dumps(value)

    read = parse(text).value

    assert json.dumps(read) == text or _equal(read, value)


def _equal(one: object, other: object) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other)
