"""Faust's Kafka transport: committed records only, a short fetch wait, and reading that begins where we say.

Faust's own consumer reads uncommitted records, waits 1.5 s in a fetch, begins at Kafka's committed offset and drops
everything below the highest offset it has seen of a partition, for good when the log was replaced. Here nothing is read
before the starting points of an assignment are known, and each record carries the assignment it was fetched under.
"""

import asyncio
import contextlib
import itertools
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, ClassVar, Final, TypeVar

import faust
from aiokafka.errors import KafkaError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from yarl import URL

from schemas.errors import BrokerUnavailable, StoreUnavailable
from streams.kafka.assignment import Assignment, Partition
from streams.kafka.backpressure import Backpressure
from streams.kafka.batches import Unreadable
from streams.kafka.consumer_thread import IntakeConsumerThread
from streams.kafka.offsets import Offsets
from streams.kafka.other_loop import run_in
from streams.kafka.positions import Bounds, StartingPoints
from streams.kafka.records import Record
from streams.kafka.watch import PositionWatch

_log = logging.getLogger(__name__)

# Faust waits for the seek no longer than a request time-out and then for ever: it goes on behind this.
_SEEK_PATIENCE_SECONDS: Final = 5.0
# How long a rebalance waits for the transaction in hand, and for its offsets; a stop has less time.
_SETTLE_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 2.0
_STOP_SETTLE_SECONDS: Final = 2.0
_STOP_FLUSH_SECONDS: Final = 1.0
_NOTHING_TO_READ_SECONDS: Final = 0.05
_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 2.0

_Answer = TypeVar("_Answer")


class IntakeMessage(ConsumerMessage):
    """A record on its way through Faust, with the assignment it was fetched under."""

    __slots__ = ("assignment", "record")

    record: Record
    assignment: Assignment


