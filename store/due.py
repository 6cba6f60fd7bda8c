"""What happens to runs when their time has come: waits end, answers and whole runs are overdue, reminders are told."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from store.database import CommitPoint, Database, Transaction, passes
from store.lifecycle import Move
from store.notify import READY, RELAY, OnCommitted

_ORDER: Final = (Move.OVERDUE, Move.WAKE, Move.REMIND)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settled:
    """What one look did, in runs. `more`: another look would find something, so take it at once."""

    woken: int
    overdue: int
    reminded: int
    more: bool


class Due:
    """Moves on the runs that nobody holds and whose time has come. Any number of workers may do so at once: each run is
    moved once, by one of them, or by whoever answers, claims or cancels it first."""

    def __init__(self, database: Database, *, on_committed: OnCommitted, commit_point: CommitPoint = passes) -> None:
        """*commit_point* is awaited at `.before_commit` and `.after_commit` of `wake`, `remind` and `overdue`."""
        self._database = database
        self._on_committed = on_committed
        self._commit_point = commit_point

    async def settle(self, *, limit: int = 100) -> Settled:
        """Move on up to *limit* runs of which `Look.due_in` says that their time has come, and as many past deadlines.

        Raises:
            StoreUnavailable: nothing is known; call again, and what was done stays so.
        """
        async with self._database.transaction() as transaction:
            picked = await self._pick(transaction, limit)
            moves = [move for move in _ORDER if picked[move]]
            moved = {move: await self._move(transaction, move, picked[move]) for move in moves}
            for move in moves:
                await self._commit_point(f"{move}.before_commit")
        for move in moves:
            await self._commit_point(f"{move}.after_commit")
        for row in moved.get(Move.OVERDUE, ()):
            _log.warning("run %s: %s", row["job_id"], row["error"], extra={"job_id": str(row["job_id"])})
        woken, overdue, reminded = (len(moved.get(move, ())) for move in (Move.WAKE, Move.OVERDUE, Move.REMIND))
        if woken or overdue or reminded:
            self._on_committed({RELAY, READY} if woken else {RELAY})
        return Settled(woken, overdue, reminded, more=sum(map(len, picked.values())) >= limit)

    async def _pick(self, transaction: Transaction, limit: int) -> dict[Move, list[UUID]]:
        picked: dict[Move, list[UUID]] = {move: [] for move in _ORDER}
        params = {"limit": limit, "now": None}
        late: list[dict[str, Any]] = await transaction.rows("due/pick_late", params)
        picked[Move.OVERDUE] = [row["job_id"] for row in late]
        taken = set(picked[Move.OVERDUE])
        due: list[dict[str, Any]] = await transaction.rows("due/pick", params)
        for row in due:
            if row["job_id"] not in taken:
                picked[Move(row["move"])].append(row["job_id"])
        return picked

    async def _move(self, transaction: Transaction, move: Move, job_ids: Sequence[UUID]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await transaction.rows(f"due/{move}", {"job_ids": list(job_ids), "now": None})
        return rows
