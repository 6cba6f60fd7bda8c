"""Everything that is measured against: Postgres as in production, a broker, a registry, a service, and workers."""

import asyncio
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg
from confluent_kafka import Producer

from schemas.topics import load_topics
from store.migrate import apply_database_settings, migrate
from streams.dev.apache import ApacheKafka, available
from streams.dev.broker import EmbeddedBroker
from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, free_port, free_ports
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.processes import ChildProcess
from streams.dev.registry.server import RegistryServer
from streams.kafka.registry import SchemaRegistry
from streams.kafka.schemas import register
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.parts.store import open_verbs
from streams.settings import load_settings
from tests.bench.watcher import BenchFailed
from tests.bench.workload import FAN_OUT_WORKFLOW, TARGET, WORKFLOW

ROOT: Final = Path(__file__).parents[2]
IN_FLIGHT: Final = 128
PARTITIONS: Final = 6
SESSION_SECONDS: Final[Mapping[str, float]] = {"apache": 30.0, "embedded": 6.0}
"""How long a worker that stands still keeps its partitions. Joining the embedded broker's groups takes half of it."""

POSTGRES: Final[Mapping[str, str]] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
}

_TEMPLATE: Final = "bench_template"
_START_SECONDS: Final = 60.0
_FLUSH_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class BenchTopics:
    """Topics of one point alone: the file that describes them, the one of the requests, and the schema's id."""

    file: Path
    requests: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class BenchDatabase:
    """A migrated database of one point alone, which knows the workflow."""

    name: str
    url: str


