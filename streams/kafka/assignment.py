"""What this worker may read at the moment, and how far the rows of each partition have come."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from store.records import PositionMove
from streams.kafka.holds import Holds

Partition = tuple[str, int]
"""Topic and number."""

_MOST_GAPS: Final = 1_000  # between two looks, a second apart


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets from `begin` up to below `end` that were never handed out: markers, compaction, or lost records."""

    partition: Partition
    begin: int
    end: int


class AssignmentEnded(Exception):
    """The partitions were taken away, or are read from another place: drop the work. It is read again."""


@dataclass(slots=True)
class AssignedPartition:
    """One partition of an assignment.

    `stored` is the position in the database as this worker read it at the start or wrote it last, None where there is
    none: what a compare-and-set must find. `next_offset` is where the next fetched record can stand at the earliest.
    `is_of_this_log` is False while the stored position is of a log that is gone. `stored_floor` belongs to `stored`,
    `floor` is what of it holds for this log.
    """

    topic_id: str
    stored: int | None
    next_offset: int
    is_of_this_log: bool = True
    stored_floor: int = 0
    floor: int = 0

    @property
    def unread_from(self) -> int:
        """The lowest offset that may not be stored, as far as this log is concerned."""
        return self.stored if self.stored is not None and self.is_of_this_log else 0

    def advanced(self, next_offset: int) -> int:
        """Return the position once everything below *next_offset* is stored: records read again never set it back."""
        return next_offset if self.stored is None or not self.is_of_this_log else max(next_offset, self.stored)


class Assignment:
    """The partitions that this worker reads, from one seek until the next change of anything about them.

    Every record carries the assignment it was fetched under. One that ended accepts nothing more: its records are
    dropped wherever they are, since the next reader starts at or before them.
    """

    def __init__(self, number: int, cluster_id: str, partitions: Mapping[Partition, AssignedPartition]) -> None:
        self.number = number
        self.cluster_id = cluster_id
        self.partitions = partitions
        self.holds = Holds()
        self.unstored_records = 0
        self.unstored_bytes = 0
        self._ended = asyncio.Event()
        self._at_work = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._gaps: list[Gap] = []
        self._gap_seen = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """Let no further work begin. Work that waits for something raises AssignmentEnded."""
        self._ended.set()
        self._room.set()
        self._gap_seen.set()

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than the assignment lasts.

        Raises:
            AssignmentEnded: it has ended, now or before.
        """
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return
        raise AssignmentEnded

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count the caller as at work on a batch, so that whoever ends the assignment can wait for it.

        Raises:
            AssignmentEnded: it has ended; the batch must not be begun.
        """
        if self.ended:
            raise AssignmentEnded
        self._at_work += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until nobody is at work on a batch."""
        await self._idle.wait()

    def fetched(self, partition: Partition, first_offset: int, last_offset: int) -> bool:
        """Note records as fetched. False means that they stand before what was read: the log is not what it was."""
        state = self.partitions[partition]
        if first_offset < state.next_offset:
            return False
        if first_offset > state.next_offset and len(self._gaps) < _MOST_GAPS:
            self._gaps.append(Gap(partition, state.next_offset, first_offset))
            self._gap_seen.set()
        state.next_offset = last_offset + 1
        return True

    async def gap_within(self, seconds: float) -> bool:
        """Wait until offsets were passed over, but no longer than *seconds*.

        Raises:
            AssignmentEnded: it has ended, now or before.
        """
        # Not wait_for: it forgets a cancellation that comes together with what it waits for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gap_seen.wait()
        if self.ended:
            raise AssignmentEnded
        return bool(self._gaps)

    def take_gaps(self) -> list[Gap]:
        """Return the gaps that were seen since the last call."""
        taken, self._gaps = self._gaps, []
        if not self.ended:
            self._gap_seen.clear()
        return taken

    def buffered(self, size: int) -> None:
        """Note one record of *size* bytes as waiting to be stored."""
        self.unstored_records += 1
        self.unstored_bytes += size

    def unbuffered(self, records: int, size: int) -> None:
        """Note that *records* of *size* bytes together wait no longer."""
        self.unstored_records -= records
        self.unstored_bytes -= size
        self._room.set()

    async def room(self, most_records: int, most_bytes: int) -> None:
        """Wait until fewer than *most_records* records and *most_bytes* bytes wait to be stored, or the end."""
        while not self.ended and (self.unstored_records >= most_records or self.unstored_bytes >= most_bytes):
            self._room.clear()
            await self._room.wait()

    def moves(self, next_offsets: Mapping[Partition, int]) -> list[PositionMove]:
        """Return the compare-and-sets that bring the stored positions to *next_offsets*."""
        return [
            PositionMove(
                topic=partition[0],
                partition=partition[1],
                topic_id=self.partitions[partition].topic_id,
                expected=self.partitions[partition].stored,
                next_offset=self.partitions[partition].advanced(next_offset),
                expected_floor=self.partitions[partition].stored_floor,
                floor_offset=self.partitions[partition].floor,
            )
            for partition, next_offset in next_offsets.items()
        ]

    def moved(self, moves: Iterable[PositionMove]) -> None:
        """Note *moves* as committed."""
        for move in moves:
            state = self.partitions[move.topic, move.partition]
            state.stored, state.is_of_this_log = move.next_offset, True
            state.stored_floor = move.floor_offset
