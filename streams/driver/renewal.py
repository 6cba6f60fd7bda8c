"""Renewal: every held lease at a third of its time, and the work on a lost one stopped."""

import asyncio
import logging
from typing import Final

from schemas.errors import StoreUnavailable
from store.leases import Leases
from store.notify import Listener
from store.records import HeldRun
from streams.driver.held import Cause, Held

log = logging.getLogger(__name__)

_WITHOUT_LISTENER_SECONDS: Final = 1.0
_AFTER_FAILURE_SECONDS: Final = 1.0


class Renewal:
    """Renews what is held until cancelled. A database that is away is asked again until it answers."""

    def __init__(self, *, leases: Leases, held: Held, listener: Listener, lease_seconds: float) -> None:
        self._leases = leases
        self._held = held
        self._listener = listener
        self._lease_seconds = lease_seconds
        self.failing = False
        """Whether the last renewal had no answer."""

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            await asyncio.sleep(self._pause_seconds())
            if runs := self._held.renewable():
                await self._renew(runs)
            else:
                self.failing = False

    async def _renew(self, runs: list[HeldRun]) -> None:
        try:
            lost = await self._leases.renew(runs)
        except StoreUnavailable as error:
            if not self.failing:
                log.warning("%d leases are not renewed: %s", len(runs), error)
            self.failing = True
            return
        self.failing = False
        self._held.interrupt(lost, Cause.LOST)

    def _pause_seconds(self) -> float:
        pause = self._lease_seconds / 3
        if self.failing:
            # Several tries fit into what is left of the lease.
            return min(pause / 4, _AFTER_FAILURE_SECONDS)
        # A cancelled run is told by notification; without one a renewal is what finds it, within the same second.
        return pause if self._listener.connected else min(pause, _WITHOUT_LISTENER_SECONDS)
