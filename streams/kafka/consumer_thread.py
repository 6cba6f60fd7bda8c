"""The Kafka client of intake in its own thread: what it may hand out, and how it looks at the logs."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import aiokafka
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import ServiceThread, WorkerThread

from schemas.errors import BrokerUnavailable
from streams.kafka.assignment import Partition
from streams.kafka.batches import Batches, Unreadable, use_own_reader
from streams.kafka.client_watch import ClientWatch
from streams.kafka.positions import Bounds

if TYPE_CHECKING:
    from streams.kafka.transport import IntakeTransport

_log = logging.getLogger(__name__)

# Together less than what a worker whose grace is over leaves intake for its end.
_LEAVE_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 0.25
_SOCKET_SECONDS: Final = 0.01
_SWEEPS: Final = 3
_FETCH_WAIT_MS: Final = 100
# With no time at all the embedded broker does not even look.
_LOOK_WAIT_MS: Final = 10
_ANSWER_SECONDS: Final = 15.0
_NOTHING_TO_READ_SECONDS: Final = 0.05
_ONE_RECORD_BYTES: Final = 1
_READ_COMMITTED: Final = 1


class _Thread(WorkerThread):
    """A thread that nobody in the event loop waits for, and whose last error was told before it ends."""

    def __init__(self, service: ServiceThread) -> None:
        super().__init__(service)
        self.daemon = True

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:  # noqa: BLE001  # the thread's edge: the app has crashed for it already
            _log.debug("the thread of the Kafka client ended: %r", error)

    def stop(self) -> None:
        """Return at once: Faust would hold up the whole process until the thread has ended."""


class IntakeConsumerThread(driver.AIOKafkaConsumerThread):
    """The Kafka client, in its own thread and loop. What it fetches is handed out only under an assignment."""

    Worker = _Thread

    number: int = 0
    """The assignment whose starting points were sought; 0 while there is none. Written in the thread alone."""

    watch: ClientWatch | None = None
    """What the client meets; None until it has started."""

    _aborted = False
    _leaves: asyncio.Future[None] | None = None

    async def has_ended_within(self, seconds: float) -> bool:
        """Wait until the thread has ended, at most *seconds*; one that never began has ended."""
        if (thread := self._thread) is None:
            return True
        await asyncio.to_thread(thread.join, seconds)
        return not thread.is_alive()

    async def on_start(self) -> None:
        await super().on_start()
        client = self._ensure_consumer()
        use_own_reader(client)
        conf = self.app.conf
        self.watch = ClientWatch(client, group=conf.id, session_timeout_seconds=conf.broker_session_timeout)

    async def on_thread_stop(self) -> None:
        """Leave the group, if the brokers let us do so soon; without them the client is simply dropped."""
        leaving = self._leave(super().on_thread_stop)
        if not await _done(leaving, _CLOSE_SECONDS if self._aborted else _LEAVE_SECONDS):
            _log.warning("the group was not left in order: it notices after its session time-out")
            if self._consumer is not None:
                await _done(self._consumer.stop(), _CLOSE_SECONDS)
                await _done(self._consumer._client.close(), _CLOSE_SECONDS)
        # A closed connection gives its socket back only in the next rounds of the loop, which ends here.
        await asyncio.sleep(_SOCKET_SECONDS)

    async def _leave(self, stop: Callable[[], Awaitable[None]]) -> None:
        if self._consumer is None:
            await stop()
            return
        # To stop cancels tasks, and a connection that such a task is just opening would stay open. Here none is, and
        # none is opened any more: the lock is never given back.
        await self._consumer._client._get_conn_lock.acquire()
        if self._leaves is not None:
            self._leaves.set_result(None)
        await stop()

    async def _gather_remaining_tasks(self) -> None:
        for _ in range(_SWEEPS):  # what is cancelled may begin something in its last step
            await super()._gather_remaining_tasks()
            await asyncio.sleep(0)

    def close(self) -> None:
        """Leave the client open: Faust would close it from the wrong loop. `on_thread_stop` does so from its own."""

    def abort(self) -> None:
        """End the thread wherever it is, also in the middle of its start. Returns at once."""
        self._aborted = True
        loop = self.thread_loop

        def cancel_everything() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()

        with contextlib.suppress(RuntimeError):  # closed: it is ending already
            loop.call_soon_threadsafe(cancel_everything)

    def _stopped_set(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: it crashed, and has ended by itself
            super()._stopped_set()

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Say nothing here: the app crashes with the same error, and tells."""

    @property
    def has_coordinator(self) -> bool:
        """Whether a broker answers for the group: no more from the first heartbeat on that got no answer."""
        coordinator = getattr(self._consumer, "_coordinator", None)
        return coordinator is not None and coordinator.coordinator_id is not None

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        client = super()._create_worker_consumer(transport)
        # Faust hard-codes other values, and passes nothing of these on.
        client._isolation_level = "read_committed"
        client._fetch_max_wait_ms = _FETCH_WAIT_MS
        client._fetch_max_bytes = cast("IntakeTransport", transport).read_ahead_bytes
        open_connection = client._client._get_conn
        leaves = self._leaves = asyncio.get_running_loop().create_future()

        async def connection(*args: Any, **kwargs: Any) -> object:
            # A fetch is cancelled with its assignment, and the connection that it was just opening would stay open:
            # an opening is waited for, never cancelled. Who leaves the group waits for none.
            opening = asyncio.ensure_future(open_connection(*args, **kwargs))
            await asyncio.wait({opening, leaves}, return_when=asyncio.FIRST_COMPLETED)
            return opening.result() if opening.done() else None

        client._client._get_conn = connection
        return client

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self.number = 0
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self.number = 0
        if self.watch is not None:
            self.watch.joined()
        await super().on_partitions_assigned(assigned, generation_id)

    async def fetched(self, number: int, partitions: set[TP], seconds: float, most: int) -> "Mapping[TP, list[Any]]":
        """Return records fetched under assignment *number*; none when it is not the one whose positions were sought.

        Where something cannot be read, an `Unreadable` is the last value, and the partition is fetched no more.
        The client has positions of its own before ours are sought: what it fetched from there is never looked at.
        Another assignment may have begun while this waited: what was taken from its records is put back.
        """
        if self.number != number:
            await asyncio.sleep(_NOTHING_TO_READ_SECONDS)
            return {}
        client = self._ensure_consumer()
        records = await self._fetch_records(client, partitions, timeout=seconds, max_records=most)
        # No other task ran since the records were taken: they are of the assignment that is current here.
        if self.number == number:
            client.pause(*(TopicPartition(*p) for p, taken in records.items() if type(taken[-1].value) is Unreadable))
            return records
        if self.number:
            for partition, taken in records.items():
                client.seek(TopicPartition(partition.topic, partition.partition), taken[0].offset)
        return {}

    async def seek_all(self, number: int, offsets: Mapping[Partition, int]) -> None:
        """Begin assignment *number* at *offsets*, which name every partition of it."""
        client = self._ensure_consumer()
        for (topic, partition), offset in offsets.items():
            client.seek(TopicPartition(topic, partition), offset)
        client.resume(*client.paused())
        self.number = number

    async def can_read(self, partition: Partition, offset: int) -> bool:
        """Say whether the first batch at or behind *offset* can be read, looking at it anew."""
        client = self._ensure_consumer()
        async with asyncio.timeout(_ANSWER_SECONDS):
            [(_, data)] = (await self._look(client, {TopicPartition(*partition): offset})).values()
        batches = Batches(data)
        return not batches.has_next() or all(type(one.value) is not Unreadable for one in batches.next_batch())

    async def committed(self, partitions: Collection[Partition]) -> dict[Partition, int | None]:
        """Return the group's committed offsets."""
        client = self._ensure_consumer()
        async with asyncio.timeout(_ANSWER_SECONDS):
            return {partition: await client.committed(TopicPartition(*partition)) for partition in sorted(partitions)}

    async def bounds(self, partitions: Collection[Partition]) -> dict[Partition, Bounds]:
        """Return where the logs begin and end.

        The end is the high watermark that comes with a fetch at the offset that ListOffsets names as the end: the
        listing of the embedded broker falls short of it, and a fetch at any other offset can be out of range.
        """
        client = self._ensure_consumer()
        asked = [TopicPartition(*partition) for partition in partitions]
        async with asyncio.timeout(_ANSWER_SECONDS):
            begins = await client.beginning_offsets(asked)
            ends = await self._look(client, await client.end_offsets(asked))
        return {tuple(partition): Bounds(begins[partition], ends[partition][0]) for partition in asked}

    async def _look(
        self, client: aiokafka.AIOKafkaConsumer, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, bytes]]:
        """Return the high watermark of each partition, and the batch at its offset, of the first that has one."""
        by_leader: dict[int, dict[str, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
        for partition, offset in offsets.items():
            leader = client._client.cluster.leader_for_partition(partition)
            if leader is None or leader < 0:
                client._client.force_metadata_update()
                raise BrokerUnavailable(f"{partition.topic}[{partition.partition}] has no leader")
            by_leader[leader][partition.topic].append((partition.partition, offset, _ONE_RECORD_BYTES))
        looks = {}
        for leader, topics in by_leader.items():
            request = FetchRequest(_LOOK_WAIT_MS, 0, _ONE_RECORD_BYTES, _READ_COMMITTED, list(topics.items()))
            response = await client._client.send(leader, request)
            for topic, answers in response.topics:
                for partition, error, high_watermark, *_, data in answers:
                    if error:
                        client._client.force_metadata_update()
                        raise BrokerUnavailable(f"{topic}[{partition}] cannot be looked at: Kafka error {error}")
                    looks[TopicPartition(topic, partition)] = (high_watermark, bytes(data or b""))
        if missing := offsets.keys() - looks.keys():
            raise BrokerUnavailable(f"the brokers say nothing of {sorted(missing)}")
        return looks

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # An empty commit is an error that would end the app.
        owned = {partition: offset for partition, offset in offsets.items() if partition in self.assignment()}
        return bool(owned) and await super()._commit(owned)


async def _done(work: Coroutine[Any, Any, None], seconds: float) -> bool:
    """Do *work* and say whether it was done well and in time; it ends in any case."""
    task = asyncio.create_task(work)
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()
    return task.done() and not task.cancelled() and task.exception() is None
