"""Control: what an operator does to a run from outside."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import cast
from uuid import UUID

from schemas.events import Status
from schemas.ids import uuid7
from store.database import CommitPoint, Database, passes
from store.events import error_texts
from store.notify import RELAY, OnCommitted, cancelled


class CancelOutcome(StrEnum):
    """What became of a cancel."""

    APPLIED = "APPLIED"
    TERMINAL = "TERMINAL"  # settled before, and left as it is
    UNKNOWN = "UNKNOWN"  # no such run, or another tenant's


@dataclass(frozen=True, slots=True)
class CancelResult:
    """`status` is the run's status now."""

    outcome: CancelOutcome
    status: Status | None


class Control:
    """Controls runs, whoever holds them."""

    def __init__(self, database: Database, *, on_committed: OnCommitted, commit_point: CommitPoint = passes) -> None:
        """*commit_point* is awaited at `cancel.before_commit` and `cancel.after_commit`."""
        self._database = database
        self._on_committed = on_committed
        self._commit_point = commit_point

    async def cancel(self, *, tenant_id: str, job_id: UUID, reason: str) -> CancelResult:
        """End a run that is queued, running or waiting as CANCELLED, for *reason*, which its row and event carry.

        Whoever holds the run can write nothing from then on, and is woken up to stop.

        Raises:
            StoreUnavailable: whether it was cancelled is unknown. Send it again: a repeat is told TERMINAL.
        """
        whole, cut = error_texts(reason)
        move = {
            "job_id": str(job_id),
            "tenant_id": tenant_id,
            "event_id": str(uuid7()),
            "reason": whole,
            "event_reason": cut,
        }
        params = {"moves": json.dumps([move]), "now": None}
        async with self._database.transaction() as transaction:
            await transaction.rows("moves/lock", params)
            [row] = await transaction.rows("control/cancel", params)
            await self._commit_point("cancel.before_commit")
        await self._commit_point("cancel.after_commit")
        outcome = CancelOutcome(cast(str, row["outcome"]))
        if outcome is CancelOutcome.APPLIED:
            self._on_committed({RELAY, cancelled(job_id)})
        return CancelResult(outcome, Status(cast(str, row["status"])) if row["status"] is not None else None)
