"""Whole workers on a real database, as many as a test wants, and what became of the runs they drove."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from schemas.events import EventType
from store.answers import Answers
from store.committer import Committer
from store.control import Control
from store.database import Database
from store.definitions import Definitions
from store.handler_transactions import HandlerTransactions
from store.items import Items
from store.leases import Leases
from store.moves import Moves
from store.notify import Listener, Notifier
from store.progress import Progress
from store.records import StoredCheckpoint, StoredDefinition
from store.submit import Submits
from store.upkeep import Upkeep
from streams.calls.grpc_calls import GrpcCalls
from streams.calls.targets import Targets
from streams.driver.driver import Driver, DriverLimits
from streams.driver.handled import Handlers
from streams.driver.progress import ProgressBoard
from streams.evaluator.evaluators import InProcessEvaluator
from streams.handlers.calls import HandlerCalls
from streams.handlers.registry import load_registry
from streams.metrics import Metrics
from streams.verbs.plans import Plans
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import ENGINE, ENGINE_LEVEL
from tests.driver.stories import Compiler, embed_text
from tests.fixtures.grpc_server import ReceivedCall, ScriptedServer
from tests.store.samples import Sql, connected, select, select_one, submission

WAIT_SECONDS = 15.0


@dataclass
class Worker:
    """One worker process's parts for runs, all of its own."""

    database: Database
    driver: Driver
    leases: Leases
    calls: GrpcCalls
    handlers: Handlers
    metrics: Metrics
    listener: Listener
    driving: "asyncio.Task[None]"

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric without its prefix; 0 where it was never touched."""
        return self.metrics.registry.get_sample_value(f"workflow_runs_{name}", labels) or 0.0


@dataclass
class World:
    """A database with its runs, a service for every target, and the workers that a test starts."""

    url: str
    folder: Path
    server: ScriptedServer
    database: Database
    sql: Sql
    compiler: Compiler
    targets: dict[str, dict[str, object]] = field(default_factory=dict)

    async def run(self, document: dict[str, Any] | None = None, **changes: Any) -> UUID:
        """A queued run of *document*, submitted beside every worker."""
        compiled = await self.compiler(document or embed_text())
        await Definitions(self.database).put(
            StoredDefinition(
                compiled.definition_hash, "embed-text", compiled.document, compiled.descriptor_set, ENGINE_LEVEL
            )
        )
        notifier = Notifier(self.database)
        known = {
            "definition_hash": compiled.definition_hash,
            "target": compiled.plan.next_target(0),
            "steps_total": len(compiled.plan.steps),
            "run_deadline_ms": compiled.plan.run_deadline_ms,
            "job_id": uuid4(),
        }
        submitted = await Submits(self.database, on_committed=notifier.notify).submit(
            submission(**{**known, **changes})
        )
        await notifier.close()
        return submitted.job_id

    @contextlib.asynccontextmanager
    async def worker(
        self,
        owner: str = "worker-a:1",
        *,
        lease_seconds: float = 30,
        in_flight: int = 16,
        backoff_base_seconds: float = 0.05,
        listening: bool = True,
        most_channels: int = 64,
        message_bytes: int = 16 << 20,
        call: Callable[[GrpcCalls], Any] = lambda calls: calls,
        evaluator: Evaluator | None = None,
        handlers: Sequence[str] = (),
        handler_idle_seconds: float = 30,
    ) -> AsyncIterator[Worker]:
        """A worker at work until the block ends; then it stops as a process does on the way out."""
        file = self.folder / "targets.yaml"
        file.write_text(json.dumps(self.targets))
        database = Database(self.url, pool_size=4)
        await database.open()
        listener = Listener(self.url)
        notifier = Notifier(database, listener)
        committer = Committer(database, on_committed=notifier.notify)
        leases = Leases(database, owner=owner, lease_seconds=lease_seconds, engine_level=ENGINE_LEVEL)
        targets = Targets(file)
        calls = GrpcCalls(targets, most_channels=most_channels, message_bytes=message_bytes)
        metrics = Metrics()
        evaluator = evaluator or InProcessEvaluator()
        handler_calls = HandlerCalls(load_registry(handlers), metrics=metrics)
        served = Handlers(
            handler_calls,
            HandlerTransactions(
                database,
                self.url,
                on_committed=notifier.notify,
                in_thread=handler_calls.in_thread,
                in_loop=handler_calls.in_loop,
                idle_seconds=handler_idle_seconds,
            ),
            ProgressBoard(Progress(database)),
        )
        driver = Driver(
            leases=leases,
            moves=Moves(committer),
            items=Items(database),
            upkeep=Upkeep(database, lease_seconds=lease_seconds, max_lost_leases=3, on_committed=notifier.notify),
            plans=Plans(Definitions(database), evaluator),
            evaluator=evaluator,
            calls=call(calls),
            targets=targets,
            handlers=served,
            listener=listener,
            metrics=metrics,
            limits=DriverLimits(
                in_flight=in_flight, lease_seconds=lease_seconds, backoff_base_seconds=backoff_base_seconds
            ),
        )
        beside = [asyncio.create_task(committer.run()), asyncio.create_task(handler_calls.run())]
        if listening:
            beside.append(asyncio.create_task(listener.run()))
            await until(lambda: listener.connected)
        driving = asyncio.create_task(driver.run())
        try:
            yield Worker(database, driver, leases, calls, served, metrics, listener, driving)
        finally:
            driving.cancel()
            await asyncio.wait({driving})
            await served.close()
            await calls.close()
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await notifier.close()
            await leases.close()
            await database.close()

    @contextlib.asynccontextmanager
    async def reconnected(self) -> AsyncIterator[None]:
        """Look at the database over a new connection: the old one ended with the server."""
        async with connected(self.url) as self.sql:
            yield

    @contextlib.asynccontextmanager
    async def locked_out(self) -> AsyncIterator[None]:
        """Let no statement that touches runs have an answer: what a database does that was cut off."""
        async with connected(self.url) as sql, sql.transaction():
            await sql.execute("lock table run in access exclusive mode")
            yield

    @contextlib.asynccontextmanager
    async def slow_outcomes(self) -> AsyncIterator[asyncio.Event]:
        """Let moves that settle a run wait in the database until the event is set."""
        await self.sql.execute("""
            create function wait_for_test() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(42); return new; end $$;
            create trigger wait_for_test before insert on run_outcome for each row execute function wait_for_test()""")
        await self.sql.execute("select pg_advisory_lock(42)")
        release = asyncio.Event()

        async def unlock() -> None:
            await release.wait()
            await self.sql.execute("select pg_advisory_unlock(42)")

        unlocking = asyncio.create_task(unlock())
        try:
            yield release
        finally:
            release.set()
            await unlocking

    async def kill_connections(self) -> None:
        """End every connection to the database but those that the test looks with."""
        query = """
            select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()
               and application_name like 'workflow-runs%'"""
        await self.sql.execute(query)

    async def row(self, job_id: UUID) -> dict[str, Any]:
        """All that the database says about a run."""
        [row] = await select(self.sql, "select * from workflow_run where job_id = %(id)s", {"id": job_id})
        return row

    async def until_status(self, job_id: UUID, status: str) -> dict[str, Any]:
        """Wait until the run has that status; return its row."""
        return await self.until_row(job_id, lambda row: row["status"] == status)

    async def until_settled(self, job_id: UUID) -> dict[str, Any]:
        """Wait until the run has ended, in whatever way; return its row."""
        return await self.until_row(job_id, lambda row: row["completed_at"] is not None)

    async def until_error(self, job_id: UUID) -> dict[str, Any]:
        """Wait until a failed try of the run is on record; return its row."""
        return await self.until_row(job_id, lambda row: row["last_error"] is not None)

    async def until_row(self, job_id: UUID, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the run's row is as *holds* wants it; return it."""
        give_up_at = time.monotonic() + WAIT_SECONDS
        while True:
            row = await self.row(job_id)
            if holds(row):
                return row
            assert time.monotonic() < give_up_at, f"still {row}"
            await asyncio.sleep(0.01)

    async def until_idle(self, worker: Worker) -> None:
        """Wait until the worker has let go of every run."""
        await until(lambda: worker.count("held_runs") == 0)

    async def finish_steps(self, job_id: UUID, done: Sequence[tuple[str, object]]) -> None:
        """Let another worker have finished these steps of the only queued run of its id, and handed it back."""
        leases = Leases(self.database, owner="earlier:1", lease_seconds=30, engine_level=ENGINE_LEVEL)
        committer = Committer(self.database, on_committed=lambda payloads: None)
        running = asyncio.create_task(committer.run())
        moves = Moves(committer)
        for run in await leases.claim({"tokenizer": 100}):
            if run.job_id == job_id:
                for index, (step, response) in enumerate(done):
                    await moves.checkpoint(run, StoredCheckpoint(index, step, skipped=False, response=response))
            await moves.release(run, target=("tokenizer", "embedder", ENGINE)[len(done) if run.job_id == job_id else 0])
        await committer.close()
        await running

    async def lose_lease(self, job_id: UUID) -> None:
        """Let the run's lease run out, as if its holder had been stopped, and another worker sweep it."""
        await self.sql.execute("update run set lease_until = now() - interval '1 s' where job_id = %s", [job_id])
        notifier = Notifier(self.database)
        upkeep = Upkeep(self.database, lease_seconds=60, max_lost_leases=3, on_committed=notifier.notify)
        await upkeep.sweep()
        await notifier.close()

    async def log(self, job_id: UUID) -> list[str]:
        """The run's events in order, which has no gap."""
        query = "select seq, type, step, attempt from event where job_id = %(id)s order by seq"
        events = await select(self.sql, query, {"id": job_id})
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        return [" ".join(filter(None, (EventType(event["type"]).name, event["step"]))) for event in events]

    async def largest_event(self, job_id: UUID) -> int:
        """Bytes of the largest of the run's events, as text."""
        query = "select max(length(event::text)) from event where job_id = %(id)s"
        return int(await select_one(self.sql, query, {"id": job_id}))

    def control(self) -> Control:
        return Control(self.database, on_committed=Notifier(self.database).notify)

    def answers(self) -> Answers:
        return Answers(self.database, on_committed=Notifier(self.database).notify)

    def calls_of(self, job_id: UUID, method: str) -> list[ReceivedCall]:
        """The calls of one run as the service saw them."""
        return [call for call in self.server.calls(method) if call.metadata["job-id"] == str(job_id)]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until *condition* holds."""
    give_up_at = time.monotonic() + WAIT_SECONDS
    while True:
        if condition():
            return
        assert time.monotonic() < give_up_at, "it never came to be"
        await asyncio.sleep(0.005)
