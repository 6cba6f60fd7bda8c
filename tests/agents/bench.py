"""Intake on real parts: a request topic, a group, and as many workers as a test wants, all in its own loop."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import psycopg
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from psycopg.rows import dict_row

from schemas.topics import Format, Role, Topic
from store.database import Database
from store.definitions import Definitions
from store.positions import Positions
from store.submit import Submits
from streams.agents.accept import Accept
from streams.agents.decode import Registry
from streams.app import IntakeService, IntakeSettings
from streams.evaluator.evaluators import InProcessEvaluator
from streams.kafka.backpressure import Backpressure
from streams.kafka.committed import committed_offsets
from streams.kafka.identities import TopicIdentities
from streams.kafka.log_reader import LogReader
from streams.kafka.positions import StartingPoints
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.transport import IntakeConsumer
from streams.kafka.watch import PositionWatch, Reading
from streams.metrics import Metrics
from streams.verbs.plans import Plans
from streams.verbs.submit import Submitter
from tests.fixtures.kafka import Kafka

WAIT_SECONDS = 30.0
# Apache Kafka refuses a shorter one than six seconds; with the embedded broker joining takes half of it.
SESSION_SECONDS = {"apache": 6.0, "embedded": 2.0}


def request_value(job_id: UUID | None = None, **changes: Any) -> bytes:
    """A request in plain JSON. Nothing of its name is stored, so its run is born FAILED: a run, a row and an event."""
    return json.dumps({"job_id": str(job_id or uuid4()), "workflow_name": "no-such", "input": {}, **changes}).encode()


@dataclass
class IntakeWorker:
    """What one worker process would hold."""

    service: IntakeService
    metrics: Metrics
    running: "asyncio.Task[None]"

    async def ready(self) -> None:
        await until(lambda: self.service.health().ready, lambda: self.service.health().detail)

    def consumer(self) -> IntakeConsumer:
        """The consumer of the App that runs now."""
        assert self.service._app is not None
        assert isinstance(self.service._app.consumer, IntakeConsumer)
        return self.service._app.consumer

    def knows_no_place_to_begin(self) -> bool:
        """Whether it has joined the group and waits for the starting points."""
        return self.service._app is not None and self.consumer().waits_for is not None

    def partitions(self) -> int:
        """How many partitions it reads now."""
        current = self.consumer().current
        return len(current.partitions) if current is not None else 0

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"workflow_runs_{name}", labels) or 0


@dataclass
class IntakeBench:
    """A topic, a group and a database, and ways to put something in and to look at what came of it."""

    kafka: Kafka
    database_url: str
    topic: str
    group: str
    registry: Registry
    partitions: int = 1
    batch_records: int = 500
    batch_bytes: int = 8 << 20
    bootstrap: str | None = None
    backpressure: Backpressure | None = None
    tenant_header: str | None = None
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    session_seconds: float | None = None
    _producer: Producer | None = field(default=None, repr=False)

    async def waiting_for_locks(self) -> int:
        """How many sessions of the database wait for a lock."""
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int((await self.rows(waiting))[0]["count"])

    def on_partitions(self, count: int) -> "IntakeBench":
        """The same bench with a topic of *count* partitions."""
        topic = self.kafka.create_topic(self.kafka.unique("requests"), count)
        return replace(self, topic=topic, partitions=count)

    def produce(
        self,
        *values: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
    ) -> None:
        """Put *values* on the topic, in order, and wait until they are there."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.kafka.bootstrap, "linger.ms": 5, "message.max.bytes": 2_000_000}
            )
        for value in values:
            self._producer.produce(self.topic, value, key, partition, headers=list(headers), timestamp=timestamp_ms)
        assert self._producer.flush(WAIT_SECONDS) == 0

    @asynccontextmanager
    async def worker(self, *, group_lost_seconds: float = 90.0) -> AsyncIterator[IntakeWorker]:
        """A worker that reads from when it has joined the group until the block ends."""
        metrics = Metrics()
        database = Database(self.database_url, pool_size=4, statement_timeout_seconds=5)
        await database.open()
        topic = Topic(
            name=self.topic,
            role=Role.REQUESTS,
            formats=(Format.PROTOBUF, Format.JSON),
            subject=f"{self.topic}-value",
            partitions=self.partitions,
            replication=1,
            config=MappingProxyType({}),
            tenant=None if self.tenant_header else "default",
            tenant_header=self.tenant_header,
        )
        accept = Accept(
            group_id=self.group,
            topic=topic,
            submitter=Submitter(Plans(Definitions(database), InProcessEvaluator()), max_attempts=3),
            registry=self.registry,
            batches=Submits(database, on_committed=lambda payloads: None),
            metrics=metrics,
        )
        starts = StartingPoints(
            group_id=self.group,
            positions=Positions(database, on_committed=lambda payloads: None),
            identities=TopicIdentities(self.kafka.bootstrap, KafkaSecurity()),
            metrics=metrics,
            seconds_between_looks=0.1,
        )
        watch = PositionWatch(
            starts=starts,
            logs=LogReader(self.kafka.bootstrap, KafkaSecurity()),
            configs=TopicAdmin(self.kafka.bootstrap, KafkaSecurity()),
            metrics=metrics,
            changed_by_hand=asyncio.Event(),
            seconds_between_looks=0.5,
            seconds_between_ages=1,
            seconds_between_reads=0.5,
        )
        settings = IntakeSettings(
            bootstrap=self.bootstrap or self.kafka.bootstrap,
            security=self.security,
            group=self.group,
            topic=topic,
            session_timeout_seconds=self.session_seconds or SESSION_SECONDS[self.kafka.kind],
            batch_records=self.batch_records,
            batch_bytes=self.batch_bytes,
        )
        service = IntakeService(
            settings,
            accept=accept,
            reading=Reading(starts, watch, self.backpressure or Backpressure(1_000_000, metrics)),
            metrics=metrics,
            group_lost_seconds=group_lost_seconds,
            longest_delay_seconds=0.5,
        )
        running = asyncio.create_task(service.run())
        try:
            yield IntakeWorker(service, metrics, running)
        finally:
            assert await service.stop(), "intake did not end in time"
            await running
            await database.close()

    async def rows(self, statement: str, *params: Any) -> list[dict[str, Any]]:
        """What *statement* finds in the store's tables."""
        async with await psycopg.AsyncConnection.connect(
            self.database_url, autocommit=True, row_factory=dict_row, options="-c search_path=workflow_runs"
        ) as connection:
            return await (await connection.execute(statement.encode(), params)).fetchall()

    async def execute(self, statement: str) -> None:
        """Change the store's tables behind the workers' backs."""
        async with await psycopg.AsyncConnection.connect(
            self.database_url, autocommit=True, options="-c search_path=workflow_runs"
        ) as connection:
            await connection.execute(statement.encode())

    async def runs(self) -> int:
        return int((await self.rows("SELECT count(*) FROM run"))[0]["count"])

    async def has_run(self, job_id: UUID) -> bool:
        return bool(await self.rows("SELECT 1 FROM run WHERE job_id = %s", job_id))

    async def letters(self) -> list[dict[str, Any]]:
        return await self.rows("SELECT * FROM dead_letter ORDER BY letter_id")

    async def has_runs(self, count: int) -> None:
        """Wait until there are *count* runs; fails when there are more."""
        found = -1

        async def enough() -> bool:
            nonlocal found
            found = await self.runs()
            return found >= count

        await until(enough, lambda: f"{found} of {count} runs")
        assert found == count

    def committed(self, partition: int = 0) -> int:
        """The group's committed offset; -1001 when there is none."""
        place = (self.topic, partition)
        offset = committed_offsets({"bootstrap.servers": self.kafka.bootstrap}, self.group, [place])[place]
        return -1001 if offset is None else offset

    def has_committed_now(self, offset: int, partition: int) -> bool:
        return self.committed(partition) == offset

    async def has_committed(self, offset: int, partition: int = 0) -> None:
        await until(
            lambda: self.has_committed_now(offset, partition), lambda: f"{self.committed(partition)}, not {offset}"
        )

    def commit(self, offset: int, partition: int = 0) -> None:
        """Move the committed offset, as an operator does while no worker reads."""
        client = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "group.id": self.group,
                "session.timeout.ms": 6_000,
                "enable.auto.commit": False,
            }
        )
        try:
            # As a member, which makes the broker forget one that left without a word.
            client.subscribe([self.topic])
            while not client.assignment():
                client.poll(0.1)
            client.commit(offsets=[TopicPartition(self.topic, partition, offset)], asynchronous=False)
        finally:
            client.close()

    def make_topic_again(self) -> None:
        """Delete the topic and make it again, empty, under its old name."""
        self.kafka.delete_topic(self.topic)
        self._producer = None
        for _ in range(100):
            try:
                self.kafka.create_topic(self.topic, self.partitions)
            except KafkaException:  # Apache Kafka deletes in the background
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the topic is not deleted")

    def add_partitions(self, count: int) -> None:
        [grown] = self.kafka.admin.create_partitions([NewPartitions(self.topic, count)]).values()
        grown.result(WAIT_SECONDS)
        self._producer = None

    def remove_before(self, offset: int, partition: int = 0) -> None:
        """Remove every record below *offset*, as retention does."""
        [removed] = self.kafka.admin.delete_records([TopicPartition(self.topic, partition, offset)]).values()
        assert removed.result(WAIT_SECONDS).low_watermark == offset

    async def position(self, partition: int = 0) -> Mapping[str, Any]:
        [row] = await self.rows(
            "SELECT * FROM intake_position WHERE group_id = %s AND topic = %s AND partition = %s",
            *(self.group, self.topic, partition),
        )
        return row


async def until(holds: Any, told: Any, seconds: float = WAIT_SECONDS) -> None:
    """Return once *holds* answers true; fail with what *told* says when it does not in time."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                answer = holds()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {seconds:g} s: {told()}") from None
