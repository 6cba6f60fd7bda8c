from uuid import uuid4

import pytest

from schemas.consume import Deduplicator, read_event
from schemas.errors import ContractError
from schemas.framing import frame
from schemas.messages import INDEXES, WorkflowRunEvent, WorkflowRunRequest

EVENT = WorkflowRunEvent(event_id=str(uuid4()), job_id=str(uuid4()), type=WorkflowRunEvent.ACCEPTED, seq=1)


def test_an_event_is_read_out_of_its_frame() -> None:
    assert read_event(frame(7, EVENT.SerializeToString())) == EVENT


def test_an_event_of_a_newer_contract_is_read_with_what_is_known() -> None:
    newer = EVENT.SerializeToString() + bytes.fromhex("2063") + bytes.fromhex("e2120568656c6c6f")
    event = read_event(frame(7, newer))
    assert event.event_id == EVENT.event_id
    assert int(event.type) == 99


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "null-value"),
        (b"", "not-framed"),
        (b"{}", "bad-magic"),
        (b"\0\0\0\0\1", "bad-index"),
        (frame(7, WorkflowRunRequest().SerializeToString(), INDEXES[WorkflowRunRequest]), "bad-index"),
        (frame(7, bytes.fromhex("0a24616263")), "bad-protobuf"),
        (frame(7, bytes.fromhex("0a02c328")), "bad-protobuf"),
        (bytes(1_000_000), "bad-protobuf"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else str(value),
)
def test_what_is_not_an_event_is_refused_with_a_code(value: bytes | None, code: str) -> None:
    with pytest.raises(ContractError) as refused:
        read_event(value)
    assert refused.value.code == code


def test_an_event_id_is_seen_once_it_was_added() -> None:
    seen = Deduplicator(capacity=2)
    assert "a" not in seen
    assert "a" not in seen
    seen.add("a")
    assert "a" in seen


def test_the_id_that_was_not_met_for_longest_is_forgotten_first() -> None:
    seen = Deduplicator(capacity=2)
    seen.add("a")
    seen.add("b")
    assert "a" in seen
    seen.add("c")
    assert "b" not in seen
    assert "a" in seen
    assert "c" in seen
    assert len(seen) == 2


def test_an_id_added_again_takes_no_more_room() -> None:
    seen = Deduplicator(capacity=2)
    for event_id in ("a", "b", "a", "a", "c"):
        seen.add(event_id)
    assert len(seen) == 2
    assert "b" not in seen


def test_a_handler_that_fails_meets_the_event_again() -> None:
    seen = Deduplicator(capacity=10)
    handled: list[str] = []

    def deliver(event_id: str, *, failing: bool = False) -> None:
        if event_id not in seen:
            if failing:
                raise RuntimeError(event_id)
            handled.append(event_id)
            seen.add(event_id)

    with pytest.raises(RuntimeError):
        deliver("a", failing=True)
    deliver("a")
    deliver("a")
    assert handled == ["a"]


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Deduplicator(capacity=0)
