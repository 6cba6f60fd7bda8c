"""What the relay has read and not finished: which row may go next, and which keys to leave alone. No I/O.

Of one key (a job's events; a dead letter is a key of its own) only one record is on its way at a time, and the next one
goes after its acknowledgement. So a record that is refused never sees a later one of its key overtake it, and nothing
else has to stop for it.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from store.records import QueuedEvent, QueuedLetter
from store.step_records import QueuedRecord
from streams.relay.marks import Kind

Row = QueuedEvent | QueuedRecord | QueuedLetter
Key = UUID | int
"""A job's id, or a letter's."""


def key_of(row: Row) -> Key:
    """Within which rows the order counts."""
    return row.letter_id if isinstance(row, QueuedLetter) else row.job_id


def kind_of(row: Row) -> Kind:
    """Which of the two kinds of reads found it: records that steps send come with the events."""
    return "letter" if isinstance(row, QueuedLetter) else "event"


@dataclass(frozen=True, slots=True)
class _Aside:
    """A key left alone until then; *row* is the first of its rows that was."""

    until: float
    row: Row


@dataclass(slots=True)
class _Lane:
    """The rows of one key: at most one is sent, those behind it wait, those before it wait to be deleted."""

    shard: int
    waiting: deque[Row] = field(default_factory=deque)
    sent: Row | None = None
    undeleted: set[int] = field(default_factory=set)

    @property
    def rows(self) -> int:
        return len(self.waiting) + len(self.undeleted) + (self.sent is not None)


class Window:
    """The rows in hand. Rows are added in the order of their ids."""

    def __init__(self) -> None:
        self._lanes: dict[Key, _Lane] = {}
        self._sendable: deque[Key] = deque()
        self._aside: dict[Key, _Aside] = {}
        self._skipped: set[Key] = set()
        self._unread: dict[tuple[Kind, int], int] = {}

    @property
    def rows(self) -> int:
        """How many rows are in hand."""
        return sum(lane.rows for lane in self._lanes.values())

    @property
    def letters(self) -> int:
        """How many of them are dead letters, which can be large."""
        return sum(lane.rows for key, lane in self._lanes.items() if isinstance(key, int))

    def skips(self) -> tuple[list[UUID], list[int]]:
        """The jobs and letters that a read must leave out: those in hand, and those set aside."""
        keys = self._lanes.keys() | self._aside.keys()
        self._skipped |= keys
        return [key for key in keys if isinstance(key, UUID)], [key for key in keys if isinstance(key, int)]

    @property
    def has_unread(self) -> bool:
        """Whether a key became free that a read had left out: read again, it may have more."""
        return bool(self._unread)

    def take_unread(self) -> dict[tuple[Kind, int], int]:
        """Say once where the rows of such keys may stand: per kind and shard, from which id on."""
        unread, self._unread = self._unread, {}
        return unread

    def add(self, row: Row) -> None:
        """Take a row that was just read in hand; one whose key was left alone meanwhile is passed over."""
        key = key_of(row)
        if key in self._aside:
            return
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(row.shard)
            self._sendable.append(key)
        lane.waiting.append(row)

    def leave(self, row: Row, *, until: float) -> None:
        """Leave *row*, which was just read, and all later ones of its key alone until then."""
        key = key_of(row)
        self._skipped.add(key)
        self._aside.setdefault(key, _Aside(until, row))

    def next(self) -> Row | None:
        """The next row to send, which counts as sent from now on; None when nothing may go."""
        while self._sendable:
            lane = self._lanes.get(self._sendable.popleft())
            if lane is not None and lane.waiting and lane.sent is None:
                lane.sent = lane.waiting.popleft()
                return lane.sent
        return None

    def acknowledged(self, row: Row) -> bool:
        """Note that the broker has *row*, so that its successor may go; False when it is not in hand any more."""
        lane = self._lane_of(row)
        if lane is None:
            return False
        lane.sent = None
        lane.undeleted.add(row.id)
        if lane.waiting:
            self._sendable.append(key_of(row))
        return True

    def put_back(self, row: Row, *, until: float | None = None) -> bool:
        """Forget *row*, which was sent, and those behind it: they are read again, but not before *until*.

        False when it is not in hand any more.
        """
        lane, key = self._lane_of(row), key_of(row)
        if lane is None:
            return False
        lane.sent = None
        lane.waiting.clear()
        self._skipped.add(key)
        if until is not None:
            self._aside[key] = _Aside(until, row)
        self._free(row, lane)
        return True

    def deleted(self, rows: Iterable[Row]) -> None:
        """Note that acknowledged rows have left the queue."""
        for row in rows:
            lane = self._lanes.get(key_of(row))
            if lane is not None and row.id in lane.undeleted:
                lane.undeleted.remove(row.id)
                self._free(row, lane)

    def wake_aside(self, now: float) -> None:
        """Let go of the keys whose time has come."""
        for key in [key for key, aside in self._aside.items() if aside.until <= now]:
            self._note_free(self._aside.pop(key).row)

    def next_wake(self) -> float | None:
        """When `wake_aside` will next have something to do."""
        return min((aside.until for aside in self._aside.values()), default=None)

    def holds(self, shards: Collection[int]) -> bool:
        """Whether rows of *shards* are in hand."""
        return any(lane.shard in shards for lane in self._lanes.values())

    def forget(self, shards: Collection[int]) -> bool:
        """Drop everything of *shards*; whether a record of theirs is on its way."""
        lost = {key: lane for key, lane in self._lanes.items() if lane.shard in shards}
        for key in lost:
            del self._lanes[key]
            self._skipped.discard(key)
        return any(lane.sent is not None for lane in lost.values())

    def _lane_of(self, row: Row) -> _Lane | None:
        lane = self._lanes.get(key_of(row))
        return lane if lane is not None and lane.sent is row else None

    def _free(self, row: Row, lane: _Lane) -> None:
        if not lane.rows:
            del self._lanes[key_of(row)]
            self._note_free(row)

    def _note_free(self, row: Row) -> None:
        """What reads left out of the row's key is *row*, or behind it."""
        key, place = key_of(row), (kind_of(row), row.shard)
        if key not in self._lanes and key not in self._aside and key in self._skipped:
            self._skipped.discard(key)
            self._unread[place] = min(row.id, self._unread.get(place, row.id))
