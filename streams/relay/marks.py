"""Where in each shard a read may begin. No I/O.

Rows that were published leave dead entries at the low end of the queue's index, which nobody clears while some
transaction stays open elsewhere; each read would pass over all of them. So it begins at a mark below which nothing is
left to read. Ids are given out before commits: a mark that passed one which is not visible yet would leave its event
behind a later one of the same job. It therefore follows the ids of which it is known that all are visible, or never
will be (`RelayQueue.writers`).
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from store.records import QueuedEvent, QueuedLetter
from store.step_records import QueuedRecord

FULL_READ_SECONDS: Final = 10.0
"""At the latest after this time everything is read from the beginning, whatever the marks say."""

ASK_SECONDS: Final = 1.0

Kind = Literal["event", "letter"]
KINDS: Final[tuple[Kind, ...]] = ("event", "letter")


class Marks:
    """The marks of one relay, for events and for letters. Call `begin` before a read and `end` after it."""

    def __init__(self) -> None:
        self._low: dict[Kind, dict[int, int]] = {kind: {} for kind in KINDS}
        self._given: dict[int, int] = {}  # the highest id read: it and all lower ones have been given out
        self._asked: dict[int, int] = {}  # what `_given` was when the writers were last asked for
        self._settled: dict[int, int] = {}  # up to here every id is visible, or never will be
        self._writers: frozenset[str] = frozenset()
        self._asked_at = -math.inf
        self._full_at = -math.inf
        self._forgotten: set[int] = set()

    def must_ask(self, now: float) -> bool:
        """Whether it is time to call `note_writers`: not often, and only if rows were read since the last time."""
        return now - self._asked_at >= ASK_SECONDS and self._given != self._settled

    def note_writers(self, writers: frozenset[str], now: float) -> None:
        """Take in who is writing. What had been given out is settled once those who wrote then have all ended."""
        self._asked_at = now
        if self._writers.isdisjoint(writers):
            self._settled = self._asked
            self._asked, self._writers = dict(self._given), writers

    def begin(self, kind: Kind, now: float) -> Mapping[int, int]:
        """Return the ids to begin with, by shard; a shard that is missing is read from its beginning."""
        if now - self._full_at >= FULL_READ_SECONDS:
            self._full_at = now
            for marks in self._low.values():
                marks.clear()
        self._forgotten.clear()
        return dict(self._low[kind])

    def end(
        self,
        kind: Kind,
        shards: Collection[int],
        rows: Iterable[QueuedEvent | QueuedRecord | QueuedLetter],
        limit: int,
    ) -> None:
        """Move the marks up after a read that found *rows* in *shards*: all that there is, or *limit* in a shard."""
        found: dict[int, list[int]] = {}
        for row in rows:
            found.setdefault(row.shard, []).append(row.id)
        for shard in set(shards) - self._forgotten:
            ids = found.get(shard, [])
            if shard in self._settled:
                complete = ids[-1] if len(ids) >= limit else math.inf
                self._low[kind][shard] = int(min(self._settled[shard], complete)) + 1
            if ids:
                self._given[shard] = max(ids[-1], self._given.get(shard, 0))

    def lower(self, kind: Kind, shard: int, id: int) -> None:
        """Have the next read find the row *id*, which an earlier one left out."""
        if self._low[kind].get(shard, 0) > id:
            self._low[kind][shard] = id

    def forget(self, shards: Iterable[int]) -> None:
        """Know nothing of *shards* any more, also where a read of them is under way."""
        for shard in shards:
            self._forgotten.add(shard)
            for known in (*self._low.values(), self._given, self._asked, self._settled):
                known.pop(shard, None)

    def lowest(self, now: float) -> Mapping[int, int]:
        """Return the ids below which nothing is left to read, of either kind; none when a read of everything is due."""
        if now - self._full_at >= FULL_READ_SECONDS:
            return {}
        events, letters = (self._low[kind] for kind in KINDS)
        return {shard: min(events[shard], letters[shard]) for shard in events.keys() & letters.keys()}
