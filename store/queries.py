"""What people ask about runs. Nothing here changes anything; another tenant's run is answered like an unknown one."""

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from schemas.errors import InputInvalid
from schemas.events import EventType, Status
from store.database import Database
from store.records import FailedItem, ItemStatus, JsonText, RunRow, RunSummary

_JSON_COLUMNS: Final = ("labels", "composed_request", "input", "checkpoints", "result", "workflow_definition")
_GREATEST_ID: Final = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class RunPage:
    """One page of a list, newest first. `next_cursor` is None on the last page."""

    runs: tuple[RunSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of a run's log, published or not. `status` is the run's after the event."""

    seq: int
    event_id: UUID
    type: EventType
    step: str | None
    attempt: int
    status: Status
    verdict: str | None
    error: str | None
    detail: JsonText | None
    occurred_at: datetime


class Queries:
    """Reads runs. Every method raises StoreUnavailable: Postgres gave no answer; call again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, tenant_id: str, job_id: UUID) -> RunRow | None:
        """Return a run with everything about it, every column of the view `workflow_run`; None when there is none.

        JSON columns are parsed: integers are exact, other numbers are Python floats.
        """
        rows = await self._database.rows("queries/run", {"tenant_id": tenant_id, "job_id": job_id})
        if not rows:
            return None
        columns: dict[str, Any] = rows[0]
        for name in _JSON_COLUMNS:
            columns[name] = None if columns[name] is None else json.loads(columns[name])
        return RunRow(job_id, tenant_id, columns["workflow_name"], Status(columns["status"]), columns)

    async def runs(
        self,
        tenant_id: str,
        *,
        status: Status | None = None,
        workflow_name: str | None = None,
        business_key: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        offset: int = 0,
    ) -> RunPage:
        """Return a page of runs, newest first: by `created_at`, then by `job_id`, both descending.

        A page by *cursor* costs the same wherever it lies, and runs that come in meanwhile shift nothing. One by
        *offset* costs what it passes over. A filter by *status* or *workflow_name* costs what it leaves out, unless
        there is a *business_key*.

        Args:
            limit: Most runs of the page, at least 1.
            cursor: `next_cursor` of the page before; None for the first one.
            offset: How many runs to pass over, from the cursor on.

        Raises:
            InputInvalid: *cursor* is none that this method returned.
        """
        below_time, below_job = _read_cursor(cursor) if cursor is not None else (None, _GREATEST_ID)
        params = {
            "tenant_id": tenant_id,
            "status": status,
            "workflow_name": workflow_name,
            "below_time": below_time,
            "below_job": below_job,
            "limit": limit + 1,
            "offset": offset,
        }
        if business_key is None:
            rows = await self._database.rows("queries/runs", params)
        else:
            rows = await self._database.rows("queries/runs_of_business_key", {**params, "business_key": business_key})
        runs = tuple(_summary(row) for row in rows[:limit])
        return RunPage(runs, _cursor(runs[-1]) if len(rows) > limit else None)

    async def failed_items(self, job_id: UUID, *, limit: int) -> list[FailedItem]:
        """Return the first *limit* items of a run whose last try failed, by step and place. Errors are cut to 4,000."""
        rows: list[dict[str, Any]] = await self._database.rows(
            "queries/failed_items", {"job_id": job_id, "limit": limit}
        )
        return [FailedItem(**{**row, "status": ItemStatus(row["status"])}) for row in rows]

    async def events(self, tenant_id: str, job_id: UUID) -> list[LoggedEvent]:
        """Return the whole log of a run by `seq`, which begins at 1 and has no gap. Empty when there is no such run."""
        rows: list[dict[str, Any]] = await self._database.rows(
            "queries/events", {"tenant_id": tenant_id, "job_id": job_id}
        )
        return [LoggedEvent(**{**row, "type": EventType(row["type"]), "status": Status(row["status"])}) for row in rows]

    async def queued_targets(self, *, targets: int = 100, limit: int = 10_000) -> dict[str, int]:
        """Return the five targets that most due runs wait for, most first, with their numbers.

        The first *targets* by name are looked at, and each is counted up to *limit*.
        """
        params = {"targets": targets, "limit": limit, "now": None}
        rows: list[dict[str, Any]] = await self._database.rows("queries/queued_targets", params)
        return {row["target"]: row["queued"] for row in rows}


def _summary(row: dict[str, Any]) -> RunSummary:
    return RunSummary(**{**row, "status": Status(row["status"])})


def _cursor(last: RunSummary) -> str:
    return base64.urlsafe_b64encode(f"{last.created_at.isoformat()} {last.job_id}".encode()).decode("ascii")


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii")
        time, _, job_id = text.partition(" ")
        created_at = datetime.fromisoformat(time)
        if created_at.tzinfo is None:
            raise ValueError("the time has no zone")
        return created_at, UUID(job_id)
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InputInvalid(
            "cursor is none that a list returned: leave it out to begin anew", pointer="/cursor"
        ) from error
