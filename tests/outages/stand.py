"""A worker whose every way out leads through a fault proxy, and what is told of it while something is away."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from psycopg import conninfo

from streams.dev.apache import ApacheKafka, Listener
from streams.dev.faultproxy import FaultProxy
from streams.dev.ports import free_port
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet, opened_fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, Compiler
from tests.fixtures.grpc_server import ScriptedServer
from tests.fixtures.kafka import OnApache

STORE_SECONDS = 5.0
"""How soon work must go on after the end of an outage of Postgres or of a target."""
KAFKA_SECONDS = 15.0
"""The same for Kafka and the registry."""
NOTICED_SECONDS = 30.0


@dataclass(frozen=True)
class Look:
    """What a worker said of itself at one moment."""

    at: float
    alive: bool
    ready: bool
    troubled: Mapping[str, str]


@dataclass
class Watch:
    """Asks a worker how it is, five times a second, for as long as it watches."""

    worker: WorkerProcess
    looks: list[Look] = field(default_factory=list)

    async def keep(self) -> None:
        while True:
            alive, _ = await self.worker.health("/healthz")
            ready, said = await self.worker.health("/readyz")
            services = said["services"] if ready else []
            troubled = {one["name"]: one.get("detail", "") for one in services if not one["ready"]}
            self.looks.append(Look(time.monotonic(), alive == 200, ready == 200, troubled))
            await asyncio.sleep(0.2)

    async def until_troubled(self, *names: str, seconds: float = NOTICED_SECONDS) -> None:
        """Wait until the worker has said of each of these services that it is not ready."""
        first = len(self.looks)

        def said() -> set[str]:
            return {name for look in self.looks[first:] for name in look.troubled}

        await until(lambda: set(names) <= said(), lambda: f"it says nothing of {set(names) - said()}", seconds=seconds)

    async def until_ready(self, *, seconds: float) -> None:
        """Wait until the worker says that all is well."""
        asked = time.monotonic()
        await until(
            lambda: bool(self.looks) and self.looks[-1].at > asked and self.looks[-1].ready,
            lambda: f"the worker is not ready: {self.looks[-1:]}",
            seconds=seconds,
        )


@dataclass
class Stand:
    """Servers of these tests alone, a proxy before each, and one worker on the far side of the proxies.

    The tests themselves go round the proxies.
    """

    fleet: Fleet
    cluster: ApacheKafka
    postgres: EmbeddedPostgres
    to_kafka: FaultProxy
    to_postgres: FaultProxy
    to_registry: FaultProxy
    to_target: FaultProxy
    watches: list[WorkerProcess] = field(default_factory=list)

    @property
    def proxies(self) -> Collection[FaultProxy]:
        return (self.to_kafka, self.to_postgres, self.to_registry, self.to_target)

    def start(self, name: str, **changes: object) -> WorkerProcess:
        """Start a worker behind the proxies and do not wait for it."""
        url = conninfo.make_conninfo(self.postgres.url(), port=self.to_postgres.port)
        targets = self.fleet.folder / "proxied-targets.yaml"
        targets.write_text(
            json.dumps({name: {"address": self.to_target.address} for name in ("tokenizer", "embedder")})
        )
        behind = {
            "database_url": url,
            "kafka_bootstrap": self.to_kafka.address,
            "schema_registry_url": f"http://{self.to_registry.address}",
            "targets_file": targets,
            # An outage of seconds costs no lease here, and as many tries of a step as it takes.
            "lease_seconds": 60,
            "max_attempts": 1_000,
            "backoff_cap_seconds": 1,
        }
        return self.fleet.start(name, **{**behind, **changes})

    async def worker(self) -> WorkerProcess:
        """The worker that all tests share, ready."""
        if not self.fleet.workers:
            self.start("worker-a")
        worker = self.fleet.workers[0]
        await worker.ready()
        return worker

    @asynccontextmanager
    async def watching(self, worker: WorkerProcess) -> AsyncIterator[Watch]:
        """Watch *worker*; at the end, it was alive all along, and counted no outage against anybody."""
        watch = Watch(worker)
        keeping = asyncio.create_task(watch.keep())
        try:
            yield watch
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
        assert worker.running, f"{worker.name} ended"
        assert all(look.alive for look in watch.looks), "not alive in an outage"
        assert await worker.count("relay_failures_total") == 0
        assert await worker.count("dead_letters_total") == 0
        assert await worker.count("leases_lost_total") == 0

    async def until_finished(self, jobs: Collection[UUID], *, runs: float, events: float) -> None:
        """Wait until *jobs* are done within *runs* seconds and their events are out within *events*, from now."""
        began = time.monotonic()
        await self.fleet.until_all(jobs, "COMPLETED", seconds=runs)
        await self.fleet.until_told(jobs, EMBED_TEXT_LOG, seconds=events - (time.monotonic() - began))

    async def counted_nothing(self, jobs: Collection[UUID]) -> None:
        """Make sure that the outage was held against none of *jobs*, and that no call was made twice."""
        for job_id in jobs:
            row = await self.fleet.row(job_id)
            assert (row["attempt"], row["lost_leases"], row["fence"]) == (0, 0, 1), row
            assert [len(self.fleet.calls(method, job_id)) for method in (TOKENIZE, EMBED)] == [1, 1]

    @contextmanager
    def black_hole(self, *proxies: FaultProxy) -> Iterator[None]:
        """Let nothing through these proxies, while the block lasts."""
        for proxy in proxies:
            proxy.silence()
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.heal()

    @contextmanager
    def refused(self, proxy: FaultProxy) -> Iterator[None]:
        """Cut every connection through the proxy and refuse new ones, while the block lasts."""
        proxy.refuse()
        proxy.reset_all()
        try:
            yield
        finally:
            proxy.heal()


async def submit(worker: WorkerProcess, workflow: str, given: Mapping[str, object], job_id: UUID | None = None) -> UUID:
    """Ask *worker* itself for a run, over HTTP."""
    asked = {"workflowName": workflow, "input": given, "jobId": str(job_id or uuid4())}
    answer = await worker.call("submit-workflow", asked)
    assert answer["ok"] is True, answer
    return UUID(answer["jobId"])


@asynccontextmanager
async def opened_stand(folder: Path, postgres: EmbeddedPostgres) -> AsyncIterator[Stand]:
    """A stand on a broker of its own and on *postgres*, which is migrated."""
    port, advertised = free_port(), free_port()
    server = ScriptedServer()
    server.script(TOKENIZE, TOKENS)
    server.script(EMBED, VECTOR)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        to_kafka = stack.enter_context(FaultProxy(port, port=advertised))
        cluster = stack.enter_context(ApacheKafka(listeners=[Listener("PROXIED", port, advertised)]))
        registry = stack.enter_context(RegistryServer())
        to_postgres = stack.enter_context(FaultProxy(postgres.port))
        to_registry = stack.enter_context(FaultProxy(registry.port))
        to_target = stack.enter_context(FaultProxy(int(server.target.rpartition(":")[2])))
        kafka = OnApache(cluster)
        async with opened_fleet(kafka, registry, postgres.url(), folder, server, Compiler()) as fleet:
            yield Stand(fleet, cluster, postgres, to_kafka, to_postgres, to_registry, to_target)
