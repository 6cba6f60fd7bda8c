"""Housekeeping: what must happen to runs that nobody works on."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from schemas.errors import StoreUnavailable
from store.database import CommitPoint, Database, passes
from store.due import Due
from store.looks import Look, Looks
from store.notify import READY, RELAY, OnCommitted

_IDLE_SECONDS: Final = 20.0
_BUSY_SECONDS: Final = 1.0
_AT_ONCE_SECONDS: Final = 0.01

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did and found.

    `expired` runs were queued again and `dead` ones given up as DEAD. Of runs whose time had come, the waits of `woken`
    ones ended, `overdue` ones failed, and of `reminded` ones it was told again that they wait. The next sweep is due
    in `next_look_seconds`: at the earliest lease end or when the next run's time comes, after 1 s while anything runs,
    else after 20 s. `is_due`: some queued run is due.
    """

    expired: int
    dead: int
    next_look_seconds: float
    is_due: bool
    woken: int = 0
    overdue: int = 0
    reminded: int = 0


class Upkeep:
    """Takes runs back from holders that vanished, and moves on those whose time has come.

    Any number of workers may do so at once.
    """

    def __init__(
        self,
        database: Database,
        *,
        lease_seconds: float,
        max_lost_leases: int,
        on_committed: OnCommitted,
        looks: Looks | None = None,
        clock: Callable[[], float] = time.monotonic,
        commit_point: CommitPoint = passes,
    ) -> None:
        """*max_lost_leases*: a run whose claims expired this often, one after the other, becomes DEAD.

        *looks* are those that others of this process share. *commit_point* is awaited at `expire.before_commit` and
        `expire.after_commit`, and as `Due` says.
        """
        self._database = database
        self._looks = looks or Looks(database)
        self._due = Due(database, on_committed=on_committed, commit_point=commit_point)
        self._patience_seconds = lease_seconds / 2
        self._ceiling = max_lost_leases
        self._on_committed = on_committed
        self._clock = clock
        self._commit_point = commit_point
        self._not_before = 0.0
        self._away = False

    async def sweep(self, *, limit: int = 100) -> Swept:
        """Expire up to *limit* leases that ran out: their runs are queued again in their old place, or become DEAD.

        As many runs whose time has come are moved on, see `Due`. After an outage nothing is expired for half a lease:
        the holders could not renew, and are not to blame.

        Raises:
            StoreUnavailable: sweep again; what was expired stays so.
        """
        try:
            look = await self._looks.look()
            self._came_back()
            swept = await self._expired(look, limit)
            return await self._settled(look, swept, limit)
        except StoreUnavailable:
            self._away = True
            raise

    async def _expired(self, look: Look, limit: int) -> Swept:
        if look.expires_in is None:
            return Swept(0, 0, _IDLE_SECONDS, look.is_due)
        if look.expires_in > 0:
            return Swept(0, 0, min(look.expires_in + _AT_ONCE_SECONDS, _BUSY_SECONDS), look.is_due)
        if self._clock() < self._not_before:
            return Swept(0, 0, _BUSY_SECONDS, look.is_due)
        return await self._expire(limit, look.is_due)

    async def _settled(self, look: Look, swept: Swept, limit: int) -> Swept:
        if look.comes_due_in is None:
            return swept
        if look.comes_due_in > 0:
            return replace(swept, next_look_seconds=min(swept.next_look_seconds, look.comes_due_in + _AT_ONCE_SECONDS))
        settled = await self._due.settle(limit=limit)
        return replace(
            swept,
            next_look_seconds=min(swept.next_look_seconds, _AT_ONCE_SECONDS if settled.more else _BUSY_SECONDS),
            woken=settled.woken,
            overdue=settled.overdue,
            reminded=settled.reminded,
        )

    def _came_back(self) -> None:
        if self._away:
            self._away = False
            self._not_before = self._clock() + self._patience_seconds

    async def _expire(self, limit: int, is_due: bool) -> Swept:
        async with self._database.transaction() as transaction:
            picked = await transaction.rows("upkeep/pick_expired", {"limit": limit, "now": None})
            job_ids = [row["job_id"] for row in picked]
            params = {"job_ids": job_ids, "ceiling": self._ceiling, "now": None}
            moved = await transaction.rows("upkeep/expire", params) if job_ids else []
            await self._commit_point("expire.before_commit")
        await self._commit_point("expire.after_commit")
        dead = sum(1 for row in moved if row["dead"])
        for row in moved:
            _log.warning("run %s: %s", row["job_id"], row["error"], extra={"job_id": str(row["job_id"])})
        if payloads := ({RELAY} if dead else set()) | ({READY} if len(moved) > dead else set()):
            self._on_committed(payloads)
        next_look_seconds = _AT_ONCE_SECONDS if len(picked) == limit else _BUSY_SECONDS
        return Swept(len(moved) - dead, dead, next_look_seconds, is_due)
