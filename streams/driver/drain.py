"""How a driver stops: calls in flight get their grace, then everything is handed back, all within bounds."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final

from streams.driver.held import Cause, Held

RELEASE_SECONDS: Final = 1.0


class Drain:
    """The way out, taken at most once. It may be shortened while it is under way, never lengthened."""

    def __init__(self, held: Held, tasks: Callable[[], Collection["asyncio.Task[None]"]]) -> None:
        self._held = held
        self._tasks = tasks
        self._ends_at = float("inf")
        self._asked = asyncio.Event()
        self.begun = False

    def ask(self, grace_seconds: float) -> None:
        """Begin to stop, with *grace_seconds* from now for the calls in flight; the shortest grace asked for counts."""
        self.begun = True
        self._ends_at = min(self._ends_at, time.monotonic() + grace_seconds)
        self._asked.set()

    async def asked(self) -> None:
        """Wait until somebody asks."""
        await self._asked.wait()

    async def finish(self) -> None:
        """Let the runs in hand come to rest until the grace ends, then have the others handed back."""
        await self._grace()
        for holding in self._held:
            holding.interrupt(Cause.DRAINED)
        await ended(self._tasks(), RELEASE_SECONDS)

    async def _grace(self) -> None:
        while self._tasks() and (left := self._ends_at - time.monotonic()) > 0:
            self._asked.clear()
            asked = asyncio.create_task(self._asked.wait())
            try:
                await asyncio.wait({asked, *self._tasks()}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()


async def ended(tasks: Collection["asyncio.Task[None]"], seconds: float) -> bool:
    """Wait until all *tasks* have ended, at most *seconds*; return whether they have.

    Unlike a time-out around a gather it waits for nothing else: a task that is slow to be cancelled, by a connection
    that nobody answers on, does not hold up the end.
    """
    if not tasks:
        return True
    _, pending = await asyncio.wait(tasks, timeout=seconds)
    return not pending
