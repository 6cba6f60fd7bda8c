"""Worker processes on a broker, a registry and a database, with everything around them that a test looks at."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.events import EventType
from schemas.topics import Topics, load_topics
from store.database import Database
from store.definitions import Definitions
from store.records import StoredDefinition
from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, free_ports
from streams.dev.registry.server import RegistryServer
from streams.kafka import schemas
from streams.kafka.registry import SchemaRegistry
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.workflow.plan import ENGINE_LEVEL
from tests.acceptance.forked import Forked, fork_worker
from tests.acceptance.processes import WorkerProcess, start_worker
from tests.acceptance.producer import Format, Offset, Producer, Request
from tests.acceptance.reader import EventReader, Told, first_arrivals
from tests.acceptance.waiting import WAIT_SECONDS, until
from tests.driver.stories import Compiler, embed_text
from tests.fixtures.grpc_server import ReceivedCall, ScriptedServer
from tests.fixtures.kafka import Kafka
from tests.store.samples import connected, select

PARTITIONS = 4
LEASE_SECONDS = 4
SESSION_SECONDS = 3
WORKFLOW = "embed-text"
EMBED_TEXT_LOG = ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED"]
_COMMITTED_TRIES = 100
_TARGETS = ("tokenizer", "embedder", "desk")


@dataclass
class Fleet:
    """Topics, a group, a database and services of this test alone, and the workers that it starts on them."""

    kafka: Kafka
    registry: RegistryServer
    database_url: str
    folder: Path
    server: ScriptedServer
    compiler: Compiler
    name: str
    topics: Topics
    guard: Guard
    reader: EventReader
    producer: Producer
    group_view: Consumer
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def produced(self) -> Mapping[Offset, UUID | None]:
        """The job that each acknowledged record asks for; None for a record that is no request."""
        return self.producer.acknowledged

    def settings(self, name: str, **changes: object) -> dict[str, str]:
        """The settings of one worker, without their prefix."""
        web, health = free_ports(2)
        settings: dict[str, object] = {
            "worker_id": name,
            "database_url": self.database_url,
            "kafka_bootstrap": self.kafka.bootstrap,
            "schema_registry_url": self.registry.url,
            "topics_file": self.folder / "topics.yaml",
            "targets_file": self.folder / "targets.yaml",
            "group": _group(self.name),
            "http_bind": f"{LOOPBACK}:{web}",
            "health_bind": f"{LOOPBACK}:{health}",
            "lease_seconds": LEASE_SECONDS,
            "backoff_base_seconds": 0.2,
            "kafka_session_timeout_seconds": SESSION_SECONDS,
            "drain_grace_seconds": 5,
            **changes,
        }
        return {name: str(value) for name, value in settings.items()}

    def start(self, name: str, **changes: object) -> WorkerProcess:
        """Start a worker process and do not wait for it; see `WorkerProcess.ready`."""
        return self.start_by_clock(name, 0, "", **changes)

    def start_by_clock(self, name: str, shift_seconds: float, zone: str, **changes: object) -> WorkerProcess:
        """The same with a clock that is so far ahead, and the local time of *zone*."""
        settings, number = self.settings(name, **changes), len(self.workers)
        worker = start_worker(settings, self.folder, self.guard, number=number, shift_seconds=shift_seconds, zone=zone)
        self.workers.append(worker)
        return worker

    def fork(self, name: str, **changes: object) -> Forked:
        """Start a worker process in no time and do not wait for it; the caller closes it."""
        settings = self.settings(name, **changes)
        return fork_worker({key: settings[key] for key in settings if not key.endswith("_bind")}, self.folder)

    async def started(self, *names: str, **changes: object) -> list[WorkerProcess]:
        """Start workers side by side, and wait until each is ready."""
        workers = [self.start(name, **changes) for name in names]
        for worker in workers:
            await worker.ready()
        return workers

    async def store(self, document: Mapping[str, Any], name: str = WORKFLOW) -> None:
        """Make *document* the workflow of that name."""
        compiled = await self.compiler(dict(document))
        definition = StoredDefinition(
            compiled.definition_hash, name, compiled.document, compiled.descriptor_set, ENGINE_LEVEL
        )
        database = Database(self.database_url, pool_size=2)
        await database.open()
        await Definitions(database).put_workflow(definition, tenant_id="default", name=name, created_by="test")
        await database.close()

    async def produce(self, count: int, *, format: Format = "protobuf", workflow: str = WORKFLOW) -> list[UUID]:
        """Ask for that many runs; returns their ids once the broker has acknowledged all requests."""
        requests = [Request(uuid4(), workflow, {"text": f"text {number}"}) for number in range(count)]
        await self.send(requests, format=format)
        return [request.job_id for request in requests]

    async def send(self, requests: Sequence[Request], *, format: Format = "protobuf") -> None:
        """Put *requests* on the topic, and wait until the broker has acknowledged all."""
        await asyncio.to_thread(self.producer.send, requests, format)

    async def rows(self, query: str, **params: object) -> list[dict[str, Any]]:
        """What *query* finds in the store's tables."""
        async with connected(self.database_url) as sql:
            return await select(sql, query, params)

    async def one(self, query: str, **params: object) -> Any:
        """The single value that *query* finds."""
        [row] = await self.rows(query, **params)
        [value] = row.values()
        return value

    async def execute(self, statements: str) -> None:
        """Change the database behind the workers' backs."""
        async with connected(self.database_url) as sql:
            await sql.execute(statements.encode())

    async def row(self, job_id: UUID) -> dict[str, Any]:
        """All that the database says about a run."""
        [row] = await self.rows("select * from workflow_run where job_id = %(id)s", id=job_id)
        return row

    async def statuses(self, jobs: Collection[UUID]) -> dict[str, int]:
        """How many of *jobs* have which status."""
        rows = await self.rows(
            "select status, count(*) from run where job_id = any (%(jobs)s) group by status", jobs=list(jobs)
        )
        return {row["status"]: row["count"] for row in rows}

    async def until_stored(self, jobs: Collection[UUID], *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until every one of *jobs* has its row."""
        wanted, seen = len(set(jobs)), 0

        async def stored() -> bool:
            nonlocal seen
            seen = sum((await self.statuses(jobs)).values())
            return seen == wanted

        await until(stored, lambda: f"{seen} of {wanted} rows", seconds=seconds)

    async def until_all(self, jobs: Collection[UUID], status: str, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until every one of *jobs* has that status."""
        seen: dict[str, int] = {}

        async def all_of_them() -> bool:
            nonlocal seen
            seen = await self.statuses(jobs)
            return seen == {status: len(jobs)}

        await until(all_of_them, lambda: f"of {len(jobs)} runs, {seen}", seconds=seconds)

    async def owner_of(self, job_id: UUID) -> WorkerProcess:
        """The worker that holds a run."""
        owner = str((await self.row(job_id))["lease_owner"])
        return next(worker for worker in self.workers if owner.startswith(f"{worker.name}/{worker.pid}-"))

    def committed(self) -> dict[int, int]:
        """The group's committed offset of each partition that has one."""
        topic = self.topics.requests.name
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        for _ in range(_COMMITTED_TRIES):
            try:
                # Not by the admin client: it crashes when the broker that it asks has just started.
                found = self.group_view.committed(asked, timeout=20)
            except KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
                time.sleep(0.1)
            else:
                return {one.partition: one.offset for one in found if one.offset >= 0}
        raise AssertionError("the broker does not come to know its groups")

    async def until_read_up(self, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the group has committed every offset that was produced: no lag is left."""
        seen: dict[int, int] = {}

        async def no_lag() -> bool:
            nonlocal seen
            seen = await asyncio.to_thread(self.committed)
            return seen == self.producer.ends()

        await until(no_lag, lambda: f"committed {seen}, produced {self.producer.ends()}", seconds=seconds)

    def calls(self, method: str, job_id: UUID) -> list[ReceivedCall]:
        """The calls of a run's step as the service saw them."""
        return [call for call in self.server.calls(method) if call.metadata["job-id"] == str(job_id)]

    async def until_told(
        self, jobs: Collection[UUID], log: Sequence[str], *, seconds: float = WAIT_SECONDS
    ) -> list[Told]:
        """Wait until *log* stands on the topic for each of *jobs*, and compare it with the outbox.

        Each event is there once a consumer drops the ids it has seen: in order, without a gap, keyed by its job, under
        the id that the outbox has. Returns every record of these jobs, repeated ones too.
        """
        wanted = {str(job_id) for job_id in jobs}

        def told() -> list[Told]:
            return [record for record in self.reader.told() if record.event.job_id in wanted]

        await until(
            lambda: len(first_arrivals(told())) >= len(log) * len(wanted),
            lambda: f"{len(first_arrivals(told()))} of {len(log) * len(wanted)} events",
            seconds=seconds,
        )
        found = told()
        await self._compare(found, jobs, log)
        return found

    async def _compare(self, found: Sequence[Told], jobs: Collection[UUID], log: Sequence[str]) -> None:
        outbox = await self.rows(
            "select job_id, seq, event_id, kafka_key from workflow_run_events_outbox where job_id = any (%(jobs)s)"
            " order by job_id, seq",
            jobs=list(jobs),
        )
        stored: dict[str, list[tuple[int, str, str]]] = {}
        for row in outbox:
            stored.setdefault(str(row["job_id"]), []).append((row["seq"], str(row["event_id"]), row["kafka_key"]))
        arrived: dict[str, list[Told]] = {str(job_id): [] for job_id in jobs}
        for record in first_arrivals(found):
            arrived[record.event.job_id].append(record)
        for job_id, records in arrived.items():
            assert [record.what for record in records] == list(log), f"events of {job_id}"
            assert [record.event.seq for record in records] == list(range(1, len(log) + 1))
            assert [(r.event.seq, r.event.event_id, (r.key or b"").decode()) for r in records] == stored[job_id]

    async def log(self, job_id: UUID) -> list[str]:
        """The run's events as the store has them, which have no gap."""
        events = await self.rows("select seq, type, step from event where job_id = %(id)s order by seq", id=job_id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        return [" ".join(filter(None, (EventType(event["type"]).name, event["step"]))) for event in events]


@asynccontextmanager
async def opened_fleet(
    kafka: Kafka,
    registry: RegistryServer,
    database_url: str,
    folder: Path,
    server: ScriptedServer,
    compiler: Compiler,
) -> AsyncIterator[Fleet]:
    """A fleet without workers: topics made, schemas registered, `embed-text` stored, an independent reader at work."""
    name = kafka.unique("fleet")
    text = _topics_file(name)
    (folder / "topics.yaml").write_text(text)
    (folder / "targets.yaml").write_text(json.dumps({target: {"address": server.target} for target in _TARGETS}))
    topics = load_topics(text)
    await TopicAdmin(kafka.bootstrap, KafkaSecurity()).apply(topics)
    client = SchemaRegistry(registry.url)
    await schemas.register(client, topics)
    await client.close()
    with (
        closing(Guard()) as guard,
        closing(Producer(kafka.bootstrap, registry.url, topics.requests.name)) as producer,
        EventReader(kafka.bootstrap, registry.url, topics.events.name, PARTITIONS) as reader,
        closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": _group(name), "log_level": 2})) as view,
    ):
        fleet = Fleet(
            kafka, registry, database_url, folder, server, compiler, name, topics, guard, reader, producer, view
        )
        await fleet.store(embed_text())
        try:
            yield fleet
        finally:
            for worker in fleet.workers:
                worker.close()


def _group(name: str) -> str:
    return f"{name}.workers"


def _topics_file(name: str) -> str:
    partitions = {"partitions": PARTITIONS}
    return json.dumps(
        {
            f"{name}.requests": {"role": "requests", **partitions, "config": {"max.message.bytes": 2_000_000}},
            f"{name}.events": {"role": "events", **partitions},
            f"{name}.answers": {"role": "answers", "partitions": 1},
            f"{name}.requests.dlq": {"role": "dead-letters", "partitions": 1},
        }
    )
