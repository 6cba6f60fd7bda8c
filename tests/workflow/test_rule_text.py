"""The grammar of mapping rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.workflow.limits import MAX_RULE_LENGTH
from streams.workflow.names import fault_in_step_name
from streams.workflow.rule_text import Literal, Operator, Reference, Rule, RuleInvalid, parse_rule

ASSIGN, APPEND, CLEAR = Operator.ASSIGN, Operator.APPEND, Operator.CLEAR


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a = input", (ASSIGN, ("a",), Reference("input", ()))),
        ("a.b.c=input.x.y", (ASSIGN, ("a", "b", "c"), Reference("input", ("x", "y")))),
        ("  a  +=  score.tags  ", (APPEND, ("a",), Reference("score", ("tags",)))),
        ("-a.b", (CLEAR, ("a", "b"), None)),
        ("- a", (CLEAR, ("a",), None)),
        ("a = null", (ASSIGN, ("a",), Literal(None))),
        ("a = true", (ASSIGN, ("a",), Literal(True))),
        ("a = -7", (ASSIGN, ("a",), Literal(-7))),
        ("a = 1.50", (ASSIGN, ("a",), Literal(1.5))),
        ("a = -9223372036854775808", (ASSIGN, ("a",), Literal(-(2**63)))),
        ('a = ""', (ASSIGN, ("a",), Literal(""))),
        ('a = "say "hi" = now"', (ASSIGN, ("a",), Literal('say "hi" = now'))),
        ('a = "  blanks stay  "', (ASSIGN, ("a",), Literal("  blanks stay  "))),
        ("extras.order-no.größe = 1", (ASSIGN, ("extras", "order-no", "größe"), Literal(1))),
        ("a = true.b", (ASSIGN, ("a",), Reference("true", ("b",)))),
    ],
)
def test_a_rule_is_read_as_written(
    text: str, rule: tuple[Operator, tuple[str, ...], Literal | Reference | None]
) -> None:
    assert parse_rule(text) == Rule(text.strip(), *rule)


@pytest.mark.spec(36)
@pytest.mark.parametrize("text", ['s = "a+=b"', 's="a+=b"', 's += "a+=b"'])
def test_an_operator_inside_text_is_text(text: str) -> None:
    rule = parse_rule(text)

    assert rule.target == ("s",)
    assert rule.source == Literal("a+=b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "blank"),
        ("   ", "blank"),
        ("a", "no operator"),
        ("= b", "no target"),
        ("+= b", "no target"),
        ("a =", "no source"),
        ("a += ", "no source"),
        ("-", "path of a field to clear"),
        ("-a = b", "path of a field to clear"),
        ("a b = c", "not a path"),
        ("a..b = c", "not a path"),
        (".a = c", "not a path"),
        ("a[0] = c", "not a path"),
        ("a- = c", "not a path"),
        ("a == b", "unknown source"),
        ("a = b.", "unknown source"),
        ("a = b c", "unknown source"),
        ("a = 'b'", "double quotes"),
        ("a = 1.", "unknown source"),
        ("a = --1", "unknown source"),
        ('a = "b', "does not end"),
        ('a = "', "does not end"),
        ("a = 9223372036854775808", "beyond 64 bits"),
        ("a = " + "9" * 4000, "beyond 64 bits"),
        ("a = " + "9" * 400 + ".0", "out of range"),
        ("a = " + "b" * MAX_RULE_LENGTH, "over the limit"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(RuleInvalid, match=reason):
        parse_rule(text)


@pytest.mark.parametrize("word", ["1e5", "0x1f", "١"])
def test_other_forms_of_numbers_are_names_that_no_step_can_have(word: str) -> None:
    assert parse_rule(f"a = {word}").source == Reference(word, ())
    assert fault_in_step_name(word) is not None


_PIECES = st.sampled_from(
    ["a", "input", ".", "=", "+=", "-", '"', "null", "1", "1.5", " ", "é", "\n", "'", "[", "𝔸", "\0"]
)


@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=12).map("".join)))
def test_no_text_makes_the_parser_raise_anything_but_its_own_error(text: str) -> None:
    try:
        rule = parse_rule(text)
    except RuleInvalid:
        return
    assert all(rule.target)
    assert (rule.source is None) == (rule.operator is CLEAR)


@pytest.mark.timeout(5)
def test_no_rule_of_allowed_length_holds_the_parser() -> None:
    for hostile in ("a." * 2000 + " = b", "-" * 4000, "a-" * 2000, "a = " + "b." * 2000, "a = " + '"' * 4000):
        try:
            parse_rule(hostile)
        except RuleInvalid:
            continue
