"""Watches the store for health and metrics, so that neither asks it anything when it is looked at."""

import asyncio
import contextlib
from typing import Final

from schemas.errors import StoreUnavailable
from store.database import Database
from store.looks import Looks
from store.migrate import StoreFacts
from store.queries import Queries
from streams.health import ServiceHealth
from streams.kafka.backpressure import Backpressure
from streams.metrics import Metrics

IDLE_SECONDS: Final = 21.0
CALM_SECONDS: Final = 10.0
BUSY_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 1.0


class StoreWatch:
    """Knows how many runs are due in the store, and holds intake back where they are too many.

    It looks every ten seconds; every second from half of what may be queued on, and while the store gives no answer.
    With nothing queued it asks nothing of its own for as long as others of this process look. It looks at once when the
    connection that wake-ups come over is lost.
    """

    def __init__(
        self,
        database: Database,
        looks: Looks,
        queries: Queries,
        backpressure: Backpressure,
        metrics: Metrics,
        connection: asyncio.Event,
    ) -> None:
        """*connection* is set, by whom it concerns, when a connection to Postgres was lost or opened: it looks then."""
        self._database = database
        self._looks = looks
        self._queries = queries
        self._backpressure = backpressure
        self._metrics = metrics
        self._connection = connection
        looks.on_away(connection.set)  # whoever looked may not look again for long
        self._facts: StoreFacts | None = None
        self._pause_seconds = 0.0

    def begin(self, facts: StoreFacts) -> None:
        """Take what start-up found out about the server."""
        self._facts = facts

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                pause_seconds = await self.look()
            except StoreUnavailable:
                await asyncio.sleep(AWAY_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._connection.wait()
                self._connection.clear()
                self._pause_seconds = 0.0  # what was found before says nothing any more

    async def look(self) -> float:
        """Look; return in how many seconds to look again. Raises StoreUnavailable when there is no answer."""
        look = await self._looks.look(newest_seconds=self._pause_seconds)
        waiting = await self._queries.queued_targets() if self._backpressure.holds_at(look.queued) else {}
        self._backpressure.counted(look.queued, waiting)
        self._metrics.queued_runs.set(look.queued)
        self._pause_seconds = self._pause_at(look.queued)
        return self._pause_seconds

    def _pause_at(self, queued: int) -> float:
        if queued > self._backpressure.most_queued / 2:
            return BUSY_SECONDS
        return CALM_SECONDS if queued else IDLE_SECONDS

    def health(self) -> ServiceHealth:
        """Ready while the store answers; the detail says what its acknowledgements are worth."""
        if self._looks.away is not None:
            return ServiceHealth("store", alive=True, ready=False, detail=self._looks.away)
        if self._facts is None:
            return ServiceHealth("store", alive=True, ready=False, detail="not asked yet")
        facts = self._facts
        told = f"synchronous_commit {facts.synchronous_commit}"
        if facts.synchronous_standby_names:
            told += f", standbys {facts.synchronous_standby_names}"
        if changes := self._database.history.changes:
            told += f", put back or failed over {changes} times since this process began"
        return ServiceHealth("store", alive=True, ready=True, detail=told)
