"""Reading what waits in the shards held: as much as there is room for, and of no key that has to wait."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from schemas.errors import StoreUnavailable
from store.relay_queue import BLOCKED_AT, RelayQueue
from streams.relay.marks import Kind, Marks
from streams.relay.window import Key, Row, Window, key_of

MOST_ROWS: Final = 1_000
MOST_LETTERS: Final = 64
LETTERS_PER_SHARD: Final = 4
"""Letters can be as large as their topic allows, so that few are read at once."""

BLOCKED_LOOK_SECONDS: Final = 10.0
LONGEST_RETRY_SECONDS: Final = 30.0
READ_PAUSE_SECONDS: Final = 0.005
"""Wake-ups come with each commit: so many of them are served by one read."""


class Reader:
    """Fills the window from the queue, and knows which keys were found blocked."""

    def __init__(self, queue: RelayQueue, window: Window) -> None:
        self._queue = queue
        self._window = window
        self._marks = Marks()
        self._more = True
        self._read_at = 0.0
        self._blocked: dict[Key, float] = {}

    def look_again(self) -> None:
        """Something may have been queued, or may be read now."""
        self._more = True

    def wants(self) -> bool:
        """Whether there may be something to read, and there is room for it."""
        return (self._more or self._window.has_unread) and self._window.rows <= MOST_ROWS // 2

    async def read(self, shards: frozenset[int], *, with_events: bool) -> None:
        """Read once from *shards*; without events while their topic cannot be published to.

        Raises:
            StoreUnavailable: nothing is known; it is still wanted.
        """
        await asyncio.sleep(max(0.0, self._read_at + READ_PAUSE_SECONDS - time.monotonic()))
        self._more = False
        for (kind, shard), id in self._window.take_unread().items():
            self._marks.lower(kind, shard, id)
        if not shards:
            return
        try:
            await self._read(shards, with_events=with_events)
        except StoreUnavailable:
            self._more = True
            raise
        self._read_at = time.monotonic()

    def try_all(self) -> None:
        """Nothing that was found to wait may be left alone on the strength of that: look at the rows themselves."""
        self._blocked.clear()
        self._window.wake_aside(math.inf)
        self._more = True

    def forget(self, shards: Collection[int]) -> None:
        """*shards* were lost: where reads of them may begin is not known any more."""
        self._marks.forget(shards)

    def low(self) -> Mapping[int, int]:
        """The ids, by shard, below which nothing waits that has not been seen."""
        return self._marks.lowest(time.monotonic())

    def block(self, key: Key) -> None:
        """Note that *key* was found blocked."""
        self._blocked[key] = time.monotonic()

    def unblock(self, key: Key) -> None:
        """Note that something of *key* was published."""
        self._blocked.pop(key, None)

    def blocked(self) -> list[Key]:
        """The keys that were blocked when last looked at."""
        since = time.monotonic() - 2 * BLOCKED_LOOK_SECONDS
        self._blocked = {key: seen for key, seen in self._blocked.items() if seen >= since}
        return list(self._blocked)

    async def _read(self, shards: frozenset[int], *, with_events: bool) -> None:
        now = time.monotonic()
        if self._marks.must_ask(now):
            self._marks.note_writers(await self._queue.writers(), now)
        jobs, letters = self._window.skips()
        if with_events:
            limit, low = max(1, (MOST_ROWS - self._window.rows) // len(shards)), self._marks.begin("event", now)
            self._take("event", shards, await self._queue.events(shards, limit=limit, skip=jobs, low=low), limit)
        if self._window.letters < MOST_LETTERS:
            limit, low = LETTERS_PER_SHARD, self._marks.begin("letter", now)
            self._take("letter", shards, await self._queue.letters(shards, limit=limit, skip=letters, low=low), limit)

    def _take(self, kind: Kind, shards: frozenset[int], rows: Sequence[Row], limit: int) -> None:
        """Take rows in hand, but none whose key waits for its next try; a shard that gave its limit may have more."""
        self._marks.end(kind, shards, rows, limit)
        for row in rows:
            until = self._not_before(row)
            if until is not None:
                self._window.leave(row, until=until)
            self._window.add(row)
        self._more |= limit in Counter(row.shard for row in rows).values()

    def _not_before(self, row: Row) -> float | None:
        """When the row may be tried, by this process's clock; None: now."""
        now = time.monotonic()
        if row.attempts >= BLOCKED_AT:
            self.block(key_of(row))
            return now + BLOCKED_LOOK_SECONDS
        seconds = row.wait_seconds
        return now + min(seconds, LONGEST_RETRY_SECONDS) if seconds is not None and seconds > 0 else None
