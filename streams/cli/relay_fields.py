"""How the relay's queue is printed: fields for JSON, and for tables."""

from datetime import datetime
from typing import Final

from store.relay_operations import MOST_COUNTED, FailingRow, Outbox, ShardState

Json = dict[str, object]

_ERROR_WIDTH: Final = 80


def failing_fields(row: FailingRow) -> Json:
    """Return a failing row as it is printed; `key` is the run's id, or names the letter."""
    return {
        "status": "FAILED" if row.blocked else "PENDING",
        "key": str(row.job_id) if row.job_id is not None else f"letter {row.letter_id}",
        "jobId": str(row.job_id) if row.job_id is not None else None,
        "letterId": row.letter_id,
        "seq": row.seq,
        "kind": row.kind,
        "shard": row.shard,
        "attempts": row.attempts,
        "nextTryAt": None if row.blocked else _time(row.next_try_at),
        "lastError": row.last_error,
    }


def shard_fields(state: ShardState) -> Json:
    """Return a shard as it is printed."""
    return {
        "shard": state.shard,
        "holder": state.lease_owner if state.live else None,
        "leaseUntil": _time(state.lease_until) if state.live else None,
        "backlog": state.backlog,
        "backlogIsMore": state.backlog >= MOST_COUNTED,
        "oldestAt": _time(state.oldest_at),
    }


def run_fields(outbox: Outbox) -> Json:
    """Return a run as it is printed above its events."""
    return {
        "jobId": str(outbox.job_id),
        "tenant": outbox.tenant_id,
        "workflow": outbox.workflow_name,
        "status": outbox.status,
        "shard": outbox.shard,
        "error": outbox.error,
    }


def events_fields(outbox: Outbox) -> list[Json]:
    """Return the events of a run as they are printed."""
    return [
        {
            "seq": event.seq,
            "eventId": str(event.event_id),
            "event": event.type.name,
            "step": event.step,
            "status": event.status,
            "occurredAt": _time(event.occurred_at),
            "attempts": event.attempts,
            "nextTryAt": _time(event.next_try_at),
            "lastError": event.last_error,
            "skipReason": event.skip_reason,
        }
        for event in outbox.events
    ]


def shortened(row: Json) -> Json:
    """Return *row* for a table: its error on one line, with nothing in it that a terminal would obey."""
    error = "".join(c if c.isprintable() else " " for c in str(row["lastError"] or ""))
    return {**row, "lastError": (error if len(error) <= _ERROR_WIDTH else error[: _ERROR_WIDTH - 1] + "…") or None}


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
