"""Watches the store for health and metrics, so that neither asks it anything when it is looked at."""

import asyncio
from typing import Final

from schemas.errors import StoreUnavailable
from store.database import Database
from store.migrate import StoreFacts
from store.queries import Queries
from streams.health import ServiceHealth
from streams.kafka.backpressure import Backpressure
from streams.metrics import Metrics

CALM_SECONDS: Final = 10.0
BUSY_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 1.0


class StoreWatch:
    """Asks the store how many runs are due in it, and holds intake back where they are too many.

    Every ten seconds; every second from half of what may be queued on, and while the store gives no answer.
    """

    def __init__(self, database: Database, queries: Queries, backpressure: Backpressure, metrics: Metrics) -> None:
        self._database = database
        self._queries = queries
        self._backpressure = backpressure
        self._metrics = metrics
        self._facts: StoreFacts | None = None
        self._away = "not asked yet"

    def begin(self, facts: StoreFacts) -> None:
        """Take what start-up found out about the server."""
        self._facts, self._away = facts, ""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                pause_seconds = await self.look()
                self._away = ""
            except StoreUnavailable as error:
                self._away, pause_seconds = str(error), AWAY_SECONDS
            await asyncio.sleep(pause_seconds)

    async def look(self) -> float:
        """Look once; return in how many seconds to look again. Raises StoreUnavailable when there is no answer."""
        await self._database.look_at_history()
        most = self._backpressure.most_queued
        queued = await self._queries.queued_count(most)
        waiting = await self._queries.queued_targets() if self._backpressure.holds_at(queued) else {}
        self._backpressure.counted(queued, waiting)
        self._metrics.queued_runs.set(queued)
        return BUSY_SECONDS if queued > most / 2 else CALM_SECONDS

    def health(self) -> ServiceHealth:
        """Ready while the store answers; the detail says what its acknowledgements are worth."""
        if self._away:
            return ServiceHealth("store", alive=True, ready=False, detail=self._away)
        facts = self._facts
        told = "" if facts is None else f"synchronous_commit {facts.synchronous_commit}"
        if facts is not None and facts.synchronous_standby_names:
            told += f", standbys {facts.synchronous_standby_names}"
        if changes := self._database.history.changes:
            told += f", put back or failed over {changes} times since this process began"
        return ServiceHealth("store", alive=True, ready=True, detail=told)
