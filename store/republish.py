"""Sending events again from the log, with the same ids and bytes: for topics and sinks that lost them.

They go through the relay's queue, so that the order of each run is kept, and not faster than the relays publish.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from schemas.errors import NotFound
from store.database import Database
from store.notify import RELAY, OnCommitted

RUNS_PER_PAGE: Final = 200
MOST_QUEUED: Final = 10_000
"""How much may wait, beyond what waited before, until the next page is queued: new events wait behind it."""

_COUNTED_AT_MOST: Final = 1_000_000
_ROOM_LOOK_SECONDS: Final = 0.5
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: runs looked at, those with events to send, and their events, all queued by now.

    `waiting` is True while the relays have too much to do for more.
    """

    looked_at: int
    runs: int
    events: int
    waiting: bool = False


class Republish:
    """Queues events of the log again. Every method raises StoreUnavailable: what was queued until then is sent."""

    def __init__(
        self,
        database: Database,
        *,
        actor: str,
        on_committed: OnCommitted,
        runs_per_page: int = RUNS_PER_PAGE,
        most_queued: int = MOST_QUEUED,
    ) -> None:
        """*actor* is who does this, as the audit will say."""
        self._database = database
        self._actor = actor
        self._on_committed = on_committed
        self._runs_per_page = runs_per_page
        self._most_queued = most_queued

    async def of_run(
        self, job_id: UUID, *, since_time: datetime | None = None, since_seq: int = 1, reason: str | None = None
    ) -> Progress:
        """Send the events of one run again: all from the first that is as new as *since_time* and *since_seq* say.

        Raises:
            NotFound: there is no such run, or no more: its log went with it.
        """
        since = since_time or _BEGINNING
        if not await self._rows("lock", job_ids=[job_id]):
            raise NotFound(f"there is no run {job_id}, or it was pruned")
        await self._begin(job_id, since, since_seq, reason)
        runs, events = await self._queue([job_id], since, since_seq)
        return Progress(1, runs, events)

    async def all_since(self, since_time: datetime, *, reason: str | None = None) -> AsyncIterator[Progress]:
        """Send the events of every run again: all from its first that is as new as *since_time*. Tells of each page.

        Goes through all runs by id, a page at a time, and waits while the relays have enough to do. Runs submitted
        meanwhile may be passed over: their events are new.
        """
        await self._begin(None, since_time, 1, reason)
        most = await self._waiting() + self._most_queued
        after, total = _LEAST_ID, Progress(0, 0, 0)
        while page := await self._rows("page", after=after, since_time=since_time, limit=self._runs_per_page):
            while await self._waiting(most) >= most:
                yield Progress(total.looked_at, total.runs, total.events, waiting=True)
                await asyncio.sleep(_ROOM_LOOK_SECONDS)
            wanted = [row["job_id"] for row in page if row["wanted"]]
            runs, events = await self._queue(wanted, since_time, 1)
            total = Progress(total.looked_at + len(page), total.runs + runs, total.events + events)
            yield total
            after = page[-1]["job_id"]

    async def _queue(self, job_ids: Sequence[UUID], since_time: datetime, since_seq: int) -> tuple[int, int]:
        """Queue events of these runs: how many of the runs have such events, and how many those are."""
        if not job_ids:
            return 0, 0
        async with self._database.transaction() as transaction:
            locked: list[dict[str, Any]] = await transaction.rows("republish/lock", {"job_ids": list(job_ids)})
            params = {
                "job_ids": [row["job_id"] for row in locked],
                "shards": [row["shard"] for row in locked],
                "since_time": since_time,
                "since_seq": since_seq,
            }
            queued: list[dict[str, Any]] = await transaction.rows("republish/queue", params)
        self._on_committed({RELAY})
        return int(queued[0]["runs"]), int(queued[0]["events"])

    async def _begin(self, job_id: UUID | None, since_time: datetime, since_seq: int, reason: str | None) -> None:
        params = {"job_id": job_id, "since_time": since_time, "since_seq": since_seq}
        await self._rows("begun", **params, actor=self._actor, reason=reason)

    async def _waiting(self, limit: int = _COUNTED_AT_MOST) -> int:
        rows: list[dict[str, Any]] = await self._database.rows("relay_queue/backlog", {"limit": limit})
        return int(rows[0]["backlog"])

    async def _rows(self, statement: str, **params: object) -> list[dict[str, Any]]:
        return await self._database.rows(f"republish/{statement}", params)
