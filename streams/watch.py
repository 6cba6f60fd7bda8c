"""Watches the store for health and metrics, so that neither asks it anything when it is looked at."""

import asyncio
from typing import Final

from schemas.errors import StoreUnavailable
from store.database import Database
from store.migrate import StoreFacts
from store.queries import Queries
from streams.health import ServiceHealth
from streams.metrics import Metrics

CALM_SECONDS: Final = 10.0
AWAY_SECONDS: Final = 1.0
COUNTED: Final = 100_000


class StoreWatch:
    """Asks the store every ten seconds how many runs are due in it, and every second while it gives no answer."""

    def __init__(self, database: Database, queries: Queries, metrics: Metrics) -> None:
        self._database = database
        self._queries = queries
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
                await self._database.look_at_history()
                self._metrics.queued_runs.set(await self._queries.queued_count(COUNTED))
                self._away = ""
            except StoreUnavailable as error:
                self._away = str(error)
            await asyncio.sleep(AWAY_SECONDS if self._away else CALM_SECONDS)

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
