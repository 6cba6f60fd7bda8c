"""Records whose schema the registry does not know yet: held, tried again, and then a run or a dead letter."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.framing import frame
from schemas.messages import INDEXES, WorkflowRunEvent, WorkflowRunRequest
from schemas.registered import SchemaText, schema_text
from schemas.topics import Format, Role, Topic
from store.database import Database
from store.dead_letters import DeadLetters
from store.definitions import Definitions
from store.submit import Submits
from streams.agents.accept import Accept
from streams.agents.held import HeldLetters
from streams.dev.registry.server import RegistryServer
from streams.evaluator.evaluators import InProcessEvaluator
from streams.kafka.assignment import AssignedPartition, Assignment
from streams.kafka.records import Record
from streams.kafka.registry import SchemaRegistry
from streams.metrics import Metrics
from streams.verbs.plans import Plans
from streams.verbs.submit import Submitter
from tests.agents.bench import request_value, until
from tests.store.samples import Sql, connected, select, select_one

TOPIC = Topic("requests", Role.REQUESTS, (Format.PROTOBUF, Format.JSON), "requests-value", 1, 1, {}, "default")


@dataclass
class Intake:
    """Intake and the held letters of one worker, with what it counts."""

    accept: Accept
    held: HeldLetters
    registry: SchemaRegistry
    metrics: Metrics

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"workflow_runs_{name}", labels) or 0


@dataclass
class Place:
    """A database, and a registry that a test tells its schemas when it wants to."""

    url: str
    registry: RegistryServer
    sql: Sql
    unknown_id: int
    """What the registry will call our schema, once a test registers it."""

    @asynccontextmanager
    async def worker(self, *, held_seconds: float = 600, running: bool = False) -> AsyncIterator[Intake]:
        database = Database(self.url, pool_size=3)
        await database.open()
        metrics, client = Metrics(), SchemaRegistry(self.registry.url, timeout_seconds=1)
        submits = Submits(database, on_committed=lambda payloads: None)
        submitter = Submitter(Plans(Definitions(database), InProcessEvaluator()), max_attempts=3)
        held = HeldLetters(
            topic=TOPIC,
            letters=DeadLetters(database, on_committed=lambda payloads: None),
            submits=submits,
            submitter=submitter,
            registry=client,
            metrics=metrics,
            first_pause_seconds=0.1,
        )
        accept = Accept(
            group_id="workflow-runs",
            topic=TOPIC,
            submitter=submitter,
            registry=client,
            batches=submits,
            metrics=metrics,
            held_seconds=held_seconds,
            on_held=held.wake,
        )
        trying = asyncio.create_task(held.run()) if running else None
        try:
            yield Intake(accept, held, client, metrics)
        finally:
            if trying is not None:
                trying.cancel()
                await asyncio.gather(trying, return_exceptions=True)
            await client.close()
            await database.close()

    async def states(self) -> list[tuple[str, str]]:
        rows = await select(self.sql, "select state, code from dead_letter order by letter_id")
        return [(row["state"], row["code"]) for row in rows]

    async def runs(self) -> list[UUID]:
        return [row["job_id"] for row in await select(self.sql, "select job_id from run order by created_at")]


def new_schema() -> SchemaText:
    """Our schema in a text that no registry has seen."""
    return replace(schema_text(), text=f"{schema_text().text}\nmessage M{uuid4().hex} {{}}\n")


@pytest.fixture
async def place(database_url: str, registry: RegistryServer) -> AsyncIterator[Place]:
    client = SchemaRegistry(registry.url, timeout_seconds=2)
    newest_id = await client.register(f"{uuid4().hex}-value", new_schema())
    await client.close()
    async with connected(database_url) as sql:
        yield Place(database_url, registry, sql, newest_id + 1)


def framed(schema_id: int, job_id: UUID | None = None, indexes: Any = None) -> bytes:
    request = WorkflowRunRequest(job_id=str(job_id or uuid4()), workflow_name="no-such", input="{}")
    return frame(schema_id, request.SerializeToString(), indexes or INDEXES[WorkflowRunRequest])


def record(offset: int, value: bytes) -> Record:
    return Record("requests", 0, offset, timestamp_ms=1_700_000_000_123, key=b"key", value=value, headers=())


def assignment(stored: int | None = None) -> Assignment:
    return Assignment(1, "cluster-1", {("requests", 0): AssignedPartition("topic-1", stored, 0)})


async def register(intake: Intake) -> int:
    return await intake.registry.register(f"{uuid4().hex}-value", new_schema())


async def test_a_record_with_an_unknown_schema_is_held_and_its_partition_moves_on(place: Place) -> None:
    async with place.worker() as intake:
        job_id = uuid4()
        records = [record(0, framed(place.unknown_id)), record(1, request_value(job_id))]
        assert await intake.accept.store(assignment(), records) == {("requests", 0): 2}
        assert await place.runs() == [job_id]
        assert await place.states() == [("HELD", "unknown-schema")]
        assert intake.count("requests_total", outcome="held") == 1
        assert intake.count("dead_letters_total", code="unknown-schema") == 0
        settled, next_end_seconds = await intake.held.look()
        assert settled == 0
        assert next_end_seconds == pytest.approx(600, abs=20)


async def test_a_held_record_becomes_exactly_one_run_once_its_schema_is_known(place: Place) -> None:
    async with place.worker(running=True) as intake:
        job_id = uuid4()
        await intake.accept.store(assignment(), [record(0, framed(place.unknown_id, job_id))])
        await until(lambda: intake.held.health().detail == "1 held, 0 to publish", intake.held.health)
        assert await register(intake) == place.unknown_id
        await until(place.runs, lambda: "still held")
        await until(lambda: intake.held.health().detail == "0 held, 0 to publish", intake.held.health)
        assert await place.runs() == [job_id]
        assert await place.states() == []
        assert intake.count("held_letters_total", outcome="created") == 1
        [row] = await select(place.sql, "select extract(epoch from record_time)::float8 as at from run_input")
        assert row["at"] == pytest.approx(1_700_000_000.123)
        # The record is read once more, as after a crash: by now its schema is known.
        await intake.accept.store(assignment(stored=1), [record(0, framed(place.unknown_id, job_id))])
        assert await place.runs() == [job_id]
        assert await select_one(place.sql, "select count(*) from event") == 1


async def test_two_workers_that_try_the_same_letters_at_once_make_one_run_of_each(place: Place) -> None:
    async with place.worker() as reader, place.worker() as one, place.worker() as other:
        jobs = [uuid4() for _ in range(45)]
        await reader.accept.store(
            assignment(), [record(n, framed(place.unknown_id, job_id)) for n, job_id in enumerate(jobs)]
        )
        await register(reader)
        await asyncio.gather(one.held.look(), other.held.look())
        assert sorted(await place.runs()) == sorted(jobs)
        assert await place.states() == []
        assert await select_one(place.sql, "select count(*) from event") == len(jobs)
        counted = [intake.count("held_letters_total", outcome="created") for intake in (one, other)]
        assert sum(counted) == len(jobs)
        assert min(counted) > 0


async def test_a_letter_whose_time_is_over_goes_to_the_relay_as_an_unknown_schema(place: Place) -> None:
    async with place.worker(held_seconds=0.3, running=True) as intake:
        await intake.accept.store(assignment(), [record(0, framed(place.unknown_id))])
        assert await place.states() == [("HELD", "unknown-schema")]

        async def final() -> bool:
            return await place.states() == [("READY", "unknown-schema")]

        await until(final, lambda: "still held", seconds=10)
        assert await select_one(place.sql, "select count(*) from relay_queue where kind = 'letter'") == 1
        await until(lambda: intake.held.health().detail == "0 held, 1 to publish", intake.held.health)
        assert intake.count("dead_letters_total", code="unknown-schema") == 1
        assert intake.count("dead_letters_ready") == 1
        assert await place.runs() == []


async def test_an_outage_of_the_registry_settles_nothing_however_long_it_lasts(place: Place) -> None:
    async with place.worker(held_seconds=0) as intake:
        job_id = uuid4()
        await intake.accept.store(assignment(), [record(0, framed(place.unknown_id, job_id))])
        async with place.worker(running=True) as later:
            place.registry.pause()
            await until(lambda: "no answer" in later.held.health().detail, later.held.health)
            assert await place.states() == [("HELD", "unknown-schema")]
            assert later.held.health().ready
            place.registry.resume()
            # It is asked before its time's end counts: the schema came during the outage.
            await register(intake)
            await until(place.runs, lambda: "still held")
        assert await place.runs() == [job_id]
        assert await place.states() == []


@pytest.mark.parametrize("kind", ["another message", "no request", "no such message"])
async def test_a_held_record_that_turns_out_to_be_none_of_ours_is_final_at_once(place: Place, kind: str) -> None:
    values = {
        "another message": (frame(place.unknown_id, b"", INDEXES[WorkflowRunEvent]), "other-message"),
        "no request": (frame(place.unknown_id, b"\x0a\x24abc", INDEXES[WorkflowRunRequest]), "bad-protobuf"),
        "no such message": (framed(place.unknown_id, indexes=(9,)), "bad-index"),
    }
    value, code = values[kind]
    async with place.worker() as reader, place.worker() as intake:
        await reader.accept.store(assignment(), [record(0, value)])
        assert await place.states() == [("HELD", "unknown-schema")]
        await register(reader)
        settled, _ = await intake.held.look()
        assert settled == 1
        assert await place.states() == [("READY", code)]
        assert await select_one(place.sql, "select count(*) from relay_queue where kind = 'letter'") == 1


async def test_a_record_that_is_read_again_while_it_is_held_is_one_letter(place: Place) -> None:
    async with place.worker() as intake:
        value = framed(place.unknown_id)
        await intake.accept.store(assignment(), [record(0, value)])
        await intake.accept.store(assignment(stored=1), [record(0, value)])
        assert await place.states() == [("HELD", "unknown-schema")]


async def test_a_flood_of_held_letters_is_tried_in_turns(place: Place) -> None:
    """Those that are tried first do not keep the others waiting for as long as they are held."""
    async with place.worker() as reader, place.worker() as intake:
        jobs = [uuid4() for _ in range(1_100)]
        known = [uuid4() for _ in range(3)]
        values = [
            *(framed(place.unknown_id + 1, job_id) for job_id in jobs),
            *(framed(place.unknown_id, job_id) for job_id in known),
        ]
        await reader.accept.store(assignment(), [record(offset, value) for offset, value in enumerate(values)])
        await register(reader)
        assert (await intake.held.look())[0] == 0
        assert (await intake.held.look())[0] == 3
        assert await place.runs() == known


async def test_an_idle_worker_asks_once_in_a_while_and_hears_of_what_it_holds_itself(place: Place) -> None:
    async with place.worker(running=True) as intake:
        await until(lambda: "0 held" in intake.held.health().detail, intake.held.health)
        job_id = uuid4()
        await intake.accept.store(assignment(), [record(0, framed(place.unknown_id, job_id))])
        await register(intake)
        await until(place.runs, lambda: "not heard", seconds=5)  # half of an idle worker's pause
