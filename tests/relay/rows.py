"""Queued rows for tests without a database."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from store.records import DeadLetter, QueuedEvent, QueuedLetter, RecordIdentity

JOB = UUID("0198c0de-0000-7000-8000-000000000001")


def job(number: int) -> UUID:
    return UUID(int=JOB.int + number)


def event(id: int = 1, *, shard: int = 0, **changes: Any) -> QueuedEvent:
    """A valid COMPLETED event."""
    values: dict[str, Any] = {
        "job_id": JOB,
        "seq": 1,
        "event_id": UUID(int=0x0198C0DE_0000_7000_8000_0000000000FF + id),
        "type": 4,
        "step": None,
        "attempt": 1,
        "verdict": "completed 3 steps",
        "error": None,
        "detail": None,
        "status": "COMPLETED",
        "occurred_at": datetime(2026, 11, 30, 12, 0, 0, 123456, UTC),
        "contract_version": 1,
        "format": 1,
        "tenant_id": "default",
        "workflow_name": "embed-text",
        "business_key": None,
        "labels": None,
        "trace_context": None,
        "attempts": 0,
        "wait_seconds": None,
    }
    return QueuedEvent(shard=shard, id=id, **{**values, **changes})


def letter(id: int = 1, *, shard: int = 0, topic: str = "requests", **changes: Any) -> QueuedLetter:
    """A record that is no request."""
    identity = RecordIdentity("cluster", "topic-id", topic, 3, 42, changes.pop("timestamp_ms", 1_764_500_000_000), b"")
    values: dict[str, Any] = {
        "key": b"k",
        "value": b"\xff\x00",
        "headers": (),
        "code": "bad-json",
        "reason": "not JSON",
    }
    return QueuedLetter(
        shard=shard,
        id=id,
        letter_id=changes.pop("letter_id", id),
        skip_reason=changes.pop("skip_reason", None),
        letter=DeadLetter(identity=identity, **{**values, **changes}),
        received_at=datetime(2026, 11, 30, tzinfo=UTC),
        attempts=0,
        wait_seconds=None,
    )
