"""The ids of pruned runs stay taken until they are forgotten, whatever races with either."""

import asyncio
from datetime import timedelta
from uuid import uuid4

from schemas.events import Status
from schemas.ids import uuid7
from store.database import Database
from store.prune import Prune
from store.records import SubmitOutcome, Submitted
from store.submit import IntakeBatch, Submits
from tests.store.given import Given
from tests.store.pruned import DAY, left, pruned_away, pruning, published, settled, time_of
from tests.store.samples import (
    GROUP,
    Sql,
    Woken,
    connected,
    counts,
    record,
    select,
    select_one,
    submission,
    until_blocked,
)


async def test_p2_outlives_the_pruning_of_the_run(given: Given, prune: Prune) -> None:
    request = submission(target="gone-target")
    run = await given.held(job_id=request.job_id, target="gone-target")
    await given.moves.complete(run, result=None, verdict="1 steps, output x")
    await published(given.sql)
    await pruned_away(prune, given.sql)
    assert await counts(given.sql) == {}

    redelivered = await given.submits.batch(IntakeBatch(GROUP, [record(request)]))
    retried = await given.submits.submit(request)
    other = await given.submits.batch(IntakeBatch(GROUP, [record(submission(request.job_id, input='{"text": "b"}'))]))

    gone = Submitted(request.job_id, SubmitOutcome.PRUNED, Status.COMPLETED)
    assert (redelivered.submitted, redelivered.letters, retried) == ((gone,), 0, gone)
    assert (other.submitted[0].outcome, other.letters) == (SubmitOutcome.CONFLICT, 1)
    assert await select_one(given.sql, "select count(*) from run") == 0
    assert await select_one(given.sql, "select code from dead_letter") == "conflict"


async def test_a_submit_during_a_deletion_finds_the_run_and_one_after_it_the_memory(given: Given, prune: Prune) -> None:
    job_id = await settled(given)
    request = submission(job_id)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    async with given.database.transaction() as pruner:
        asked = {"job_ids": [job_id], "delay_seconds": 60.0, "now": now + timedelta(minutes=2)}
        [locked] = await pruner.rows("prune/lock", asked)
        assert await pruner.rows("prune/delete", {"job_ids": [job_id], "shards": [locked["shard"]]})
        during = await given.submits.submit(request)
    after = await given.submits.submit(request)
    assert (during.outcome, after.outcome) == (SubmitOutcome.EXISTING, SubmitOutcome.PRUNED)
    assert await left(given.sql, job_id) == {}


async def test_a_deletion_during_a_submit_leaves_no_second_run(given: Given, prune: Prune) -> None:
    """The submit has looked, and not committed yet, when the second phase passes."""
    job_id = await settled(given)
    request = submission(job_id)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    inserted, go_on = asyncio.Event(), asyncio.Event()

    async def stop_before_commit(point: str) -> None:
        if point == "submit.before_commit":
            inserted.set()
            await go_on.wait()

    slow = asyncio.create_task(
        Submits(given.database, on_committed=Woken(), commit_point=stop_before_commit).submit(request)
    )
    await inserted.wait()
    assert (await prune.step(now=now + timedelta(minutes=2))).deleted == 1
    go_on.set()
    assert (await slow).outcome is SubmitOutcome.EXISTING
    assert await left(given.sql, job_id) == {}
    assert (await given.submits.submit(request)).outcome is SubmitOutcome.PRUNED


