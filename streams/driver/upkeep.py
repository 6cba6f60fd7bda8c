"""Housekeeping: runs whose lease ran out go back into the queue, whatever else this process is busy with."""

import asyncio
import logging
import random
from typing import Final

from schemas.errors import StoreUnavailable
from store.upkeep import Upkeep
from streams.driver.patience import PAUSE
from streams.metrics import Metrics

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0


class Housekeeping:
    """Sweeps whenever the store says that there may be something, on a timer of its own.

    A lease that somebody takes just after a sweep is seen before it can run out: no pause is longer than a lease.
    """

    def __init__(self, *, upkeep: Upkeep, lease_seconds: float, metrics: Metrics) -> None:
        self._upkeep = upkeep
        self._longest_pause_seconds = min(LONGEST_PAUSE_SECONDS, lease_seconds)
        self._metrics = metrics
        self._failures = 0

    async def run(self) -> None:
        """Sweep for ever. A store that is away is asked again, at growing intervals."""
        while True:
            pause_seconds = await self._sweep()
            await asyncio.sleep(pause_seconds)

    async def _sweep(self) -> float:
        """Sweep once; return after how many seconds to look again."""
        try:
            swept = await self._upkeep.sweep()
        except StoreUnavailable as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("no leases are swept: %s", error)
            return PAUSE.delay_seconds(self._failures)
        self._failures = 0
        self._metrics.expired.labels("queued").inc(swept.expired)
        self._metrics.expired.labels("dead").inc(swept.dead)
        return min(swept.next_look_seconds, self._longest_pause_seconds) * random.uniform(0.9, 1.0)