class IntakeConsumer(driver.Consumer):
    """Reads what `StartingPoints` says, from where it says."""

    transport: "IntakeTransport"
    _thread: IntakeConsumerThread

    def __init__(self, transport: "IntakeTransport", *args: Any, **kwargs: Any) -> None:
        super().__init__(transport, *args, **kwargs)
        self.current: Assignment | None = None
        self.waits_for: str | None = None
        """Why nothing can be read although partitions are assigned; None while it can."""
        self._read_offset = _NoReadOffsets()
        self._fetched_under: Assignment | None = None
        self._assigned: frozenset[Partition] = frozenset()
        self._keeping: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._begun = asyncio.Event()
        self._numbers = itertools.count(1)

    def _new_consumer_thread(self) -> IntakeConsumerThread:
        return IntakeConsumerThread(self, loop=self.loop, beacon=self.beacon)

    # What Faust calls, in the order of a rebalance.

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let the batch in hand and its offsets through, drop the rest, then let the partitions go."""
        self._assigned = frozenset()
        self.transport.watch.forget()
        ended = self._end()
        await super().on_partitions_revoked(revoked)
        await self._settle(ended, _SETTLE_SECONDS, _FLUSH_SECONDS)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self._assigned = frozenset((partition.topic, partition.partition) for partition in assigned)
        await super().on_partitions_assigned(assigned, generation_id)

    async def perform_seek(self) -> None:
        """Find the starting points of the assignment and seek to them.

        Returns after a few seconds even if they are not found yet, because the store is away, say: nothing is read
        until they are. Faust asks again whenever it threw fetched records away, which needs no second seek.
        """
        if self._keeping is None and self._assigned:
            self._begin()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._begun.wait(), _SEEK_PATIENCE_SECONDS)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, list[Any]]:
        # The one that reading was let go on for: the records of a later one would be thrown away by Faust.
        assignment = self.current
        if assignment is None:
            await asyncio.sleep(_NOTHING_TO_READ_SECONDS)
            return {}
        if self.transport.backpressure.reason is not None:
            await asyncio.sleep(_NOTHING_TO_READ_SECONDS)
            return {}
        if not await self._room(assignment, timeout):
            return {}
        reads = {tp for tp in active_partitions or () if (tp.topic, tp.partition) not in assignment.holds}
        if not reads:  # Faust would take none for all
            await asyncio.sleep(_NOTHING_TO_READ_SECONDS)
            return {}
        most = self.app.conf.broker_max_poll_records
        fetched = await self.in_thread(lambda: self._thread.fetched(assignment.number, reads, timeout, most))
        if assignment is not self.current:
            return {}
        self._fetched_under = assignment
        return {tp: kept for tp, records in fetched.items() if (kept := self._keep(assignment, tp, records))}

    def _keep(self, assignment: Assignment, tp: TP, records: list[Any]) -> list[Any]:
        """Note what was fetched of one partition, and return what of it is to be stored."""
        partition = (tp.topic, tp.partition)
        if assignment is not self.current or partition in assignment.holds:
            return []
        unreadable = records.pop().value if type(records[-1].value) is Unreadable else None
        if records and not assignment.fetched(partition, records[0].offset, records[-1].offset):
            self.begin_again(assignment, f"{tp} went back to {records[0].offset}: its log was replaced")
            return []
        if unreadable is not None:
            self._hold(assignment, partition, unreadable)
        return records

    def _hold(self, assignment: Assignment, partition: Partition, unreadable: Unreadable) -> None:
        topic, number = partition
        offset = assignment.partitions[partition].next_offset
        behind = max(offset + 1, unreadable.next_offset or 0)
        told = (
            f"{topic}[{number}] offset {offset}: what stands there cannot be read: {unreadable.why}; mend the log, or"
            f" leave it out for ever with `workflow-runs intake skip {topic} {number} --to {behind} --reason ...`"
        )

        async def heals() -> bool:
            with contextlib.suppress(BrokerUnavailable):
                return await self.in_thread(lambda: self._thread.can_read(partition, offset))
            return False

        assignment.holds.add(partition, offset, told, heals)

    def _to_message(self, tp: TP, record: Any) -> IntakeMessage:
        assert self._fetched_under is not None
        message = IntakeMessage(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp / 1000,
            record.timestamp_type,
            record.headers,
            record.key,
            record.value,
            record.checksum,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )
        message.assignment = self._fetched_under
        message.record = Record(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        message.assignment.buffered(message.record.size)
        return message

    # What the rest of intake calls.

    @property
    def has_coordinator(self) -> bool:
        """Whether a broker answers for the group."""
        return self._thread.has_coordinator

    @property
    def refused(self) -> str | None:
        """Why the brokers do not let this worker read, with the way out; None while they do."""
        return self._thread.watch.refused if self._thread.watch is not None else None

    @property
    def missing(self) -> str | None:
        """Which topic is not there, with the way out; None while all are, as far as the brokers have said."""
        return self._thread.watch.missing if self._thread.watch is not None else None

    @property
    def silent_seconds(self) -> float:
        """For how long a request of the Kafka client has been waiting for its answer."""
        return self._thread.watch.silent_seconds if self._thread.watch is not None else 0.0

    async def end_client(self, *, by_force: bool) -> bool:
        """Wait for the thread of the Kafka client to end; by force at once, or where it does not within a second.

        Returns:
            Whether it has ended; if not, it never will.
        """
        if not by_force and await self._thread.has_ended_within(1.0):
            return True
        self._thread.abort()
        return await self._thread.has_ended_within(2.0)

    def begin_again(self, assignment: Assignment, why: str) -> None:
        """Find the starting points anew, since *assignment* no longer says what is so. Only the current one counts."""
        if assignment is not self.current:
            return
        _log.warning("the partitions are read anew: %s", why)
        self._end()
        self._begin()

    def read_anew(self, why: str) -> None:
        """Find the starting points anew, also where they are just being found. Without partitions nothing is to do."""
        if self._keeping is not None:
            _log.warning("the partitions are read anew: %s", why)
            self._end()
            self._begin()

    async def finish(self) -> None:
        """Read nothing more, let the batch in hand and its offsets through."""
        self._assigned = frozenset()
        self.transport.watch.forget()
        await self._settle(self._end(), _STOP_SETTLE_SECONDS, _STOP_FLUSH_SECONDS)
        if self._leaving:  # a look at the logs closes its client first
            await asyncio.wait(self._leaving, timeout=_STOP_FLUSH_SECONDS)

    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int | None]:
        return await self.in_thread(lambda: self._thread.committed(partitions))

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        return await self.in_thread(lambda: self._thread.bounds(partitions))

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        try:
            return await self.in_thread(lambda: self._thread._commit(offsets))
        except BrokerUnavailable:
            return False

    async def in_thread(self, work: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer:
        """Run *work* in the loop of the Kafka client.

        Raises:
            BrokerUnavailable: the client got no answer, or lost the partitions meanwhile.
        """
        try:
            answer = run_in(self._thread.thread_loop, work)
        except RuntimeError:
            raise BrokerUnavailable("the Kafka client has ended") from None
        try:
            return await asyncio.wrap_future(answer)
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"Kafka: {error!r}") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise BrokerUnavailable("the Kafka client ended meanwhile") from None

    def _begin(self) -> None:
        self._keeping = asyncio.create_task(self._begin_and_watch(), name="intake: assignment")

    def _end(self) -> Assignment | None:
        ended, self.current = self.current, None
        self._begun.clear()
        if self._keeping is not None:
            self._keeping.cancel()
            self._leaving.add(self._keeping)
            self._keeping.add_done_callback(self._leaving.discard)
            self._keeping = None
        if ended is not None:
            ended.end()
        return ended

    async def _begin_and_watch(self) -> None:
        try:
            await self._begin_patiently()
            self._begun.set()
            await self._watch()
        except Exception as error:  # noqa: BLE001  # the task's edge: what nobody expected ends the app, not reading alone
            await self.crash(error)

    async def _watch(self) -> None:
        """Notice what no broker and no database tells a reader while it reads, and that a held partition can go on."""
        if (assignment := self.current) is None:
            return
        ways = [
            asyncio.create_task(self.transport.watch.until_void(assignment, self), name="intake: watch"),
            asyncio.create_task(assignment.holds.until_healed(), name="intake: holds"),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        self.begin_again(assignment, done.pop().result())

    async def _begin_patiently(self) -> None:
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                await self._begin_once()
            except (StoreUnavailable, BrokerUnavailable) as error:
                self.current = None
                self.waits_for = str(error)
                _log.warning("the starting points of %d partitions are not known yet: %s", len(self._assigned), error)
            else:
                self.waits_for = None
                return
            await asyncio.sleep(delay * random.uniform(0.5, 1))
            delay = min(delay * 2, _LONGEST_DELAY_SECONDS)

    async def _begin_once(self) -> None:
        assignment = await self.transport.starts.assignment(next(self._numbers), self._assigned, self)
        # Before the seek: the first records may be fetched right behind it.
        self.current = assignment
        begins = {partition: state.next_offset for partition, state in assignment.partitions.items()}
        await self.in_thread(lambda: self._thread.seek_all(assignment.number, begins))

    async def _settle(self, ended: Assignment | None, seconds: float, flush_seconds: float) -> None:
        if ended is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await ended.idle()
        except TimeoutError:
            _log.warning("the batch in hand is not stored after %g s: it is read again", seconds)
        await self.transport.offsets.flush(ended, flush_seconds)

    async def _room(self, assignment: Assignment, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await assignment.room(self.transport.read_ahead_records, self.transport.read_ahead_bytes)
        except TimeoutError:
            return False
        return True


class IntakeTransport(driver.Transport):
    """Give it to an App as `app.transport` before its first agent is declared."""

    Consumer: ClassVar[type[IntakeConsumer]] = IntakeConsumer

    def __init__(
        self,
        url: list[URL],
        app: faust.App,
        *,
        starts: StartingPoints,
        watch: PositionWatch,
        backpressure: Backpressure,
        offsets: Offsets,
        read_ahead_records: int,
        read_ahead_bytes: int,
    ) -> None:
        super().__init__(url, app)
        self.starts = starts
        self.watch = watch
        self.backpressure = backpressure
        self.offsets = offsets
        self.read_ahead_records = read_ahead_records
        self.read_ahead_bytes = read_ahead_bytes


class _NoReadOffsets(defaultdict[TP, int | None]):
    """Stands for Faust's memory of the highest offset read: whatever is fetched is passed on."""

    def __getitem__(self, partition: TP) -> None:
        return None

    def __setitem__(self, partition: TP, offset: int | None) -> None:
        pass
