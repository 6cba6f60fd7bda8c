"""One look at what housekeeping needs to know, shared by everybody in a process who needs it.

An idle worker would otherwise ask the same database the same kind of question from five places. Here they ask together:
whoever can do with what was found a moment ago gets that, and those who ask at once get one answer.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import StoreUnavailable
from store.database import Database
from store.history import Place

COUNT_SECONDS: Final = 10.0
"""How old the counts of a look may be while they are low: counting is what costs."""

MOST_LETTERS: Final = 10_000
"""How far open dead letters are counted."""

_NO_COUNT: Final = {"most_runs": 0, "most_letters": 0}


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at one moment.

    Attributes:
        at: When it was asked, on the monotonic clock.
        expires_in: In how many seconds from then the next lease runs out, negative when it has; None: nothing runs.
        comes_due_in: In how many seconds something happens by itself to a run that nobody holds, negative when it is to
            happen now: a wait ends, an answer or the whole run is overdue, somebody is reminded. None: nothing will.
        is_due: Whether any queued run is due, whatever it waits for.
        queued: How many runs are due and wait for a worker, counted up to a limit, at most `COUNT_SECONDS` before.
        held_letters: How many dead letters are held for their schema, counted like that.
        ready_letters: How many wait for the relay, counted like that.
    """

    at: float
    expires_in: float | None
    comes_due_in: float | None
    is_due: bool
    queued: int
    held_letters: int
    ready_letters: int


class Looks:
    """Looks at one database, for all of one process."""

    def __init__(
        self, database: Database, *, most_queued: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is asked yet. Queued runs are counted up to *most_queued*, and each time from half of that on."""
        self._database = database
        self._most_queued = most_queued
        self._clock = clock
        self._looking = asyncio.Lock()
        self._last: Look | None = None
        self._counted_at = float("-inf")
        self._on_away: list[Callable[[], None]] = []
        self.away: str | None = None
        """Why the last look had no usable answer; None when it had one."""

    def on_away(self, callback: Callable[[], None]) -> None:
        """Have *callback* called by each look that gets no usable answer. It must not raise or block."""
        self._on_away.append(callback)

    async def look(self, *, newest_seconds: float = 0.0) -> Look:
        """Return what is so now, or what was found at most *newest_seconds* ago.

        Raises:
            StoreUnavailable: no answer, or one of a server that takes no writes, as after a failover. Look again.
        """
        good_from = self._clock() - newest_seconds
        async with self._looking:
            if self._last is None or self._last.at < good_from:
                last, self._last = self._last, None
                try:
                    self._last = await self._anew(last)
                except StoreUnavailable as error:
                    self.away = str(error)
                    for callback in self._on_away:
                        callback()
                    raise
                self.away = None
            return self._last

    async def _anew(self, last: Look | None) -> Look:
        at = self._clock()
        counts = last is None or at - self._counted_at >= COUNT_SECONDS or last.queued > self._most_queued / 2
        limits = {"most_runs": self._most_queued, "most_letters": MOST_LETTERS} if counts else _NO_COUNT
        [row] = await self._rows(**limits, now=None)
        if row["timeline"] is not None:  # a standby has none
            self._database.history.see(Place(row["timeline"], row["position"]))
        if row["read_only"]:
            raise StoreUnavailable("the server takes no writes: it is read-only")
        if last is not None and not counts:
            row |= {"queued": last.queued, "held_letters": last.held_letters, "ready_letters": last.ready_letters}
        else:
            self._counted_at = at
        names = ("expires_in", "comes_due_in", "is_due", "queued", "held_letters", "ready_letters")
        return Look(at, *(row[name] for name in names))

    async def _rows(self, **params: object) -> list[dict[str, Any]]:
        return await self._database.rows("looks/look", params)
