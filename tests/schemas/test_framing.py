from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ContractError
from schemas.framing import Frame, frame, is_framed, schema_id_of, unframe
from schemas.messages import INDEXES, WorkflowRunEvent, WorkflowRunRequest

PAYLOAD = bytes.fromhex("0805")


@pytest.mark.parametrize(
    ("schema_id", "indexes", "framed"),
    [
        (258, INDEXES[WorkflowRunEvent], "00 00000102 00 0805"),
        (258, INDEXES[WorkflowRunRequest], "00 00000102 0202 0805"),
        (258, (1, 0), "00 00000102 040200 0805"),
        (258, (1, 1), "00 00000102 040202 0805"),
        (258, (0, 0), "00 00000102 040000 0805"),
        (1, (64,), "00 00000001 028001 0805"),
        (1, (2**31 - 1,), "00 00000001 02feffffff0f 0805"),
        (2**32 - 1, (0,), "00 ffffffff 00 0805"),
    ],
)
def test_a_frame_has_these_bytes(schema_id: int, indexes: tuple[int, ...], framed: str) -> None:
    assert frame(schema_id, PAYLOAD, indexes) == bytes.fromhex(framed)
    assert unframe(bytes.fromhex(framed)) == Frame(schema_id, indexes, PAYLOAD)


def test_the_long_form_of_the_first_message_is_read_too() -> None:
    assert unframe(bytes.fromhex("00 00000001 0200 0805")) == Frame(1, (0,), PAYLOAD)


def test_id_zero_is_read_but_never_written() -> None:
    assert schema_id_of(bytes(6)) == 0
    assert unframe(bytes(6)) == Frame(0, (0,), b"")
    with pytest.raises(ContractError) as refused:
        frame(0, PAYLOAD)
    assert refused.value.code == "bad-schema-id"


@pytest.mark.parametrize("schema_id", [-1, 2**32])
def test_an_id_of_more_than_32_bits_is_refused(schema_id: int) -> None:
    with pytest.raises(ContractError) as refused:
        frame(schema_id, PAYLOAD)
    assert refused.value.code == "bad-schema-id"


@pytest.mark.parametrize("indexes", [(), (-1,), (2**31,), (0,) * 33])
def test_a_path_that_names_no_message_is_refused(indexes: Sequence[int]) -> None:
    with pytest.raises(ContractError) as refused:
        frame(1, PAYLOAD, indexes)
    assert refused.value.code == "bad-index"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", "not-framed"),
        ("00", "not-framed"),
        ("000000", "not-framed"),
        ("00000000", "not-framed"),
        ("0000000001", "bad-index"),  # nothing after the header
        ("0000000001 80", "bad-index"),  # the count is cut off
        ("0000000001 02", "bad-index"),  # the index is missing
        ("0000000001 0280", "bad-index"),  # the index is cut off
        ("0000000001 0201", "bad-index"),  # index -1
        ("0000000001 01", "bad-index"),  # count -1
        ("0000000001 4200", "bad-index"),  # count 33
        ("0000000001 feffffff0f", "bad-index"),  # count 2147483647
        ("0000000001 ffffffffff01", "bad-index"),  # a varint of six bytes
        ("0000000001 ffffffff7f", "bad-index"),  # a count of more than 32 bits
        ("0000000001 02feffffff7f", "bad-index"),  # an index of more than 32 bits
        ("01" + "00" * 16, "bad-magic"),
        ("7b7d", "bad-magic"),
        ("68656c6c6f", "bad-magic"),
    ],
)
def test_hostile_bytes_are_refused_with_a_code(value: str, code: str) -> None:
    with pytest.raises(ContractError) as refused:
        unframe(bytes.fromhex(value))
    assert refused.value.code == code


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\0\0\0\0\1" + tail))
def test_any_bytes_are_taken_apart_or_refused(value: bytes) -> None:
    try:
        taken = unframe(value)
    except ContractError:
        return
    assert value.endswith(taken.payload)
    assert taken.indexes


@given(
    st.integers(1, 2**32 - 1),
    st.binary(max_size=50),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=32).map(tuple),
)
def test_what_is_framed_is_taken_apart_again(schema_id: int, payload: bytes, indexes: tuple[int, ...]) -> None:
    assert unframe(frame(schema_id, payload, indexes)) == Frame(schema_id, indexes, payload)


def test_only_a_zero_byte_begins_a_frame() -> None:
    assert is_framed(b"\0")
    assert not is_framed(b"{}")
    assert not is_framed(b"")
    assert not is_framed(None)
