"""Where reading begins at an assignment: Kafka's committed offset and the database's position, and who is believed."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from store.positions import Positions
from store.records import Position
from streams.kafka.assignment import AssignedPartition, Assignment, Gap, Partition
from streams.kafka.identities import Identities
from streams.metrics import Metrics

log = logging.getLogger(__name__)

# For a moment after a change of leader the new one may not know yet how far its log is replicated.
_LOOKS_BEYOND_END: Final = 5


class StartReason(StrEnum):
    """Why reading begins where it does."""

    FIRST = "no position is known"
    AGREED = "both positions agree"
    COMMITTED_LOWER = "Kafka's committed offset is lower than the stored position"
    STORED_LOWER = "the stored position is lower than Kafka's committed offset"
    ONLY_COMMITTED = "only Kafka's committed offset is known: the rows that it stands for are gone"
    ONLY_STORED = "only the stored position is known"
    FLOOR = "the positions lie under the floor"
    TOPIC_REPLACED = "the topic was deleted and made again"
    BEYOND_END = "a position lies beyond the end of the log"
    RETENTION = "the log no longer reaches back to the position"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition's log begins, and the offset after its last replicated record."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin, and why. `lost` counts the offsets that retention removed before they were read."""

    offset: int
    why: StartReason
    lost: int = 0


def start_of(committed: int | None, stored: Position | None, topic_id: str, bounds: Bounds) -> Start:
    """Decide where reading begins.

    Both positions may be wrong in one direction only: too low is harmless, since rows are made once per job id. So the
    lower one is taken. Rows come before offsets: a committed offset without a stored position stands for rows that a
    database which was put back has lost, so everything that is still there is read. A position of another topic, or
    beyond the end of the log, says nothing about this log, which is then read from its beginning.

    Args:
        committed: The group's committed offset, None when there is none.
        stored: The position in the database, None when there is none.
        topic_id: Id of the topic as it is now.
        bounds: The log as it is now.
    """
    if stored is not None and stored.topic_id != topic_id:
        return Start(bounds.start, StartReason.TOPIC_REPLACED)
    known = [offset for offset in (committed, None if stored is None else stored.next_offset) if offset is not None]
    floor = stored.floor_offset if stored is not None else 0
    if known and max(known) > bounds.end:
        return Start(max(bounds.start, floor if floor <= bounds.end else 0), StartReason.BEYOND_END)
    if not known:
        return Start(max(bounds.start, floor), StartReason.FIRST)
    if stored is None and min(known) >= bounds.start:
        return Start(bounds.start, StartReason.ONLY_COMMITTED)
    wanted, why = max(min(known), floor), _why(committed, stored)
    if wanted >= bounds.start:
        return Start(wanted, StartReason.FLOOR if floor > min(known) else why)
    # What lies below the stored position has its rows, whatever Kafka's copy says.
    read = max(stored.next_offset, floor) if stored is not None else wanted
    return Start(bounds.start, StartReason.RETENTION, lost=max(0, bounds.start - read))


def _why(committed: int | None, stored: Position | None) -> StartReason:
    if stored is None:
        return StartReason.ONLY_COMMITTED
    if committed is None:
        return StartReason.ONLY_STORED
    if committed < stored.next_offset:
        return StartReason.COMMITTED_LOWER
    return StartReason.STORED_LOWER if committed > stored.next_offset else StartReason.AGREED


def _floor_of(stored: Position | None, start: Start) -> int:
    """Return the floor that holds for the log as it is. That of a log that is gone would hide records of this one."""
    if stored is None or start.why is StartReason.TOPIC_REPLACED or start.offset < stored.floor_offset:
        return 0
    return stored.floor_offset


class Log(Protocol):
    """The consumer's view of its partitions. Both raise BrokerUnavailable when there is no answer."""

    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int | None]: ...

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]: ...


class IdentitySource(Protocol):
    """Says which cluster and topics these are; see `streams.kafka.identities`."""

    async def of(self, topics: Collection[str]) -> Identities: ...


