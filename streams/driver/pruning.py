"""Pruning: settled runs go when they are old enough, on a timer of its own and never in anybody's way."""

import asyncio
import logging
import random
import time
from typing import Final

from schemas.errors import StoreUnavailable
from store.prune import Prune
from streams.metrics import Metrics

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 300.0


class Pruning:
    """Takes a step of pruning every five minutes, and one after the other while there is more."""

    def __init__(self, *, prune: Prune, metrics: Metrics, idle_seconds: float = IDLE_SECONDS) -> None:
        self._prune = prune
        self._metrics = metrics
        self._idle_seconds = idle_seconds
        self._away = False

    async def run(self) -> None:
        """Prune until cancelled. A store that is away is asked again as late: nothing here is urgent."""
        while True:
            pause_seconds = await self._step()
            await asyncio.sleep(pause_seconds)

    async def _step(self) -> float:
        """Take one step; return how long to rest. Between steps that is as long as a step took: half of the time."""
        began = time.monotonic()
        try:
            pruned = await self._prune.step()
        except StoreUnavailable as error:
            if not self._away:
                log.warning("nothing is pruned: %s", error)
            self._away = True
            return self._idle_seconds
        self._away = False
        self._metrics.runs_pruned.inc(pruned.deleted)
        self._metrics.runs_forgotten.inc(pruned.forgotten)
        if pruned.more:
            return time.monotonic() - began
        return self._idle_seconds * random.uniform(0.9, 1.0)
