"""A store that takes nothing for a while: work waits, is handed back, and never fails for it."""

import asyncio

import pytest

from streams.dev.postgres import EmbeddedPostgres
from tests.driver.stories import EMBED, TOKENIZE
from tests.driver.world import World, until

FULL_LOG = ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED"]

REFUSE = """
create function refuse() returns trigger language plpgsql as
$$ begin raise exception 'no room' using errcode = '53100'; end $$;
create trigger refuse before insert on checkpoint for each row execute function refuse();
"""


@pytest.mark.spec(63)
async def test_a_store_that_takes_no_checkpoint_has_the_run_requeued_and_the_step_run_again(world: World) -> None:
    job_id = await world.run()
    await world.sql.execute(REFUSE)

    async with world.worker(lease_seconds=1) as worker:
        await until(lambda: worker.count("moves_total", move="release", result="applied") == 1)
        row = await world.row(job_id)
        assert (row["status"], row["attempt"], row["lost_leases"]) in {("QUEUED", 0, 0), ("RUNNING", 0, 0)}
        await world.sql.execute("drop trigger refuse on checkpoint")
        await world.until_status(job_id, "COMPLETED")

    assert await world.log(job_id) == FULL_LOG
    assert len(world.server.calls(TOKENIZE)) >= 2


async def test_a_checkpoint_that_is_taken_at_the_second_try_repeats_no_call(world: World) -> None:
    job_id = await world.run()
    await world.sql.execute(REFUSE)

    async with world.worker(lease_seconds=60):
        await until(lambda: bool(world.server.calls(TOKENIZE)))
        await until(lambda: world.server.calls(TOKENIZE)[0].answered)
        await asyncio.sleep(0.2)
        await world.sql.execute("drop trigger refuse on checkpoint")
        await world.until_status(job_id, "COMPLETED")

    assert len(world.server.calls(TOKENIZE)) == 1


async def test_connections_that_are_killed_under_load_lose_and_repeat_nothing(world: World) -> None:
    async with world.worker() as worker:
        job_ids = [await world.run() for _ in range(20)]
        for _ in range(3):
            await world.kill_connections()
            await asyncio.sleep(0.1)
        for job_id in job_ids:
            await world.until_status(job_id, "COMPLETED")
        assert not worker.driving.done()

    assert [await world.log(job_id) for job_id in job_ids] == [FULL_LOG] * 20
    assert all(len(world.calls_of(job_id, EMBED)) == 1 for job_id in job_ids)


async def test_a_worker_started_while_its_database_is_away_works_once_it_is_back(
    outage_world: World, own_postgres: EmbeddedPostgres
) -> None:
    world = outage_world
    job_id = await world.run()
    own_postgres.stop()

    async with world.worker(listening=False) as worker:
        await until(lambda: "the store is away" in worker.driver.health().detail)
        assert (worker.driver.health().alive, worker.driver.health().ready) == (True, False)
        own_postgres.start()
        async with world.reconnected():
            await world.until_status(job_id, "COMPLETED")
        await until(lambda: worker.driver.health().ready)