class StartingPoints:
    """Finds where to begin, for each assignment anew."""

    def __init__(
        self,
        *,
        group_id: str,
        positions: Positions,
        identities: IdentitySource,
        metrics: Metrics,
        seconds_between_looks: float = 1.0,
    ) -> None:
        self._group_id = group_id
        self._positions = positions
        self._identities = identities
        self._metrics = metrics
        self._seconds_between_looks = seconds_between_looks
        self._lost_below: dict[tuple[Partition, str], int] = {}
        self.lost: dict[str, int] = {}
        """Offsets that retention removed before they were read, by topic, since this process began."""

    async def assignment(self, number: int, partitions: Collection[Partition], log_of: Log) -> Assignment:
        """Return the assignment of *partitions*; its `next_offset`s are where to seek.

        Raises:
            StoreUnavailable: the positions cannot be read; ask again, and read nothing meanwhile.
            BrokerUnavailable: the logs cannot be looked at; the same.
        """
        topics = {topic for topic, _ in partitions}
        identities = await self._identities.of(topics)
        stored = await self._positions.read(self._group_id, sorted(topics))
        committed = await log_of.committed(partitions)
        starts = await self._starts(partitions, identities.topic_ids, stored, committed, log_of)
        assigned = {}
        for partition, start in sorted(starts.items()):
            position = stored.get(partition)
            self._tell(partition, start, committed.get(partition), position)
            self._count_lost(partition, identities.topic_ids[partition[0]], start)
            assigned[partition] = AssignedPartition(
                topic_id=identities.topic_ids[partition[0]],
                stored=None if position is None else position.next_offset,
                next_offset=start.offset,
                is_of_this_log=start.why not in (StartReason.TOPIC_REPLACED, StartReason.BEYOND_END),
                stored_floor=0 if position is None else position.floor_offset,
                floor=_floor_of(position, start),
            )
        return Assignment(number, identities.cluster_id, assigned)

    async def replaced(self, assignment: Assignment) -> str | None:
        """Return a topic of *assignment* that is another one now although its name is the same; None when none is.

        Raises:
            BrokerUnavailable: no answer, or a topic is not there at the moment.
        """
        identities = await self._identities.of({topic for topic, _ in assignment.partitions})
        for (topic, _), state in assignment.partitions.items():
            if identities.topic_ids[topic] != state.topic_id:
                return topic
        return None

    async def changed_by_hand(self, assignment: Assignment) -> Partition | None:
        """Return a partition of *assignment* whose stored position an operator changed; None when there is none.

        One that another reader moved on is none: the next batch finds out. A position goes back by hand alone.

        Raises:
            StoreUnavailable: no answer.
        """
        before = {p: (state.unread_from, state.stored_floor) for p, state in assignment.partitions.items()}
        stored = await self._positions.read(self._group_id, sorted({topic for topic, _ in before}))
        for partition, (unread_from, floor) in before.items():
            position = stored.get(partition)
            offset, floor_now = (position.next_offset, position.floor_offset) if position is not None else (0, 0)
            if offset < unread_from or floor_now not in (floor, assignment.partitions[partition].stored_floor):
                return partition
        return None

    def report_gap(self, assignment: Assignment, gap: Gap, bounds: Bounds) -> None:
        """Tell of what retention removed of *gap*, whose end was just read: what lies below the log's beginning."""
        end = min(gap.end, bounds.start)
        if end > gap.begin:
            topic_id = assignment.partitions[gap.partition].topic_id
            self._count_lost(gap.partition, topic_id, Start(end, StartReason.RETENTION, lost=end - gap.begin))

    async def _starts(
        self,
        partitions: Collection[Partition],
        topic_ids: Mapping[str, str],
        stored: Mapping[Partition, Position],
        committed: Mapping[Partition, int | None],
        log_of: Log,
    ) -> dict[Partition, Start]:
        starts: dict[Partition, Start] = {}
        for look in range(_LOOKS_BEYOND_END):
            doubtful = [p for p in partitions if p not in starts or starts[p].why is StartReason.BEYOND_END]
            if not doubtful:
                break
            if look:
                await asyncio.sleep(self._seconds_between_looks)
            bounds = await log_of.bounds(doubtful)
            for partition in doubtful:
                starts[partition] = start_of(
                    committed.get(partition), stored.get(partition), topic_ids[partition[0]], bounds[partition]
                )
        return starts

    def _tell(self, partition: Partition, start: Start, committed: int | None, stored: Position | None) -> None:
        usual = start.why in (StartReason.AGREED, StartReason.FIRST, StartReason.ONLY_STORED)
        log.log(
            logging.INFO if usual else logging.WARNING,
            "%s[%d] begins at %d: %s (committed %s, stored %s)",
            *(*partition, start.offset, start.why, committed, None if stored is None else stored.next_offset),
        )

    def _count_lost(self, partition: Partition, topic_id: str, start: Start) -> None:
        told_below = self._lost_below.get((partition, topic_id), 0)
        lost = min(start.lost, start.offset - told_below)
        if lost <= 0:
            return
        topic, number = partition
        self._lost_below[partition, topic_id] = start.offset
        self.lost[topic] = self.lost.get(topic, 0) + lost
        self._metrics.intake_records_lost.labels(topic).inc(lost)
        log.error("%s[%d]: retention removed %d offsets before they were read", topic, number, lost)
