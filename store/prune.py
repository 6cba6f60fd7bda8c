"""Pruning: settled runs go after a while, and their ids stay taken for longer.

In two phases. First a narrow row of `pruned_run` remembers the run: id, tenant, fingerprint and outcome. Only when that
has been there for longer than any transaction lasts is the run deleted, with everything of it: so whoever looks sees
the one or the other, however long ago they began. Much later the memory goes too, and `upkeep.forgotten_before` says up
to when: from then on a record of that age with an unknown id is too old to know, see `store.submit`.

Definitions stay, also those that no run refers to any more: there is one per edit of a workflow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from store.database import Database

SETTLE_SECONDS: Final = 60.0
"""How long a run is remembered before it is deleted: several times what a transaction of ours can last."""

BATCH_RUNS: Final = 500
_BATCH_SIZE: Final = 20_000
"""Rows of one deletion, about: a run of very many items goes alone."""

_Place = tuple[datetime | str, UUID]
_START: Final[_Place] = ("-infinity", UUID(int=0))


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one step did, in runs. `more`: another step would find something, so take it soon."""

    remembered: int
    deleted: int
    forgotten: int
    more: bool


class Prune:
    """Prunes in steps of bounded size, each some milliseconds. Any number of workers may do so at once."""

    def __init__(
        self,
        database: Database,
        *,
        prune_after_seconds: float,
        remember_seconds: float,
        settle_seconds: float = SETTLE_SECONDS,
        batch_runs: int = BATCH_RUNS,
    ) -> None:
        """Describe what goes, and when.

        Args:
            database: Where.
            prune_after_seconds: Since its settling, until a run goes.
            remember_seconds: Since the later of its settling and its record's time, until its id is free again.
            settle_seconds: Between the two phases; tests alone wait shorter.
            batch_runs: Runs of one step, at most.
        """
        self._database = database
        self._prune_after_seconds = prune_after_seconds
        self._remember_seconds = remember_seconds
        self._settle_seconds = settle_seconds
        self._batch_runs = batch_runs
        self._after: _Place = _START

    async def step(self, *, now: datetime | None = None) -> Pruned:
        """Take one step along the settled runs, oldest first; behind the last one forget, and begin anew.

        A run whose events, or records, are not all published is passed over, for as long as that lasts.

        Args:
            now: The time to go by; None is the database's.

        Raises:
            StoreUnavailable: take the step again; what was done stays so.
        """
        page = await self._page(now)
        remembered = await self._remember([row["job_id"] for row in page if row["is_new"]], now)
        ready, last = self._cut(page)
        deleted = await self._delete(ready, now)
        if last is not None:
            self._after = last
            return Pruned(remembered, deleted, 0, more=True)
        self._after = _START
        forgotten = await self._forget(now)
        return Pruned(remembered, deleted, forgotten, more=forgotten == self._batch_runs)

    async def _page(self, now: datetime | None) -> list[dict[str, Any]]:
        after_time, after_job = self._after
        return await self._database.rows(
            "prune/page",
            {
                "after_time": after_time,
                "after_job": after_job,
                "prune_after_seconds": self._prune_after_seconds,
                "delay_seconds": self._settle_seconds,
                "limit": self._batch_runs,
                "now": now,
            },
        )

    async def _remember(self, job_ids: Sequence[UUID], now: datetime | None) -> int:
        if not job_ids:
            return 0
        return len(await self._database.rows("prune/remember", {"job_ids": job_ids, "now": now}))

    async def _delete(self, job_ids: Sequence[UUID], now: datetime | None) -> int:
        if not job_ids:
            return 0
        async with self._database.transaction() as transaction:
            asked = {"job_ids": job_ids, "delay_seconds": self._settle_seconds, "now": now}
            locked = await transaction.rows("prune/lock", asked)
            if not locked:
                return 0
            params = {
                "job_ids": [row["job_id"] for row in locked],
                "shards": sorted({int(str(row["shard"])) for row in locked}),
            }
            return len(await transaction.rows("prune/delete", params))

    async def _forget(self, now: datetime | None) -> int:
        params = {"remember_seconds": self._remember_seconds, "limit": self._batch_runs, "now": now}
        rows: list[dict[str, Any]] = await self._database.rows("prune/forget", params)
        return int(rows[0]["forgotten"])

    def _cut(self, page: Sequence[dict[str, Any]]) -> tuple[list[UUID], tuple[datetime, UUID] | None]:
        """Return what of *page* to delete now, and where the next page begins; None when nothing comes after it."""
        ready: list[UUID] = []
        size = 0
        last: tuple[datetime, UUID] | None = None
        for row in page:
            if row["is_ready"]:
                size += row["size"]
                if ready and size > _BATCH_SIZE:
                    return ready, last
                ready.append(row["job_id"])
            last = row["completed_at"], row["job_id"]
        return ready, last if len(page) == self._batch_runs else None
