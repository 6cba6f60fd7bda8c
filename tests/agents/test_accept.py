"""What becomes of a batch of records: real rows, without a broker."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from schemas.errors import ContentRefused, PositionMoved
from schemas.framing import frame
from schemas.messages import INDEXES, WorkflowRunRequest
from schemas.registered import schema_text
from schemas.topics import Format, Role, Topic
from store.database import Database
from store.definitions import Definitions
from store.submit import BatchResult, IntakeBatch, Submits
from streams.agents.accept import Accept
from streams.dev.registry.server import RegistryServer
from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator
from streams.kafka.assignment import AssignedPartition, Assignment, AssignmentEnded
from streams.kafka.records import Record
from streams.kafka.registry import SchemaRegistry
from streams.metrics import Metrics
from streams.verbs.plans import Plans
from streams.verbs.submit import Submitter
from streams.verbs.workflows import stored_definition
from streams.workflow.evaluation import Evaluator
from tests.agents.bench import request_value, until
from tests.agents.hostile import hostile_values
from tests.driver.stories import Compiler, embed_text

GROUP = "workflow-runs"
TOPIC = Topic("requests", Role.REQUESTS, (Format.PROTOBUF, Format.JSON), "requests-value", 1, 1, {}, "default")
TIME_MS = 1_700_000_000_123


@dataclass
class Bench:
    """Accept with a database behind it."""

    database_url: str
    database: Database
    accept: Accept
    metrics: Metrics
    registry: SchemaRegistry

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"workflow_runs_{name}", labels) or 0

    async def rows(self, statement: str) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(
            self.database_url, autocommit=True, options="-c search_path=workflow_runs"
        ) as connection:
            return await (await connection.execute(statement.encode())).fetchall()


def record(offset: int, value: bytes | None, partition: int = 0, **changes: Any) -> Record:
    given: dict[str, Any] = {
        "timestamp_ms": TIME_MS,
        "key": b"key",
        "headers": (("h", b"\xff"), ("n", None)),
        **changes,
    }
    return Record("requests", partition, offset, value=value, **given)


def assignment(stored: int | None = None, next_offset: int = 0, partitions: int = 1) -> Assignment:
    return Assignment(
        1,
        "cluster-1",
        {("requests", number): AssignedPartition("topic-1", stored, next_offset) for number in range(partitions)},
    )


def accepting(
    database: Database,
    registry: SchemaRegistry,
    metrics: Metrics,
    batches: Any = None,
    evaluator: Evaluator | None = None,
) -> Accept:
    return Accept(
        group_id=GROUP,
        topic=TOPIC,
        submitter=Submitter(Plans(Definitions(database), evaluator or InProcessEvaluator()), max_attempts=3),
        registry=registry,
        batches=batches or Submits(database, on_committed=lambda payloads: None),
        metrics=metrics,
    )


@pytest.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    database = Database(database_url, pool_size=3)
    await database.open()
    metrics = Metrics()
    registry = SchemaRegistry("http://127.0.0.1:9", timeout_seconds=1)
    yield Bench(database_url, database, accepting(database, registry, metrics), metrics, registry)
    await registry.close()
    await database.close()


@pytest.fixture
async def asking(database_url: str, registry: RegistryServer) -> AsyncIterator[tuple[Bench, int]]:
    """The same with a registry that knows our schema text, and its id there."""
    database = Database(database_url, pool_size=3)
    await database.open()
    metrics = Metrics()
    client = SchemaRegistry(registry.url, timeout_seconds=2)
    schema_id = await client.register(f"requests-{uuid4().hex}-value", schema_text())
    yield Bench(database_url, database, accepting(database, client, metrics), metrics, client), schema_id
    await client.close()
    await database.close()


async def test_rows_events_and_the_position_come_together(bench: Bench) -> None:
    jobs = [uuid4() for _ in range(3)]
    next_offsets = await bench.accept.store(
        assignment(), [record(offset, request_value(job_id)) for offset, job_id in enumerate(jobs, start=7)]
    )
    assert next_offsets == {("requests", 0): 10}
    assert await bench.rows("SELECT job_id, status FROM run ORDER BY created_at") == [(job, "FAILED") for job in jobs]
    assert await bench.rows("SELECT count(*) FROM event WHERE type = 5 AND seq = 1") == [(3,)]
    assert await bench.rows("SELECT topic_id, next_offset FROM intake_position") == [("topic-1", 10)]
    assert bench.count("requests_total", outcome="born_failed") == 3


@pytest.mark.spec(98)
async def test_a_request_by_an_unknown_name_is_a_failed_row_with_a_failed_event(bench: Bench) -> None:
    job_id = uuid4()
    await bench.accept.store(assignment(), [record(0, request_value(job_id, input={"text": "kept"}))])
    assert await bench.rows(
        "SELECT job_id, status, workflow_name, input, error, completed_at IS NOT NULL FROM workflow_run"
    ) == [(job_id, "FAILED", "no-such", {"text": "kept"}, "WORKFLOW: there is no stored workflow 'no-such'", True)]
    assert await bench.rows("SELECT event.job_id, seq, type, event.status, error FROM event") == [
        (job_id, 1, 5, "FAILED", "WORKFLOW: there is no stored workflow 'no-such'")
    ]
    assert await bench.rows("SELECT kind FROM relay_queue") == [("event",)]


async def test_a_request_that_names_a_job_but_cannot_run_is_born_failed(bench: Bench) -> None:
    jobs = [uuid4() for _ in range(4)]
    values = [
        request_value(jobs[0], input="[1]"),
        request_value(jobs[1], input={"text": "a\0b"}),
        request_value(jobs[2], workflow_name=""),
        request_value(jobs[3], unknown_key=1),
    ]
    await bench.accept.store(assignment(), [record(offset, value) for offset, value in enumerate(values)])
    rows = await bench.rows("SELECT job_id, status FROM run ORDER BY created_at")
    assert rows == [(job, "FAILED") for job in jobs]
    assert await bench.rows("SELECT count(*) FROM dead_letter") == [(0,)]


async def test_every_hostile_value_is_a_dead_letter_byte_for_byte_and_its_neighbours_run(
    asking: tuple[Bench, int],
) -> None:
    bench, schema_id = asking
    hostile = hostile_values(schema_id)
    jobs = [uuid4() for _ in range(len(hostile) + 1)]
    values: list[bytes | None] = [request_value(jobs[0])]
    for (value, _), job_id in zip(hostile.values(), jobs[1:], strict=True):
        request = WorkflowRunRequest(job_id=str(job_id), workflow_name="no-such", input="{}").SerializeToString()
        values += [value, frame(schema_id, request, INDEXES[WorkflowRunRequest])]
    records = [record(offset, value) for offset, value in enumerate(values)]

    assert await bench.accept.store(assignment(), records) == {("requests", 0): len(values)}

    assert await bench.rows("SELECT job_id FROM run ORDER BY created_at") == [(job,) for job in jobs]
    letters = await bench.rows(
        "SELECT record_offset, code, key, value, headers, record_time, state, reason FROM dead_letter"
        " ORDER BY letter_id"
    )
    assert [row[:6] for row in letters] == [
        (2 * number + 1, code, b"key", value, [["h", "/w=="], ["n", None]], TIME_MS)
        for number, (value, code) in enumerate(hostile.values())
    ]
    assert all(state == ("HELD" if code == "unknown-schema" else "READY") for _, code, *_, state, _ in letters)
    assert all(reason for *_, reason in letters)
    held = sum(code == "unknown-schema" for _, code in hostile.values())
    assert await bench.rows("SELECT count(*) FROM relay_queue WHERE kind = 'letter'") == [(len(hostile) - held,)]
    assert bench.count("requests_total", outcome="dead_letter") == len(hostile) - held
    assert bench.count("requests_total", outcome="held") == held > 0
    assert bench.count("dead_letters_total", code="job-id") > 0


async def test_a_letter_names_where_the_record_stood(bench: Bench) -> None:
    await bench.accept.store(assignment(), [record(4, b"hello", timestamp_ms=-1)])
    assert await bench.rows(
        "SELECT cluster_id, topic_id, topic, partition, record_offset, record_time FROM dead_letter"
    ) == [("cluster-1", "topic-1", "requests", 0, 4, -1)]


@pytest.mark.spec(100)
async def test_redelivery_adds_no_row_no_event_and_no_letter(bench: Bench) -> None:
    records = [record(0, request_value()), record(1, b"hello"), record(2, request_value())]
    await bench.accept.store(assignment(), records)
    before = await bench.rows("SELECT xmin::text, * FROM run ORDER BY job_id")
    await bench.accept.store(assignment(stored=3), records)  # by a later reader
    await bench.accept.store(assignment(stored=None), records)  # by this one, which never learned that it was stored
    assert await bench.rows("SELECT xmin::text, * FROM run ORDER BY job_id") == before
    assert await bench.rows("SELECT count(*) FROM event") == [(2,)]
    assert await bench.rows("SELECT count(*) FROM dead_letter") == [(1,)]
    assert await bench.rows("SELECT count(*) FROM relay_queue") == [(3,)]
    assert bench.count("requests_total", outcome="existing") == 4


async def test_other_content_under_a_known_id_is_a_dead_letter_and_changes_nothing(bench: Bench) -> None:
    job_id = uuid4()
    await bench.accept.store(assignment(), [record(0, request_value(job_id, input={"n": 1}))])
    await bench.accept.store(assignment(stored=1), [record(1, request_value(job_id, input={"n": 2}))])
    assert await bench.rows("SELECT input FROM workflow_run") == [({"n": 1},)]
    assert await bench.rows("SELECT code, record_offset FROM dead_letter") == [("conflict", 1)]
    assert bench.count("dead_letters_total", code="conflict") == 1


async def test_the_key_says_nothing_the_value_rules(bench: Bench) -> None:
    jobs = [uuid4() for _ in range(3)]
    keys = [None, b"\xff\x00", str(uuid4()).encode()]
    await bench.accept.store(
        assignment(),
        [record(n, request_value(job), key=key) for n, (job, key) in enumerate(zip(jobs, keys, strict=True))],
    )
    assert await bench.rows("SELECT job_id FROM run ORDER BY created_at") == [(job,) for job in jobs]


async def test_the_record_time_and_the_trace_come_along_where_they_are_usable(bench: Bench) -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given = [
        (TIME_MS, (("traceparent", trace),)),
        (-1, (("traceparent", trace), ("traceparent", b"00-\x00"))),
        (2**62, (("traceparent", None),)),
    ]
    await bench.accept.store(
        assignment(),
        [record(n, request_value(), timestamp_ms=t, headers=headers) for n, (t, headers) in enumerate(given)],
    )
    assert await bench.rows(
        "SELECT (extract(epoch FROM record_time) * 1000)::bigint, trace_context FROM run JOIN run_input USING (job_id)"
        " ORDER BY created_at"
    ) == [(TIME_MS, trace.decode()), (None, None), (None, None)]


async def test_partitions_of_one_batch_move_their_own_positions(bench: Bench) -> None:
    here = assignment(partitions=2)
    records = [record(5, request_value()), record(50, request_value(), 1), record(6, request_value())]
    assert await bench.accept.store(here, records) == {("requests", 0): 7, ("requests", 1): 51}
    assert await bench.accept.store(here, [record(8, request_value())]) == {("requests", 0): 9}
    assert await bench.rows("SELECT partition, next_offset FROM intake_position ORDER BY 1") == [(0, 9), (1, 51)]


async def test_a_position_that_somebody_else_moved_stops_the_batch_and_writes_nothing(bench: Bench) -> None:
    mine, theirs = assignment(), assignment()
    await bench.accept.store(theirs, [record(0, request_value())])
    with pytest.raises(PositionMoved):
        await bench.accept.store(mine, [record(0, request_value()), record(1, request_value())])
    assert await bench.rows("SELECT count(*) FROM run") == [(1,)]


async def test_an_outage_of_the_store_is_waited_out_and_told(database_url: str, bench: Bench) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("ALTER TABLE workflow_runs.run RENAME TO away")
        storing = asyncio.create_task(bench.accept.store(assignment(), [record(0, request_value())]))
        await until(lambda: bench.accept.waits_for is not None, lambda: "no outage is told")
        await other.execute("ALTER TABLE workflow_runs.away RENAME TO run")
    assert await storing == {("requests", 0): 1}
    assert bench.accept.waits_for is None
    assert await bench.rows("SELECT count(*) FROM run") == [(1,)]


async def test_an_outage_ends_with_the_assignment(database_url: str, bench: Bench) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("ALTER TABLE workflow_runs.run RENAME TO away")
        here = assignment()
        storing = asyncio.create_task(bench.accept.store(here, [record(0, request_value())]))
        await until(lambda: bench.accept.waits_for is not None, lambda: "no outage is told")
        here.end()
        with pytest.raises(AssignmentEnded):
            await storing
    assert bench.accept.waits_for is None


async def test_a_registry_that_is_away_holds_the_batch(asking: tuple[Bench, int], registry: RegistryServer) -> None:
    bench, schema_id = asking
    request = WorkflowRunRequest(job_id=str(uuid4()), workflow_name="no-such", input="{}").SerializeToString()
    registry.pause()
    storing = asyncio.create_task(
        bench.accept.store(
            assignment(),
            [record(0, request_value()), record(1, frame(schema_id, request, INDEXES[WorkflowRunRequest]))],
        )
    )
    await until(lambda: bench.accept.waits_for is not None, lambda: "no outage is told")
    assert await bench.rows("SELECT count(*) FROM run") == [(0,)]
    registry.resume()
    assert await storing == {("requests", 0): 2}
    assert await bench.rows("SELECT count(*) FROM dead_letter") == [(0,)]


def _install(python: Path) -> None:
    unready = python.with_suffix(".new")
    unready.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    unready.chmod(0o755)
    unready.rename(python)


async def test_a_machine_that_cannot_check_expressions_holds_the_batch(bench: Bench, tmp_path: Path) -> None:
    document = {**embed_text(), "name": "gated"}
    document["steps"] = [{**step, "when": "input.text != ''"} for step in document["steps"]]
    definition = stored_definition(await Compiler()(document), "gated")
    await Definitions(bench.database).put_workflow(definition, tenant_id="default", name="gated", created_by="test")
    python = tmp_path / "python"
    evaluator = ChildEvaluator(python=str(python))
    accept = accepting(bench.database, bench.registry, bench.metrics, evaluator=evaluator)

    storing = asyncio.create_task(
        accept.store(assignment(), [record(0, request_value(workflow_name="gated", input={"text": "a"}))])
    )
    await until(lambda: accept.waits_for is not None, lambda: "no trouble is told")
    assert "cannot be started here" in (accept.waits_for or "")
    assert await bench.rows("SELECT count(*) FROM run") == [(0,)]
    await asyncio.to_thread(_install, python)

    assert await storing == {("requests", 0): 1}
    assert await bench.rows("SELECT status FROM run") == [("QUEUED",)]
    await evaluator.close()


async def test_an_input_that_breaks_its_rules_is_born_failed_with_the_rules_it_broke(bench: Bench) -> None:
    document = {**embed_text(), "name": "ruled", "validate": True}
    [(name, text)] = document["schema"]["sources"].items()
    text = text.replace("package text.v1;", 'package text.v1;\nimport "buf/validate/validate.proto";')
    ruled = "message Text { string text = 1 [(buf.validate.field).string.max_len = 3]; }"
    text = text.replace("message Text { string text = 1; }", ruled)
    document["schema"] = {**document["schema"], "sources": {name: text}}
    definition = stored_definition(await Compiler()(document), "ruled")
    await Definitions(bench.database).put_workflow(definition, tenant_id="default", name="ruled", created_by="test")

    requests = [request_value(workflow_name="ruled", input={"text": text}) for text in ("abcd", "abc")]
    await bench.accept.store(assignment(), [record(offset, value) for offset, value in enumerate(requests)])

    assert await bench.rows("SELECT status FROM run ORDER BY created_at") == [("FAILED",), ("QUEUED",)]
    reason = "VALIDATION: input: text: must be at most 3 characters"
    assert await bench.rows("SELECT error FROM run_outcome WHERE error IS NOT NULL") == [(reason,)]
    [(type_, error, detail)] = await bench.rows("SELECT type, error, detail FROM event WHERE error IS NOT NULL")
    assert (type_, error) == (5, reason)
    [violation] = json.loads(detail)["violations"]
    assert violation == {"path": "text", "ruleId": "string.max_len", "message": "must be at most 3 characters"}


class _Refusing:
    """Postgres behind a check that refuses some records, as it does what our own checks failed to foresee."""

    def __init__(self, batches: Submits, refused: set[UUID]) -> None:
        self._batches = batches
        self._refused = refused
        self.sizes: list[int] = []

    async def batch(self, batch: IntakeBatch) -> BatchResult:
        self.sizes.append(len(batch.records) + len(batch.letters))
        if any(each.submission.job_id in self._refused for each in batch.records):
            raise ContentRefused("invalid input syntax (22P02)")
        return await self._batches.batch(batch)


async def test_what_postgres_refuses_is_found_by_halving_and_is_alone_dead_lettered(bench: Bench) -> None:
    jobs = [uuid4() for _ in range(16)]
    refused = {jobs[3], jobs[12]}
    batches = _Refusing(Submits(bench.database, on_committed=lambda payloads: None), refused)
    accept = accepting(bench.database, bench.registry, bench.metrics, batches)
    here = assignment()
    records = [record(offset, request_value(job_id)) for offset, job_id in enumerate(jobs)]

    assert await accept.store(here, records) == {("requests", 0): 16}

    assert await bench.rows("SELECT job_id FROM run ORDER BY created_at") == [(j,) for j in jobs if j not in refused]
    assert await bench.rows("SELECT record_offset, code FROM dead_letter ORDER BY 1") == [
        (3, "refused-by-store"),
        (12, "refused-by-store"),
    ]
    assert await bench.rows("SELECT next_offset FROM intake_position") == [(16,)]
    assert max(batches.sizes) == 16
    assert len(batches.sizes) < 20
    assert await accept.store(here, [record(16, request_value())]) == {("requests", 0): 17}
