"""The Kafka client of intake in its own thread: what it may hand out, and how it looks at the logs."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import aiokafka
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from schemas.errors import BrokerUnavailable
from streams.kafka.assignment import Partition
from streams.kafka.positions import Bounds

if TYPE_CHECKING:
    from streams.kafka.transport import IntakeTransport

_FETCH_WAIT_MS: Final = 100
# With no time at all the embedded broker does not even look.
_LOOK_WAIT_MS: Final = 10
_ANSWER_SECONDS: Final = 15.0
_NOTHING_TO_READ_SECONDS: Final = 0.05
_ONE_RECORD_BYTES: Final = 1
_READ_COMMITTED: Final = 1


class IntakeConsumerThread(driver.AIOKafkaConsumerThread):
    """The Kafka client, in its own thread and loop. What it fetches is handed out only under an assignment."""

    number: int = 0
    """The assignment whose starting points were sought; 0 while there is none. Written in the thread alone."""

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
        return client

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self.number = 0
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self.number = 0
        await super().on_partitions_assigned(assigned, generation_id)

    async def fetched(self, number: int, partitions: set[TP], seconds: float, most: int) -> "Mapping[TP, list[Any]]":
        """Return records fetched under assignment *number*; none when it is not the one whose positions were sought.

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
        self.number = number

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
            ends = await self._high_watermarks(client, await client.end_offsets(asked))
        return {tuple(partition): Bounds(begins[partition], ends[partition]) for partition in asked}

    async def _high_watermarks(
        self, client: aiokafka.AIOKafkaConsumer, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        by_leader: dict[int, dict[str, list[tuple[int, int, int]]]] = defaultdict(lambda: defaultdict(list))
        for partition, offset in offsets.items():
            leader = client._client.cluster.leader_for_partition(partition)
            if leader is None or leader < 0:
                client._client.force_metadata_update()
                raise BrokerUnavailable(f"{partition.topic}[{partition.partition}] has no leader")
            by_leader[leader][partition.topic].append((partition.partition, offset, _ONE_RECORD_BYTES))
        ends = {}
        for leader, topics in by_leader.items():
            request = FetchRequest(_LOOK_WAIT_MS, 0, _ONE_RECORD_BYTES, _READ_COMMITTED, list(topics.items()))
            response = await client._client.send(leader, request)
            for topic, answers in response.topics:
                for partition, error, high_watermark, *_ in answers:
                    if error:
                        client._client.force_metadata_update()
                        raise BrokerUnavailable(f"{topic}[{partition}] cannot be looked at: Kafka error {error}")
                    ends[TopicPartition(topic, partition)] = high_watermark
        if missing := offsets.keys() - ends.keys():
            raise BrokerUnavailable(f"the brokers say nothing of {sorted(missing)}")
        return ends

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # An empty commit is an error that would end the app.
        owned = {partition: offset for partition, offset in offsets.items() if partition in self.assignment()}
        return bool(owned) and await super()._commit(owned)
