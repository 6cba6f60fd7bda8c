"""Settled runs go when they are old enough and published, in two phases, whole, and each by one worker."""

import asyncio
from datetime import timedelta

import pytest

from store.prune import Prune, Pruned
from tests.store.given import Given
from tests.store.pruned import DAY, TABLES, left, pruned_away, pruning, published, settled, time_of
from tests.store.samples import (
    counts,
    select,
    select_one,
)


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
