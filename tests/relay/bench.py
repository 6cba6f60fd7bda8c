"""A store, a broker and a registry, with as many relays between them as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.messages import WorkflowRunEvent
from schemas.topics import Topics, load_topics
from store.database import CommitPoint, Database, passes
from store.notify import Listener, Notifier
from store.records import DeadLetter
from store.relay_queue import RelayQueue
from store.submit import IntakeBatch, Submits
from streams.dev.broker import EmbeddedBroker
from streams.dev.registry.server import RegistryServer
from streams.kafka import schemas
from streams.kafka.producer import EventProducer
from streams.kafka.registry import SchemaRegistry
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.metrics import Metrics
from streams.relay.relay import Relay
from tests.fixtures.kafka import Kafka, OnEmbedded
from tests.kafka.reading import Read, read, read_until
from tests.store.samples import Sql, connected, select, select_one, submission

PARTITIONS = 3
LEASE_SECONDS = 2.0


@dataclass
class Running:
    """A relay at work, with the parts that a process of its own would have."""

    relay: Relay
    metrics: Metrics
    task: "asyncio.Task[None]"
    producer: EventProducer

    def failures(self, kind: str = "event") -> float:
        """How many tries of events, or of rows of another kind, were counted as failed."""
        return float(self.metrics.relay_failures.labels(kind=kind)._value.get())

    async def crash(self) -> None:
        """End it where it stands: nothing is flushed, and its shards are not given back."""
        self.relay._shards.leave = _forgets  # type: ignore[method-assign]  # a dead process tells nobody
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.producer.close(timeout_seconds=0)


async def _forgets() -> None:
    """What a process that is gone does."""


class RelayBench:
    """Everything around a relay, on one database and topics of its own."""

    def __init__(self, kafka: Kafka, registry: RegistryServer, database_url: str, sql: Sql) -> None:
        self.kafka = kafka
        self.registry = registry
        self.url = database_url
        self.sql = sql
        self.name = kafka.unique("relay")
        self.topics = self.topics_with()
        self.database = Database(database_url, pool_size=4)
        self.submits = Submits(self.database, on_committed=Notifier(self.database).notify)

    def topics_with(self, **config: object) -> Topics:
        """The topics, with *config* for the events in its Python spelling."""
        settings = ", ".join(f"{name.replace('_', '.')}: {value}" for name, value in config.items())
        return load_topics(f"""
{self.name}.requests: {{role: requests, partitions: 1}}
{self.name}.events: {{role: events, partitions: {PARTITIONS}, config: {{{settings}}}}}
{self.name}.answers: {{role: answers, partitions: 1}}
""")

    @property
    def events_topic(self) -> str:
        return self.topics.events.name

    async def prepare(self, *, register: bool = True) -> None:
        await self.database.open()
        await TopicAdmin(self.kafka.bootstrap, KafkaSecurity()).apply(self.topics)
        if register:
            await self.register()

    async def register(self) -> None:
        client = SchemaRegistry(self.registry.url)
        await schemas.register(client, self.topics)
        await client.close()

    async def close(self) -> None:
        await self.database.close()

    @asynccontextmanager
    async def relay(
        self,
        owner: str = "worker-a:1",
        *,
        topics: Topics | None = None,
        lease_seconds: float = LEASE_SECONDS,
        commit_point: CommitPoint = passes,
        queue: RelayQueue | None = None,
        **producing: object,
    ) -> AsyncIterator[Running]:
        """A running relay; at the end of the block it is stopped, unless it has crashed before.

        *producing* are further properties of its producer, in their Python spelling.
        """
        database, listener = Database(self.url, pool_size=4), Listener(self.url)
        registry = SchemaRegistry(self.registry.url, timeout_seconds=2)
        overrides = {name.replace("_", "."): value for name, value in producing.items()}
        producer = EventProducer(self.kafka.bootstrap, KafkaSecurity(), overrides=overrides)
        metrics = Metrics()
        await database.open()
        await producer.start()
        relay = Relay(
            queue=queue or RelayQueue(database),
            producer=producer,
            registry=registry,
            topics=topics or self.topics,
            listener=listener,
            owner=owner,
            metrics=metrics,
            lease_seconds=lease_seconds,
            commit_point=commit_point,
        )
        listening = asyncio.create_task(listener.run())
        task = asyncio.create_task(relay.run())
        try:
            yield Running(relay, metrics, task, producer)
        finally:
            if not task.done():
                await relay.stop(timeout_seconds=5)
                await task
            listening.cancel()
            await asyncio.wait([listening])
            await producer.close(timeout_seconds=1)
            await registry.close()
            await database.close()

    async def runs(self, count: int, **changes: Any) -> list[UUID]:
        """Submit that many runs; each has its first event."""
        return [(await self.submits.submit(submission(**changes))).job_id for _ in range(count)]

    async def more_events(self, jobs: Sequence[UUID], seqs: Sequence[int]) -> None:
        """Give each job events of those numbers, the jobs in turns."""
        for seq in seqs:
            await self.sql.execute(
                b"""
                with job as (select job_id, shard from run where job_id = any (%(jobs)s)),
                logged as (
                  insert into event (job_id, seq, event_id, attempt, type, status, step)
                  select job_id, %(seq)s, new_event_id(), 1, 2, 'RUNNING', 'step-' || %(seq)s from job)
                insert into relay_queue (shard, job_id, seq) select shard, job_id, %(seq)s from job
                """,
                {"jobs": list(jobs), "seq": seq},
            )
        await self.sql.execute(b"notify workflow_runs, 'relay'")

    async def letters(self, *letters: DeadLetter) -> None:
        """Store dead letters as intake does."""
        await self.submits.batch(IntakeBatch("group", letters=letters))

    async def queued(self) -> int:
        """How many rows wait in the queue."""
        return int(await select_one(self.sql, "select count(*) from relay_queue"))

    async def until_published(self, *, seconds: float = 30) -> None:
        """Wait until the queue is empty."""
        async with asyncio.timeout(seconds):
            await self.until_queued_at_most(0)

    async def until_queued_at_most(self, count: int) -> None:
        """Wait until no more than that many rows are in the queue."""
        while True:
            if await self.queued() <= count:
                return
            await asyncio.sleep(0.02)

    async def outbox(self) -> list[dict[str, Any]]:
        """The view of all events, by job and number."""
        return await select(self.sql, "select * from workflow_run_events_outbox order by job_id, seq")

    async def outbox_of(self, job_id: UUID) -> list[dict[str, Any]]:
        """Its rows for one job."""
        return [row for row in await self.outbox() if row["job_id"] == job_id]

    async def published(self, count: int, topic: str | None = None) -> list[Read]:
        """What an independent reader finds on the events topic, or on another one."""
        name, partitions = topic or self.events_topic, 1 if topic else PARTITIONS
        return await asyncio.to_thread(read, self.kafka.bootstrap, name, count, partitions=partitions)

    async def published_until_all_ids(self, event_ids: set[str]) -> list[Read]:
        """What the reader finds once every one of those events is there, which it waits for."""
        missing, looked_at = set(event_ids), 0

        def all_there(found: Sequence[Read]) -> bool:
            nonlocal looked_at
            missing.difference_update(id_of(record) for record in found[looked_at:])
            looked_at = len(found)
            return not missing

        bootstrap = self.kafka.bootstrap
        records = await asyncio.to_thread(read_until, bootstrap, self.events_topic, all_there, PARTITIONS)
        assert not missing, f"{len(missing)} of {len(event_ids)} events are not on the topic"
        return records

    def decoded(self, records: Sequence[Read]) -> list[WorkflowRunEvent]:
        """The events as a consumer with a Schema Registry client of its own reads them."""
        with SchemaRegistryClient({"url": self.registry.url}) as client:
            deserializer = ProtobufDeserializer(WorkflowRunEvent, {"use.deprecated.format": False}, client)
            context = SerializationContext(self.events_topic, MessageField.VALUE)
            return [deserializer(record.value, context) for record in records]


def id_of(record: Read) -> str:
    """The event's id, which consumers deduplicate on."""
    return (dict(record.headers)["ce_id"] or b"").decode()


def first_arrivals(records: Sequence[Read]) -> list[Read]:
    """What a consumer keeps that drops every event id it has seen."""
    seen: dict[str, Read] = {}
    for record in records:
        seen.setdefault(id_of(record), record)
    return list(seen.values())


@asynccontextmanager
async def pausable_bench(registry: RegistryServer, database_url: str) -> AsyncIterator[RelayBench]:
    """A bench with a broker of its own, whose outages begin and end in no time."""
    with EmbeddedBroker() as broker:
        async with connected(database_url) as sql:
            bench = RelayBench(OnEmbedded(broker), registry, database_url, sql)
            await bench.prepare()
            yield bench
            await bench.close()
