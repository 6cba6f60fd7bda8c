"""Settled runs go when they are old enough and published, and their ids stay taken until they are forgotten."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.events import Status
from schemas.ids import uuid7
from store.database import Database
from store.prune import Prune, Pruned
from store.records import SubmitOutcome, Submitted
from store.submit import IntakeBatch, Submits
from tests.store.given import Given, finished
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

DAY = timedelta(days=1)
TABLES = ("run", "run_input", "run_outcome", "checkpoint", "item", "event", "record", "relay_queue")


def pruning(database: Database, **changes: Any) -> Prune:
    """Pruning as by default: a week, a month, a minute."""
    values: dict[str, Any] = {"prune_after_seconds": 7 * 86_400, "remember_seconds": 30 * 86_400, **changes}
    return Prune(database, **values)


@pytest.fixture
def prune(database: Database) -> Prune:
    return pruning(database)


async def time_of(sql: Sql) -> datetime:
    now = await select_one(sql, "select now()")
    assert isinstance(now, datetime)
    return now


async def settled(given: Given, **changes: Any) -> UUID:
    """A completed run with rows in every table, all of it published."""
    run = await given.held(**changes)
    await given.moves.checkpoint(run, finished())
    await given.moves.complete(run, result={"ok": True}, verdict="1 steps, output x")
    await published(given.sql)
    job_id = {"job_id": run.job_id}
    await given.sql.execute(
        b"""insert into item (job_id, step, item_index, status, fence, attempt, input_hash, response)
            values (%(job_id)s, 's', 0, 'COMPLETED', 1, 1, 'h', '{}')""",
        job_id,
    )
    await given.sql.execute(b"insert into record values (%(job_id)s, 2, 0, 't', 'a.A', 'k', 'v', '[]')", job_id)
    return run.job_id


async def published(sql: Sql) -> None:
    """Everything that waits for the relay is acknowledged."""
    await sql.execute(b"delete from relay_queue")


async def left(sql: Sql, job_id: UUID) -> dict[str, int]:
    """How many rows of a run the tables still have."""
    found = {
        table: await select_one(sql, f"select count(*) from {table} where job_id = %(id)s", {"id": job_id})
        for table in TABLES
    }
    return {table: count for table, count in found.items() if count}


async def pruned_away(prune: Prune, sql: Sql) -> datetime:
    """Both phases, eight days on; returns the time of the second."""
    now = await time_of(sql) + 8 * DAY
    await prune.step(now=now)
    now += timedelta(minutes=2)
    await prune.step(now=now)
    return now


async def test_a_run_goes_whole_a_minute_after_it_is_remembered(given: Given, prune: Prune) -> None:
    job_id = await settled(given)
    young = await settled(given)
    whole = await left(given.sql, job_id)
    assert set(whole) == set(TABLES) - {"relay_queue"}
    now = await time_of(given.sql)

    assert await prune.step(now=now + 6 * DAY) == Pruned(0, 0, 0, more=False)
    await given.sql.execute(
        b"update run set completed_at = completed_at + interval '5 d' where job_id = %(id)s", {"id": young}
    )
    now += 8 * DAY
    assert await prune.step(now=now) == Pruned(1, 0, 0, more=False)
    assert await left(given.sql, job_id) == whole
    assert await prune.step(now=now + timedelta(seconds=59)) == Pruned(0, 0, 0, more=False)
    assert await left(given.sql, job_id) == whole
    assert await prune.step(now=now + timedelta(seconds=61)) == Pruned(0, 1, 0, more=False)
    assert await left(given.sql, job_id) == {}
    assert await left(given.sql, young) == whole
    [memory] = await select(given.sql, "select job_id, tenant_id, status from pruned_run")
    assert memory == {"job_id": job_id, "tenant_id": "default", "status": "COMPLETED"}


async def test_runs_that_are_not_settled_stay_for_ever(given: Given, prune: Prune) -> None:
    runs = [await given.run(), (await given.held()).job_id, (await given.parked()).job_id]
    await published(given.sql)
    now = await time_of(given.sql)
    for days in (100, 200):
        assert await prune.step(now=now + days * DAY) == Pruned(0, 0, 0, more=False)
    assert await select_one(given.sql, "select count(*) from run") == len(runs)


@pytest.mark.parametrize("kind", ["event", "record", "state"])
async def test_a_run_stays_while_anything_of_it_is_unpublished(given: Given, prune: Prune, kind: str) -> None:
    waiting, done = await settled(given), await settled(given)
    await given.sql.execute(
        b"""insert into relay_queue (shard, kind, job_id, seq)
            select shard, %(kind)s, job_id, 3 from run where job_id = %(id)s""",
        {"kind": kind, "id": waiting},
    )
    whole = await left(given.sql, waiting)
    now = await pruned_away(prune, given.sql)
    assert await left(given.sql, waiting) == whole
    assert await left(given.sql, done) == {}

    await published(given.sql)
    assert (await prune.step(now=now)).deleted == 1
    assert await left(given.sql, waiting) == {}


async def test_what_is_queued_between_the_look_and_the_lock_is_seen(given: Given, prune: Prune) -> None:
    """The statement that deletes has a snapshot of its own, begun after the lock."""
    job_id = await settled(given)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    now += timedelta(minutes=2)
    async with given.database.transaction() as transaction:
        asked = {"job_ids": [job_id], "delay_seconds": 60.0, "now": now}
        [locked] = await transaction.rows("prune/lock", asked)
        await given.sql.execute(
            b"insert into relay_queue (shard, job_id, seq) select shard, job_id, 4 from run where job_id = %(id)s",
            {"id": job_id},
        )
        params = {"job_ids": [job_id], "shards": [locked["shard"]]}
        assert await transaction.rows("prune/delete", params) == []
    assert (await left(given.sql, job_id))["run"] == 1


async def test_runs_that_cannot_go_do_not_stand_before_those_that_can(given: Given) -> None:
    stuck = [await settled(given) for _ in range(3)]
    for job_id in stuck:
        await given.sql.execute(
            b"insert into relay_queue (shard, job_id, seq) select shard, job_id, 9 from run where job_id = %(id)s",
            {"id": job_id},
        )
    queued = await select(given.sql, "select shard, job_id, seq from relay_queue")
    later = [await settled(given) for _ in range(3)]  # this publishes all that waits
    for row in queued:
        await given.sql.execute(
            b"insert into relay_queue (shard, job_id, seq) values (%(shard)s, %(job_id)s, %(seq)s)", row
        )
    prune = pruning(given.database, batch_runs=2)
    now = await time_of(given.sql) + 8 * DAY
    for minutes in (0, 2):
        while (await prune.step(now=now + timedelta(minutes=minutes))).more:
            pass
    found = {row["job_id"] for row in await select(given.sql, "select job_id from run")}
    assert found == set(stuck)
    assert not found & set(later)


async def test_a_step_deletes_a_bounded_number_of_rows(given: Given) -> None:
    jobs = [await settled(given) for _ in range(5)]
    await given.sql.execute(b"update run set items_total = 9000")
    prune = pruning(given.database)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    now += timedelta(minutes=2)
    steps = []
    while (step := await prune.step(now=now)).more:
        steps.append(step.deleted)
    assert [*steps, step.deleted] == [2, 2, 1]
    assert [await left(given.sql, job_id) for job_id in jobs] == [{}] * 5


async def test_two_workers_at_once_prune_each_run_once(given: Given) -> None:
    for _ in range(12):
        await settled(given)
    now = await time_of(given.sql) + 8 * DAY

    async def work() -> int:
        prune, deleted = pruning(given.database, batch_runs=5), 0
        for minutes in (0, 2, 4):
            while True:
                step = await prune.step(now=now + timedelta(minutes=minutes))
                deleted += step.deleted
                if not step.more:
                    break
        return deleted

    assert sum(await asyncio.gather(work(), work(), work())) == 12
    assert await counts(given.sql) == {}
    assert await select_one(given.sql, "select count(*) from pruned_run") == 12


async def test_a_run_in_somebodys_hands_is_left_for_the_next_time(given: Given, prune: Prune) -> None:
    job_id = await settled(given)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    now += timedelta(minutes=2)
    async with given.database.transaction() as other:
        params = {"moves": f'[{{"job_id": "{job_id}"}}]', "now": None}
        await other.rows("moves/lock", params)
        async with asyncio.timeout(2):  # without SKIP LOCKED this would hang
            assert (await prune.step(now=now)).deleted == 0
    assert (await prune.step(now=now)).deleted == 1


async def test_a_run_that_was_reopened_after_it_was_remembered_stays(given: Given, prune: Prune) -> None:
    job_id = await settled(given)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    reopen = b"""update run set status = 'QUEUED', next_target = 'x', completed_at = null where job_id = %(id)s"""
    settle = b"""update run set status = 'FAILED', next_target = null, completed_at = now() where job_id = %(id)s"""
    await given.sql.execute(reopen, {"id": job_id})
    assert (await prune.step(now=now + timedelta(minutes=2))).deleted == 0
    await given.sql.execute(settle, {"id": job_id})
    # It is as old as before, and remembered, but as what it was: it is remembered anew first.
    assert await prune.step(now=now + timedelta(minutes=4)) == Pruned(1, 0, 0, more=False)
    assert await select_one(given.sql, "select status from pruned_run") == "FAILED"
    assert (await prune.step(now=now + timedelta(minutes=6))).deleted == 1


async def test_a_deletion_that_waits_for_a_reopening_lets_the_run_be(given: Given, prune: Prune) -> None:
    job_id = await settled(given)
    now = await time_of(given.sql) + 8 * DAY
    await prune.step(now=now)
    asked = {"job_ids": [job_id], "delay_seconds": 60.0, "now": now + timedelta(minutes=2)}
    async with given.database.transaction() as reopening:
        await reopening.rows("moves/lock", {"moves": f'[{{"job_id": "{job_id}"}}]', "now": None})
        async with given.database.transaction() as pruner:
            assert await pruner.rows("prune/lock", asked) == []
    await given.sql.execute(
        b"update run set status = 'QUEUED', next_target = 'x', completed_at = null where job_id = %(id)s",
        {"id": job_id},
    )
    async with given.database.transaction() as pruner:
        assert await pruner.rows("prune/lock", asked) == []


async def test_the_lock_takes_only_what_was_remembered_as_it_is_and_for_long_enough(given: Given) -> None:
    job_id = await settled(given)
    now = await time_of(given.sql)
    await given.database.rows("prune/remember", {"job_ids": [job_id], "now": now})

    async def locked(seconds: float) -> bool:
        async with given.database.transaction() as pruner:
            asked = {"job_ids": [job_id], "delay_seconds": 60.0, "now": now + timedelta(seconds=seconds)}
            return bool(await pruner.rows("prune/lock", asked))

    assert not await locked(59)
    assert await locked(61)
    await given.sql.execute(b"update run set completed_at = completed_at + interval '1 s'")
    assert not await locked(61)


async def test_to_remember_a_run_again_does_not_begin_the_wait_anew(given: Given) -> None:
    job_id = await settled(given)
    now = await time_of(given.sql)
    for later, remembered in ((0, 1), (30, 0)):
        params = {"job_ids": [job_id], "now": now + timedelta(seconds=later)}
        assert len(await given.database.rows("prune/remember", params)) == remembered
    assert await select_one(given.sql, "select pruned_at from pruned_run") == now


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
