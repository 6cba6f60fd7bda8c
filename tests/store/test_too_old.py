"""A record with an unknown id that is as old as runs that are forgotten is never run."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from schemas.events import Status
from store.database import Database
from store.records import Submission, SubmitOutcome, Submitted
from store.submit import TOO_OLD_CODE, IntakeBatch, Submits
from tests.store.samples import (
    GROUP,
    Sql,
    Woken,
    connected,
    counts,
    position,
    record,
    select,
    select_one,
    submission,
    until_blocked,
)

DAY = timedelta(days=1)
FORGET = {"remember_seconds": 30 * 86_400, "limit": 10, "now": None}


async def now_of(sql: Sql) -> datetime:
    now = await select_one(sql, "select now()")
    assert isinstance(now, datetime)
    return now


async def remember(sql: Sql, request: Submission, settled_at: datetime) -> None:
    await sql.execute(
        b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, record_time, settled_at)
            values (%(job_id)s, 'default', %(fingerprint)s, 'COMPLETED', %(record_time)s, %(at)s)""",
        {
            "job_id": request.job_id,
            "fingerprint": request.fingerprint,
            "record_time": request.record_time,
            "at": settled_at,
        },
    )


async def forgotten_before(sql: Sql, at: datetime) -> None:
    await sql.execute(b"update upkeep set forgotten_before = %(at)s", {"at": at})


def too_old(request: Submission) -> Submitted:
    return Submitted(request.job_id, SubmitOutcome.TOO_OLD, None)


@pytest.mark.parametrize("born_failed", [False, True])
async def test_a_record_of_a_forgotten_run_is_a_dead_letter_and_never_a_run(
    submits: Submits, database: Database, sql: Sql, woken: Woken, born_failed: bool
) -> None:
    now = await now_of(sql)
    fate: dict[str, Any] = {"error": "WORKFLOW: no", "target": None} if born_failed else {}
    request = submission(record_time=now - 40 * DAY, **fate)
    await remember(sql, request, now - 39 * DAY)
    assert (await submits.submit(request)).outcome is SubmitOutcome.PRUNED
    await database.rows("prune/forget", FORGET)

    result = await submits.batch(IntakeBatch(GROUP, [record(request)], (), [position(1)]))

    assert (result.submitted, result.letters) == ((too_old(request),), 1)
    assert await counts(sql) == {"relay_queue": 1, "dead_letter": 1, "intake_position": 1}
    [letter] = await select(sql, "select code, state, value, reason from dead_letter")
    assert (letter["code"], letter["state"], letter["value"]) == (TOO_OLD_CODE, "READY", request.input.encode())
    assert str(request.job_id) in letter["reason"]
    assert woken.payloads == [["relay"]]


async def test_only_an_unknown_id_can_be_too_old(submits: Submits, sql: Sql) -> None:
    now = await now_of(sql)
    live, gone = (submission(record_time=now - 50 * DAY) for _ in range(2))
    await submits.submit(live)
    await remember(sql, gone, now - 20 * DAY)
    await forgotten_before(sql, now - 30 * DAY)
    assert (await submits.submit(live)).outcome is SubmitOutcome.EXISTING
    assert await submits.submit(gone) == Submitted(gone.job_id, SubmitOutcome.PRUNED, Status.COMPLETED)


async def test_a_record_is_too_old_up_to_the_very_time_and_no_longer(submits: Submits, sql: Sql) -> None:
    now = await now_of(sql)
    at = now - 30 * DAY
    await forgotten_before(sql, at)
    just, after, timeless = (submission(record_time=time) for time in (at, at + timedelta(microseconds=1), None))
    assert await submits.submit(just) == too_old(just)
    assert (await submits.submit(after)).outcome is SubmitOutcome.CREATED
    assert (await submits.submit(timeless)).outcome is SubmitOutcome.CREATED


async def test_on_a_new_database_nothing_is_too_old(submits: Submits, sql: Sql) -> None:
    ancient = submission(record_time=await now_of(sql) - 10_000 * DAY)
    assert (await submits.submit(ancient)).outcome is SubmitOutcome.CREATED


async def test_too_old_records_leave_their_neighbours_alone(submits: Submits, sql: Sql) -> None:
    now = await now_of(sql)
    await forgotten_before(sql, now - 30 * DAY)
    requests = [submission(record_time=now - (40 if n % 2 else 1) * DAY) for n in range(6)]

    result = await submits.batch(IntakeBatch(GROUP, [record(each, n) for n, each in enumerate(requests)]))

    assert [each.outcome for each in result.submitted] == [SubmitOutcome.CREATED, SubmitOutcome.TOO_OLD] * 3
    rows = await select(sql, "select job_id from run order by created_at")
    assert [row["job_id"] for row in rows] == [each.job_id for each in requests[::2]]
    assert await counts(sql) == {"run": 3, "run_input": 3, "event": 3, "relay_queue": 6, "dead_letter": 3}


async def test_one_too_old_id_twice_in_a_batch_makes_no_run(submits: Submits, sql: Sql) -> None:
    now = await now_of(sql)
    await forgotten_before(sql, now - 30 * DAY)
    request = submission(record_time=now - 40 * DAY)
    result = await submits.batch(IntakeBatch(GROUP, [record(request), record(request, 1)]))
    assert result.submitted == (too_old(request),) * 2
    assert await counts(sql) == {"relay_queue": 2, "dead_letter": 2}


@pytest.mark.parametrize("first", ["forget", "submit"])
async def test_a_submit_during_a_forgetting_finds_the_memory_or_is_too_old(
    submits: Submits, database: Database, sql: Sql, first: str
) -> None:
    now = await now_of(sql)
    request = submission(record_time=now - 40 * DAY)
    await remember(sql, request, now - 39 * DAY)
    async with database.transaction() as other:
        if first == "forget":
            assert await other.rows("prune/forget", FORGET) == [{"forgotten": 1}]
        outcome = (await submits.submit(request)).outcome
        assert outcome is SubmitOutcome.PRUNED
        if first == "submit":
            assert await other.rows("prune/forget", FORGET) == [{"forgotten": 1}]
    assert (await submits.submit(request)).outcome is SubmitOutcome.TOO_OLD
    assert await counts(sql) == {}


async def test_a_forgetting_that_commits_while_the_insert_waits_is_seen(
    submits: Submits, database: Database, sql: Sql, database_url: str
) -> None:
    """The insert found neither run nor memory of it, and the time is asked only afterwards."""
    now = await now_of(sql)
    request = submission(record_time=now - 40 * DAY)
    async with connected(database_url) as other:
        async with other.transaction():
            await other.execute(
                b"""insert into run (job_id, status, next_target, shard, engine_level, max_attempts, steps_total,
                                     fingerprint, tenant_id, workflow_name)
                    values (%(id)s, 'QUEUED', 'x', 0, 1, 3, 3, 'f', 'default', 'embed-text')""",
                {"id": request.job_id},
            )
            waiting = asyncio.create_task(submits.submit(request))
            await until_blocked(sql, waiting)
            await remember(sql, submission(uuid4(), record_time=now - 39 * DAY), now - 38 * DAY)
            await database.rows("prune/forget", FORGET)
            await other.execute(b"delete from run")
        assert await waiting == too_old(request)
    assert await counts(sql) == {}
