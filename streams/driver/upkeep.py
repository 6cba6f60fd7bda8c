"""Housekeeping: runs whose lease ran out or whose time has come move on, whatever else this process is busy with.

Its looks are also the net under every wake-up that was missed.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Final

from schemas.errors import StoreUnavailable
from store.upkeep import Upkeep
from streams.driver.patience import PAUSE
from streams.metrics import Metrics

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS: Final = 20.0
_AFTER_SECONDS: Final = 0.01  # looked just before it is due, a run would be left


class Housekeeping:
    """Sweeps whenever the store says that there may be something, on a timer of its own.

    A lease that somebody takes just after a sweep is seen before it can run out: no pause is longer than a lease.
    """

    def __init__(
        self, *, upkeep: Upkeep, lease_seconds: float, metrics: Metrics, on_due: Callable[[], None] = lambda: None
    ) -> None:
        """*on_due* is called by each look that finds a queued run due, whoever was told of it."""
        self._upkeep = upkeep
        self._on_due = on_due
        self._longest_pause_seconds = min(LONGEST_PAUSE_SECONDS, lease_seconds)
        self._metrics = metrics
        self._failures = 0
        self._wake = asyncio.Event()

    def look_after(self, seconds: float) -> None:
        """Something that the last look could not know of is due in so long: look then, not only at the next look."""
        if 0 <= seconds < self._longest_pause_seconds:
            asyncio.get_running_loop().call_later(seconds + _AFTER_SECONDS, self._wake.set)

    async def run(self) -> None:
        """Sweep for ever. A store that is away is asked again, at growing intervals."""
        while True:
            self._wake.clear()
            pause_seconds = await self._sweep()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._wake.wait()

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
        for move, runs in (("wake", swept.woken), ("overdue", swept.overdue), ("remind", swept.reminded)):
            self._metrics.due.labels(move).inc(runs)
        if swept.is_due:
            self._on_due()
        return min(swept.next_look_seconds, self._longest_pause_seconds) * random.uniform(0.8, 1.0)
