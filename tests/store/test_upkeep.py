"""Housekeeping: runs of holders that vanished go back, and those that kill their workers end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schemas.errors import StoreUnavailable
from store.database import Database
from store.leases import Leases
from store.notify import READY, RELAY
from store.submit import Submits
from store.upkeep import Upkeep
from streams.dev.postgres import EmbeddedPostgres
from tests.store.given import Given, finished
from tests.store.samples import Sql, select_one, submission


@pytest.mark.spec(78)
async def test_an_expired_run_is_queued_again_and_a_live_lease_is_left_alone(given: Given) -> None:
    expired, live = await given.many_held(2)
    await given.moves.retry(expired, step="tokenize", target="x", error="UNAVAILABLE", delay_seconds=0)
    [expired] = await given.leases("worker-a:1").claim({"x": 1})
    before = await given.row(expired.job_id)
    untouched = await given.everything(live.job_id)
    await given.expire(expired.job_id)
    picked = await given.database.rows("upkeep/pick_expired", {"limit": 9, "now": None})
    assert picked == [{"job_id": expired.job_id}]
    given.woken.payloads.clear()

    swept = await given.upkeep.sweep()

    assert (swept.expired, swept.dead) == (1, 0)
    assert given.woken.payloads == [{READY}]
    row = await given.row(expired.job_id)
    assert (row["status"], row["attempt"], row["attempt_step"]) == ("QUEUED", 1, "tokenize")
    assert (row["lost_leases"], row["lease_owner"], row["lease_until"]) == (1, None, None)
    assert (row["next_target"], row["run_after"]) == ("x", before["run_after"])
    assert row["last_error"] == "lease expired 1 times in a row, last held by worker-a:1"
    assert await given.log(expired.job_id) == ["ACCEPTED"]
    assert await given.everything(live.job_id) == untouched


async def test_a_run_whose_claims_keep_expiring_is_dead_at_the_ceiling_and_names_the_lease(given: Given) -> None:
    run = await given.held(owner="worker-0:1")
    for n in range(1, 4):
        await given.expire(run.job_id)
        swept = await given.upkeep.sweep()
        assert (swept.expired, swept.dead) == ((1, 0) if n < 3 else (0, 1))
        if n < 3:
            suspects = n == 2
            [run] = await given.leases(f"worker-{n}:1").claim({run.claim.target: 1}, suspects=suspects)
    row = await given.row(run.job_id)
    assert (row["status"], row["lost_leases"], row["attempt"]) == ("DEAD", 3, 0)
    assert row["error"] == "lease expired 3 times in a row, last held by worker-2:1"
    assert row["completed_at"] == row["updated_at"]
    assert await given.log(run.job_id) == ["ACCEPTED", "DEAD"]
    told = "select error from event where job_id = %(id)s and type = 6"
    assert await select_one(given.sql, told, {"id": run.job_id}) == row["error"]
    assert given.woken.payloads[-1] == {RELAY}


@pytest.mark.parametrize("progress", ["checkpoint", "park"])
async def test_progress_forgets_the_leases_lost_before(given: Given, progress: str) -> None:
    run = await given.reclaimed(await given.held())
    assert (await given.row(run.job_id))["lost_leases"] == 1
    if progress == "checkpoint":
        await given.moves.checkpoint(run, finished())
    else:
        await given.moves.park(run, step="review", step_index=0, request={}, resume_target="x")
    assert (await given.row(run.job_id))["lost_leases"] == 0


async def test_a_release_and_a_retry_neither_count_nor_forget_a_lost_lease(given: Given) -> None:
    run = await given.reclaimed(await given.held())
    await given.moves.release(run, target="x")
    [run] = await given.leases("worker-a:1").claim({"x": 1})
    await given.moves.retry(run, step="tokenize", target="x", error="UNAVAILABLE", delay_seconds=0)
    assert (await given.row(run.job_id))["lost_leases"] == 1


async def test_a_sweep_says_when_to_look_next(given: Given, sql: Sql) -> None:
    swept = await given.upkeep.sweep()
    assert (swept.next_look_seconds, swept.is_due) == (20, False)
    run = await given.held()
    assert (await given.upkeep.sweep()).next_look_seconds == 1
    soon = b"update run set lease_until = now() + interval '0.4 s' where job_id = %(id)s"
    await sql.execute(soon, {"id": run.job_id})
    assert 0 < (await given.upkeep.sweep()).next_look_seconds < 0.5


async def test_more_than_one_sweep_takes_are_swept_at_once_after_it(given: Given) -> None:
    runs = await given.many_held(5)
    await given.expire(*(run.job_id for run in runs))
    first = await given.upkeep.sweep(limit=3)
    assert first.expired == 3
    assert first.next_look_seconds < 0.1
    assert (await given.upkeep.sweep(limit=3)).expired == 2


async def test_sweepers_at_once_expire_each_lease_once(given: Given) -> None:
    runs = await given.many_held(20)
    await given.expire(*(run.job_id for run in runs))
    swept = await asyncio.gather(*(given.upkeep.sweep() for _ in range(4)))
    assert sum(one.expired for one in swept) == 20
    assert {(await given.row(run.job_id))["lost_leases"] for run in runs} == {1}


@pytest.fixture
async def own_database(own_postgres: EmbeddedPostgres) -> AsyncIterator[Database]:
    database = Database(own_postgres.url())
    await database.open()
    yield database
    await database.close()


async def test_after_an_outage_nobody_is_blamed_for_half_a_lease(
    own_postgres: EmbeddedPostgres, own_database: Database
) -> None:
    now = [1000.0]
    upkeep = Upkeep(
        own_database, lease_seconds=60, max_lost_leases=3, on_committed=lambda _: None, clock=lambda: now[0]
    )
    await upkeep.sweep()
    own_postgres.stop()
    with pytest.raises(StoreUnavailable):
        await upkeep.sweep()
    own_postgres.start()
    await Submits(own_database, on_committed=lambda _: None).submit(submission())
    leases = Leases(own_database, owner="worker-a:1", lease_seconds=0, engine_level=1)
    assert len(await leases.claim({"tokenizer": 1})) == 1
    assert (await upkeep.sweep()).expired == 0
    now[0] += 29
    assert (await upkeep.sweep()).expired == 0
    now[0] += 2
    assert (await upkeep.sweep()).expired == 1
