"""Watches an assignment while it is read: whether it still says what is so, what was lost, and how late reading is."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from prometheus_client import Gauge

from schemas.errors import BrokerUnavailable, SettingsInvalid, StoreUnavailable
from streams.kafka.assignment import Assignment, Partition
from streams.kafka.backpressure import Backpressure
from streams.kafka.log_reader import LogState
from streams.kafka.positions import Log, StartingPoints
from streams.kafka.topics import RETENTION
from streams.metrics import Metrics

# A transaction leaves a gap at its end: the brokers are not asked about each of them.
_SECONDS_BETWEEN_GAPS: Final = 1.0
_SECONDS_BETWEEN_AGES: Final = 60.0
# Whoever changes a position by hand sends a wake-up: without one the rows are hardly worth a look.
_SECONDS_BETWEEN_READS: Final = 60.0


class Logs(Protocol):
    """Reads single records; see `streams.kafka.log_reader`."""

    async def look(self, places: Mapping[Partition, int | None]) -> Mapping[Partition, LogState]: ...


class TopicConfigs(Protocol):
    """Tells a topic's config; see `streams.kafka.topic_admin`."""

    async def config(self, topic: str) -> Mapping[str, str] | None: ...


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late one partition is: offsets that are not read, and when retention takes the first of them at the earliest.

    `kept_until` is None where nothing waits, retention by time takes nothing, or it was not asked yet.
    """

    lag: int
    kept_until: datetime | None

    def seconds_left(self, now: datetime) -> float | None:
        """Return how long that is from *now*, 0 at the lowest."""
        return None if self.kept_until is None else max(0.0, (self.kept_until - now).total_seconds())


class PositionWatch:
    """Looks at the assignment of a worker, whichever it is, for the life of the worker."""

    def __init__(
        self,
        *,
        starts: StartingPoints,
        logs: Logs,
        configs: TopicConfigs,
        metrics: Metrics,
        changed_by_hand: asyncio.Event,
        seconds_between_looks: float = 10.0,
        seconds_between_ages: float = _SECONDS_BETWEEN_AGES,
        seconds_between_reads: float = _SECONDS_BETWEEN_READS,
    ) -> None:
        """*changed_by_hand* is set when an operator may have moved a position; it is cleared here."""
        self._starts = starts
        self._logs = logs
        self._configs = configs
        self._metrics = metrics
        self._changed_by_hand = changed_by_hand
        self._seconds_between_looks = seconds_between_looks
        self._seconds_between_ages = seconds_between_ages
        self._seconds_between_reads = seconds_between_reads
        self._read_at = float("-inf")
        self._ages_asked_at = float("-inf")
        self.lateness: dict[Partition, Lateness] = {}
        """Each partition that is read now and was looked at."""

    async def until_void(self, assignment: Assignment, log_of: Log) -> str:
        """Watch *assignment* until it no longer says what is so, and return why. No answer means: ask again later.

        What ends it is a topic that was made again under its name, or a position that was changed by hand.
        """
        look_at = time.monotonic() + self._seconds_between_looks
        while True:
            has_gaps = await assignment.gap_within(max(0.0, look_at - time.monotonic()))
            with contextlib.suppress(BrokerUnavailable, StoreUnavailable):  # who reads and writes tells of the outage
                if has_gaps:
                    await self._count_lost(assignment, log_of)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + self._seconds_between_looks
                    if why := await self._look(assignment, log_of):
                        return why
            if has_gaps:
                await asyncio.sleep(min(_SECONDS_BETWEEN_GAPS, self._seconds_between_looks))

    def forget(self) -> None:
        """Say nothing more about the partitions: they are not this worker's any more."""
        for partition in list(self.lateness):
            self._drop(partition)
        self._ages_asked_at = float("-inf")

    def told(self) -> str | None:
        """Say how much is not read, and how soon retention takes the first of it; None while nothing waits."""
        late = {partition: lateness for partition, lateness in self.lateness.items() if lateness.lag}
        if not late:
            return None
        now = datetime.now(UTC)
        left = {p: seconds for p, lateness in late.items() if (seconds := lateness.seconds_left(now)) is not None}
        lag = f"{sum(lateness.lag for lateness in late.values())} offsets are not read yet"
        if not left:
            return lag
        topic, number = first = min(left, key=lambda partition: left[partition])
        return f"{lag}, retention takes the first of {topic}[{number}] in {left[first]:.0f} s or later"

    async def _look(self, assignment: Assignment, log_of: Log) -> str | None:
        if topic := await self._starts.replaced(assignment):
            return f"{topic} was made again"
        if (partition := await self._moved(assignment)) is not None:
            return f"the position of {partition[0]}[{partition[1]}] was changed by hand"
        await self._measure(assignment, log_of)
        return None

    async def _moved(self, assignment: Assignment) -> Partition | None:
        """A partition whose position was changed by hand, of which this process was told or which it looks for."""
        if not self._changed_by_hand.is_set() and time.monotonic() < self._read_at:
            return None
        self._read_at = float("-inf")  # without an answer it is asked for again
        self._changed_by_hand.clear()
        moved = await self._starts.changed_by_hand(assignment)
        self._read_at = time.monotonic() + self._seconds_between_reads
        return moved

    async def _count_lost(self, assignment: Assignment, log_of: Log) -> None:
        gaps = assignment.take_gaps()
        bounds = await log_of.bounds({gap.partition for gap in gaps})
        for gap in gaps:
            self._starts.report_gap(assignment, gap, bounds[gap.partition])

    async def _measure(self, assignment: Assignment, log_of: Log) -> None:
        bounds = await log_of.bounds(assignment.partitions)
        unread = {p: max(bounds[p].start, state.unread_from) for p, state in assignment.partitions.items()}
        lag = {partition: max(0, bounds[partition].end - offset) for partition, offset in unread.items()}
        late = {partition: offset for partition, offset in unread.items() if lag[partition]}
        kept_until = {p: known.kept_until for p, known in self.lateness.items() if p in late}
        if late and time.monotonic() - self._ages_asked_at >= self._seconds_between_ages:
            kept_until = await self._kept_until(late)
            self._ages_asked_at = time.monotonic()
        for partition in self.lateness.keys() - lag.keys():
            self._drop(partition)
        for partition, offsets in lag.items():
            self._tell(partition, Lateness(offsets, kept_until.get(partition)))

    async def _kept_until(self, late: Mapping[Partition, int]) -> dict[Partition, datetime | None]:
        retention = {topic: await self._retention(topic) for topic in {topic for topic, _ in late}}
        logs = await self._logs.look(late)
        return {partition: _kept_until(logs[partition], retention[partition[0]]) for partition in late}

    async def _retention(self, topic: str) -> timedelta | None:
        try:
            config = await self._configs.config(topic)
        except SettingsInvalid:  # no right to read it: then it is not told
            return None
        return retention_of(config or {})

    def _tell(self, partition: Partition, lateness: Lateness) -> None:
        self.lateness[partition] = lateness
        labels = (partition[0], str(partition[1]))
        self._metrics.intake_lag.labels(*labels).set(lateness.lag)
        if (seconds := lateness.seconds_left(datetime.now(UTC))) is not None:
            self._metrics.intake_retention_left.labels(*labels).set(seconds)
        else:
            _remove(self._metrics.intake_retention_left, labels)

    def _drop(self, partition: Partition) -> None:
        del self.lateness[partition]
        for gauge in (self._metrics.intake_lag, self._metrics.intake_retention_left):
            _remove(gauge, (partition[0], str(partition[1])))


@dataclass(frozen=True, slots=True)
class Reading:
    """What says where reading begins, what becomes of that, and when to read nothing. It outlives every assignment."""

    starts: StartingPoints
    watch: PositionWatch
    backpressure: Backpressure


def retention_of(config: Mapping[str, str]) -> timedelta | None:
    """Return how long a topic with *config* keeps records by time; None where it does not say, or for ever."""
    milliseconds = int(config.get(RETENTION, "-1"))
    return timedelta(milliseconds=milliseconds) if milliseconds >= 0 else None


def _kept_until(log: LogState, retention: timedelta | None) -> datetime | None:
    return None if retention is None or log.next_time is None else log.next_time + retention


def _remove(gauge: Gauge, labels: tuple[str, str]) -> None:
    with contextlib.suppress(KeyError):
        gauge.remove(*labels)
