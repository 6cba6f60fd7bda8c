import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.text import cut, cut_utf8, readable, unstorable

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "bad"),
    [("plain", None), ("", None), ("\U0001f600", None), ("a\0b", "U+0000"), ("\ud83d", "U+D83D"), ("\\u0000", None)],
)
def test_the_first_character_that_cannot_be_stored_is_named(text: str, bad: str | None) -> None:
    assert unstorable(text) == bad


def test_readable_text_joins_pairs_and_replaces_halves_and_nul() -> None:
    assert readable("a\ud83d\ude00b") == "a\U0001f600b"
    assert readable("a\ude00\ud83db") == "a��b"
    assert readable("a\0b") == "a�b"


@given(ANY_TEXT)
def test_readable_text_can_be_stored(text: str) -> None:
    assert unstorable(readable(text)) is None
    readable(text).encode()


@given(ANY_TEXT, st.integers(40, 80))
def test_cut_text_keeps_to_its_limit(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short) <= limit
    assert unstorable(short) is None
    if len(readable(text)) <= limit:
        assert short == readable(text)


def test_a_cut_text_says_so_and_how_long_it_was() -> None:
    assert cut("x" * 5000, 100).endswith(" … [cut, 5000 characters]")
    assert cut("x" * 100, 100) == "x" * 100


@given(ANY_TEXT, st.integers(3, 40))
def test_text_cut_in_bytes_stays_valid_utf8(text: str, limit: int) -> None:
    short = cut_utf8(text, limit)
    assert len(short) <= limit
    kept = short.decode()
    assert kept == readable(text) or (kept.endswith("…") and readable(text).startswith(kept[:-1]))


def test_nothing_in_cut_text_breaks_json() -> None:
    json.loads(json.dumps(cut("\ud800\0" * 5000, 4000)))
