"""Reading runs: everything about one, pages of many, and nothing of another tenant's."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import InputInvalid
from schemas.events import EventType, Status
from store.database import Database
from store.definitions import Definitions
from store.queries import Queries, RunPage
from store.records import StoredDefinition
from store.statements import sql as statement_text
from store.submit import IntakeBatch, Submits
from tests.store.samples import GROUP, Sql, record, select, submission


@pytest.fixture
def queries(database: Database) -> Queries:
    return Queries(database)


def ids(page: RunPage) -> list[UUID]:
    return [run.job_id for run in page.runs]


async def test_a_run_is_everything_about_it(database: Database, queries: Queries, submits: Submits, sql: Sql) -> None:
    definition = StoredDefinition(b"\1" * 32, "embed-text", {"name": "embed-text", "steps": [1, 2.5]}, b"set", 1)
    await Definitions(database).put(definition)
    request = submission(
        input='{"big": 12345678901234567890123, "half": 0.5, "whole": 2.0, "deep": [null, true, "ä"]}',
        labels={"team": "search"},
        business_key="order-7",
        trace_context="00-trace",
        record_time=datetime(2026, 11, 30, tzinfo=UTC),
    )
    await submits.submit(request)
    await sql.execute(
        b"""insert into checkpoint (job_id, step_index, step, skipped, attempt, fence, response, created_at)
            select job_id, 0, 'tokenize', false, 1, 1, '{"n": 9007199254740993}', created_at + interval '1 s'
              from run"""
    )

    row = await queries.run("default", request.job_id)

    assert row is not None
    assert (row.job_id, row.tenant_id, row.workflow_name, row.status) == (
        request.job_id,
        "default",
        "embed-text",
        Status.QUEUED,
    )
    columns: Mapping[str, Any] = row.columns
    assert columns["input"] == {
        "big": 12345678901234567890123,
        "half": 0.5,
        "whole": 2.0,
        "deep": [None, True, "ä"],
    }
    assert columns["workflow_definition"] == definition.document
    assert columns["definition_hash"] == definition.definition_hash.hex()
    assert columns["labels"] == {"team": "search"}
    assert (columns["business_key"], columns["trace_context"]) == ("order-7", "00-trace")
    assert columns["record_time"] == request.record_time
    assert columns["result"] is columns["verdict"] is columns["error"] is None
    [checkpoint] = columns["checkpoints"]
    assert checkpoint["response"] == {"n": 9007199254740993}
    assert columns["updated_at"] == columns["created_at"] + timedelta(seconds=1)


async def test_a_run_has_every_column_of_the_view(queries: Queries, submits: Submits, sql: Sql) -> None:
    request = submission()
    await submits.submit(request)

    row = await queries.run("default", request.job_id)

    view = "select column_name from information_schema.columns where table_name = 'workflow_run'"
    assert row is not None
    assert set(row.columns) == {column["column_name"] for column in await select(sql, view)}


async def test_another_tenants_run_is_answered_like_an_unknown_one(queries: Queries, submits: Submits) -> None:
    request = submission()
    await submits.submit(request)

    assert await queries.run("stranger", request.job_id) is None
    assert await queries.events("stranger", request.job_id) == []
    assert await queries.runs("stranger") == RunPage((), None)
    assert await queries.run("default", uuid4()) is None
    assert await queries.events("default", uuid4()) == []


async def test_the_log_of_a_run_is_told_in_order(queries: Queries, submits: Submits, sql: Sql) -> None:
    request = submission()
    await submits.submit(request)
    await sql.execute(
        b"""insert into event (job_id, seq, event_id, attempt, type, status, step, detail)
            select job_id, number, new_event_id(), 1, 2, 'RUNNING', 'step ' || number, '{"a":  1}'
              from run, generate_series(12, 2, -1) as number"""
    )

    log = await queries.events("default", request.job_id)

    assert [event.seq for event in log] == list(range(1, 13))
    assert (log[0].type, log[0].status, log[0].step) == (EventType.ACCEPTED, Status.QUEUED, None)
    assert (log[1].type, log[1].step, log[1].detail) == (EventType.STEP_CHECKPOINT, "step 2", '{"a":  1}')


async def test_pages_are_newest_first_and_neither_repeat_nor_miss_a_run(queries: Queries, submits: Submits) -> None:
    requests = [submission() for _ in range(7)]
    await submits.batch(IntakeBatch(GROUP, [record(request) for request in requests]))
    newest_first = [request.job_id for request in reversed(requests)]

    first = await queries.runs("default", limit=3)
    await submits.submit(submission())
    second = await queries.runs("default", limit=3, cursor=first.next_cursor)
    third = await queries.runs("default", limit=3, cursor=second.next_cursor)

    assert ids(first) + ids(second) + ids(third) == newest_first
    assert first.next_cursor
    assert second.next_cursor
    assert third.next_cursor is None


async def test_runs_of_one_moment_are_paged_by_their_ids(queries: Queries, submits: Submits, sql: Sql) -> None:
    requests = [submission() for _ in range(6)]
    await submits.batch(IntakeBatch(GROUP, [record(request) for request in requests]))
    await sql.execute(b"update run set created_at = '2026-11-30'")

    found: list[UUID] = []
    cursor = None
    for _ in range(3):
        page = await queries.runs("default", limit=2, cursor=cursor)
        found += ids(page)
        cursor = page.next_cursor

    assert found == sorted((request.job_id for request in requests), reverse=True)
    assert cursor is None


async def test_a_page_that_ends_exactly_at_the_end_is_the_last(queries: Queries, submits: Submits) -> None:
    await submits.batch(IntakeBatch(GROUP, [record(submission()) for _ in range(3)]))

    assert (await queries.runs("default", limit=3)).next_cursor is None


async def test_an_offset_passes_over_runs(queries: Queries, submits: Submits) -> None:
    requests = [submission() for _ in range(5)]
    await submits.batch(IntakeBatch(GROUP, [record(request) for request in requests]))
    newest_first = [request.job_id for request in reversed(requests)]

    assert ids(await queries.runs("default", limit=2, offset=2)) == newest_first[2:4]
    assert ids(await queries.runs("default", limit=2, offset=9)) == []


async def test_filters_narrow_a_list_and_a_cursor_goes_on_within_it(queries: Queries, submits: Submits) -> None:
    for number in range(12):
        await submits.submit(
            submission(
                UUID(int=number),
                workflow_name="ship-order" if number % 2 else "embed-text",
                business_key="order-7" if number % 3 == 0 else None,
                error="WORKFLOW: no" if number % 4 == 0 else None,
                target=None if number % 4 == 0 else "tokenizer",
            )
        )

    async def numbers(**filters: Any) -> list[int]:
        found: list[int] = []
        cursor = None
        while True:
            page = await queries.runs("default", limit=2, cursor=cursor, **filters)
            found += [run.job_id.int for run in page.runs]
            if (cursor := page.next_cursor) is None:
                return found

    assert await numbers() == list(range(11, -1, -1))
    assert await numbers(status=Status.FAILED) == [8, 4, 0]
    assert await numbers(workflow_name="ship-order") == [11, 9, 7, 5, 3, 1]
    assert await numbers(business_key="order-7") == [9, 6, 3, 0]
    assert await numbers(business_key="order-7", workflow_name="ship-order") == [9, 3]
    assert await numbers(business_key="order-7", status=Status.FAILED) == [0]
    assert await numbers(business_key="order-8") == []


async def test_a_summary_tells_why_a_run_failed_and_when_it_last_moved(
    queries: Queries, submits: Submits, sql: Sql
) -> None:
    await submits.submit(submission(error="WORKFLOW: no such workflow", target=None, business_key="order-7"))
    await sql.execute(b"update event set occurred_at = occurred_at + interval '1 s'")

    [run] = (await queries.runs("default")).runs

    assert (run.status, run.error, run.attempt, run.business_key) == (
        Status.FAILED,
        "WORKFLOW: no such workflow",
        0,
        "order-7",
    )
    assert run.completed_at == run.created_at
    assert run.updated_at == run.created_at + timedelta(seconds=1)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "%%%%",
        "ä",
        base64.urlsafe_b64encode(b"2026-11-30T00:00:00+00:00").decode(),
        base64.urlsafe_b64encode(f"2026-11-30T00:00:00 {UUID(int=7)}".encode()).decode(),
        base64.urlsafe_b64encode(f"yesterday {UUID(int=7)}".encode()).decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
async def test_a_cursor_that_no_list_returned_is_refused(queries: Queries, cursor: str) -> None:
    with pytest.raises(InputInvalid) as refused:
        await queries.runs("default", cursor=cursor)
    assert refused.value.pointer == "/cursor"


@pytest.mark.parametrize(
    ("statement", "index", "more"),
    [("runs", "run_list", {}), ("runs_of_business_key", "run_business_key", {"business_key": "order-7"})],
)
async def test_lists_go_by_their_index_and_by_nothing_else(
    sql: Sql, statement: str, index: str, more: dict[str, object]
) -> None:
    params: dict[str, object] = {
        "tenant_id": "default",
        "status": "FAILED",
        "workflow_name": None,
        "below_time": datetime.now(UTC),
        "below_job": uuid4(),
        "limit": 51,
        "offset": 0,
        **more,
    }
    await sql.execute(b"set plan_cache_mode = force_generic_plan")
    query = b"explain (format json) " + statement_text(f"queries/{statement}")
    [[[plan]]] = [list(row.values()) for row in await (await sql.execute(query, params, prepare=True)).fetchall()]

    scans = list(_scans(plan["Plan"]))
    [of_runs] = [scan for scan in scans if scan["Relation Name"] == "run"]
    assert of_runs["Index Name"] == index
    assert "Seq Scan" not in {scan["Node Type"] for scan in scans}
    if statement == "runs":
        assert "created_at" in of_runs["Index Cond"], "the cursor must be found through the index"
        assert "Sort" not in json.dumps(plan), "pages come in the order of the index"


def _scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    below = [scan for part in plan.get("Plans", []) for scan in _scans(part)]
    return [plan, *below] if "Relation Name" in plan else below