class Servers:
    """What all points share. A context manager; a point takes a database, topics and a worker of its own from it."""

    def __init__(self, kafka: str | None) -> None:
        """*kafka* is `apache` or `embedded`; None takes Apache Kafka where this machine can run it."""
        self._exit = ExitStack()
        self.kafka_kind = kafka or ("embedded" if available() else "apache")
        self.postgres = EmbeddedPostgres(settings=POSTGRES)
        self.broker = ApacheKafka() if self.kafka_kind == "apache" else EmbeddedBroker()
        self.registry = RegistryServer()
        self.session_seconds = SESSION_SECONDS[self.kafka_kind]
        self.service = f"{LOOPBACK}:{free_port()}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def _start(self) -> None:
        self._guard = Guard()
        self._exit.callback(self._guard.close)
        self.folder = self._guard.make_folder("bench")
        for server in (self.postgres, self.broker, self.registry):
            self._exit.enter_context(server)
        port = self.service.rpartition(":")[2]
        service = self._exit.enter_context(self.process("service", ["tests.bench.noop_service", port]))
        service.start_on(int(port), deadline_seconds=_START_SECONDS)
        self._admin = self._exit.enter_context(psycopg.connect(self.postgres.url(), autocommit=True))
        self._admin.execute(f"create database {_TEMPLATE}".encode())
        asyncio.run(prepare_database(self.postgres.url(_TEMPLATE)))

    def facts(self) -> dict[str, object]:
        """What is measured against, as it says itself."""
        rows = self._admin.execute(
            "select name, current_setting(name) from pg_settings where name = any (%s)", [["server_version", *POSTGRES]]
        ).fetchall()
        return {"kafka": self.kafka_kind, "postgres": dict(sorted(rows)), "in_flight": IN_FLIGHT}

    @contextmanager
    def database(self) -> Iterator[BenchDatabase]:
        """A fresh database, after a checkpoint, so that no point pays for the pages of another."""
        name = f"bench_{uuid.uuid4().hex}"
        database = BenchDatabase(name, self.postgres.url(name))
        self._admin.execute(f"create database {name} template {_TEMPLATE} strategy file_copy".encode())
        asyncio.run(apply_database_settings(database.url))
        self._admin.execute("checkpoint")
        try:
            yield database
        finally:
            self._admin.execute(f"drop database {name} with (force)".encode())

    @contextmanager
    def without_autovacuum(self) -> Iterator[None]:
        """Keep the server's own housekeeping out of what is counted: its first pass over a new database is large."""
        self._configure(b"alter system set autovacuum = off")
        try:
            yield
        finally:
            self._configure(b"alter system reset autovacuum")

    def _configure(self, statement: bytes) -> None:
        self._admin.execute(statement)
        self._admin.execute("select pg_reload_conf()")

    def topics(self) -> BenchTopics:
        """Make topics of their own, with the schema registered."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        text = "".join(
            f"{name}.{role}: {{role: {role}, partitions: {PARTITIONS}, replication: 1}}\n"
            for role in ("requests", "events", "answers")
        )
        file = self.folder / f"{name}.yaml"
        file.write_text(text)
        return BenchTopics(file, f"{name}.requests", asyncio.run(self._apply(file)))

    async def _apply(self, file: Path) -> int:
        topics = load_topics(file)
        await TopicAdmin(self.broker.bootstrap, KafkaSecurity()).apply(topics)
        registry = SchemaRegistry(self.registry.url)
        try:
            known = {subject.name: subject.schema_id for subject in await register(registry, topics)}
        finally:
            await registry.close()
        schema_id = known[topics.requests.subject or ""]
        assert schema_id is not None
        return schema_id

    def produce(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Put *records*, keys and values, on a topic and wait until all are there."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 20})
        for key, value in records:
            producer.produce(topic, value, key)
        if left := producer.flush(_FLUSH_SECONDS):
            raise BenchFailed(f"{left} records did not reach the broker")

    @contextmanager
    def worker(self, database: BenchDatabase, roles: str, topics: BenchTopics) -> Iterator[ChildProcess]:
        """A worker process that is ready for work."""
        web, health = free_ports(2)
        worker = self.process(
            "worker", ["streams.cli", "worker"], self._environment(database, roles, topics, web, health)
        )
        with worker:
            worker.start()
            worker.wait_until(lambda: _is_ready(health), deadline_seconds=_START_SECONDS)
            yield worker
            worker.stop(grace_seconds=20)

    def _environment(
        self, database: BenchDatabase, roles: str, topics: BenchTopics, web: int, health: int
    ) -> dict[str, str]:
        targets = self.folder / "targets.yaml"
        targets.write_text(f'{TARGET}: {{address: "{self.service}", permits: {IN_FLIGHT}}}\n')
        settings = {
            "DATABASE_URL": database.url,
            "KAFKA_BOOTSTRAP": self.broker.bootstrap,
            "KAFKA_SESSION_TIMEOUT_SECONDS": str(self.session_seconds),
            "SCHEMA_REGISTRY_URL": self.registry.url,
            "TOPICS_FILE": str(topics.file),
            "TARGETS_FILE": str(targets),
            "GROUP": topics.requests,
            "ROLES": roles,
            "IN_FLIGHT": str(IN_FLIGHT),
            "HTTP_BIND": f"{LOOPBACK}:{web}",
            "HEALTH_BIND": f"{LOOPBACK}:{health}",
            "LOG_LEVEL": "WARNING",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKFLOW_RUNS_")}
        return {**inherited, **{f"WORKFLOW_RUNS_{name}": value for name, value in settings.items()}}

    def process(self, name: str, module: Sequence[str], environment: Mapping[str, str] | None = None) -> ChildProcess:
        """Describe one of our Python programs as a child process."""
        log = self.folder / f"{name}-{uuid.uuid4().hex[:8]}.log"
        command = [sys.executable, "-m", *module]
        return ChildProcess(name, command, log=log, folder=ROOT, environment=environment, guard=self._guard)


async def prepare_database(url: str) -> None:
    """Make the tables and store the workflows.

    Raises:
        BenchFailed: one of them is refused.
    """
    await migrate(url)
    async with open_verbs(load_settings(database_url=url)) as verbs:
        for workflow in (WORKFLOW, FAN_OUT_WORKFLOW):
            answer = await verbs.call("put-workflow", {"workflow": workflow})
            if answer["ok"] is not True:
                raise BenchFailed(f"the workflow is refused: {answer}")


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        time.sleep(0.1)
        return False