async def test_a_submit_whose_insert_waits_while_the_id_is_pruned_takes_its_row_back(
    submits: Submits, database: Database, sql: Sql, database_url: str
) -> None:
    """A first submit is open; a second waits for it; the run settles, is pruned, and then the second goes on."""
    request = submission()
    prune = pruning(database)
    async with connected(database_url) as first:
        async with first.transaction():
            await first.execute(
                b"""insert into run (job_id, status, next_target, shard, engine_level, max_attempts, steps_total,
                                     fingerprint, tenant_id, workflow_name)
                    values (%(id)s, 'QUEUED', 'x', 0, 1, 3, 3, %(fingerprint)s, 'default', 'embed-text')""",
                {"id": request.job_id, "fingerprint": request.fingerprint},
            )
            waiting = asyncio.create_task(submits.submit(request))
            await until_blocked(sql, waiting)
            # The same transaction plays the life of the run, since nobody else could see it.
            await first.execute(
                b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, settled_at)
                    select job_id, tenant_id, fingerprint, 'COMPLETED', now() from run"""
            )
            await first.execute(b"delete from run")
        assert (await waiting).outcome is SubmitOutcome.PRUNED
    assert await counts(sql) == {}
    assert (await prune.step(now=await time_of(sql) + 8 * DAY)).deleted == 0


async def test_an_id_is_forgotten_a_month_after_the_later_of_settling_and_record_time(
    given: Given, prune: Prune
) -> None:
    now = await time_of(given.sql)
    early = await settled(given, record_time=now - 3 * DAY)
    late = await settled(given, record_time=now + 20 * DAY)
    await given.sql.execute(
        b"""insert into idempotency_key (tenant_id, key, job_id, fingerprint)
            select 'default', job_id::text, job_id, fingerprint from run"""
    )
    settled_at = await select_one(given.sql, "select completed_at from run where job_id = %(id)s", {"id": early})
    await pruned_away(prune, given.sql)

    assert (await prune.step(now=now + 29 * DAY)).forgotten == 0
    assert await select_one(given.sql, "select forgotten_before from upkeep") is None
    assert (await prune.step(now=now + 31 * DAY)).forgotten == 1
    assert await select(given.sql, "select job_id from pruned_run") == [{"job_id": late}]
    assert await select(given.sql, "select job_id from idempotency_key") == [{"job_id": late}]
    assert await select_one(given.sql, "select forgotten_before from upkeep") == settled_at
    assert (await prune.step(now=now + 51 * DAY)).forgotten == 1
    assert await select_one(given.sql, "select forgotten_before from upkeep") == now + 20 * DAY
    assert await select_one(given.sql, "select count(*) from idempotency_key") == 0


async def test_a_run_that_is_still_there_is_not_forgotten(given: Given, prune: Prune) -> None:
    job_id = await settled(given)
    await given.sql.execute(
        b"insert into relay_queue (shard, job_id, seq) select shard, job_id, 3 from run where job_id = %(id)s",
        {"id": job_id},
    )
    now = await time_of(given.sql)
    for days in (8, 9, 60, 61):
        assert (await prune.step(now=now + days * DAY)).forgotten == 0
    assert await select_one(given.sql, "select forgotten_before from upkeep") is None
    assert await select_one(given.sql, "select count(*) from pruned_run") == 1


async def test_what_is_forgotten_never_goes_back_in_time(database: Database, sql: Sql) -> None:
    """Two workers forget at once: the one that commits last has the older runs."""
    now = await time_of(sql)
    for days in (90, 80):
        await sql.execute(
            b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, settled_at)
                values (%(id)s, 'default', 'f', 'COMPLETED', %(at)s)""",
            {"id": uuid4(), "at": now - days * DAY},
        )
    params = {"remember_seconds": 30 * 86_400, "limit": 1, "now": None}
    async with database.transaction() as older:
        assert await older.rows("prune/forget", params) == [{"forgotten": 1}]
        newer = asyncio.create_task(database.rows("prune/forget", params))
        await until_blocked(sql, newer)
    assert await newer == [{"forgotten": 1}]
    assert await select_one(sql, "select forgotten_before from upkeep") == now - 80 * DAY
    await sql.execute(
        b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, settled_at)
            values (%(id)s, 'default', 'f', 'COMPLETED', %(at)s)""",
        {"id": uuid7(), "at": now - 85 * DAY},
    )
    await database.rows("prune/forget", params)
    assert await select_one(sql, "select forgotten_before from upkeep") == now - 80 * DAY


async def test_forgetting_goes_on_while_there_is_more(database: Database, sql: Sql) -> None:
    await sql.execute(
        b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, settled_at)
            select gen_random_uuid(), 'default', 'f', 'COMPLETED', now() - interval '40 d' from generate_series(1, 5)"""
    )
    prune = pruning(database, batch_runs=2)
    assert [(step.forgotten, step.more) for step in [await prune.step() for _ in range(3)]] == [
        (2, True),
        (2, True),
        (1, False),
    ]
