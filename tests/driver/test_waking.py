"""An idle worker asks nothing, and nothing is late for it: it knows what comes due, is told of it, or finds it."""

import asyncio
from datetime import timedelta

import grpc
import pytest

from streams.driver import upkeep
from tests.driver.stories import TOKENIZE, TOKENS
from tests.driver.test_claims import CountedLooks
from tests.driver.world import World, until
from tests.fixtures.grpc_server import Answer

# A second as promised, and another for a machine that is busy.
SOON = timedelta(seconds=2)


async def test_a_worker_that_is_told_of_nothing_does_not_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.worker() as worker:
        await until(lambda: worker.driver.health().ready)
        job_id = await world.run()
        await world.until_status(job_id, "COMPLETED")
        await asyncio.sleep(1.2)  # its last looks, for what it might have left
        looks = CountedLooks(worker, monkeypatch)
        await asyncio.sleep(2)
        assert looks.count == 0


async def test_a_run_that_comes_due_is_claimed_then(world: World) -> None:
    job_id = await world.run()
    await world.sql.execute("update run set run_after = now() + interval '0.8 s'")
    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")
    assert timedelta(0) <= row["started_at"] - row["run_after"] < SOON


async def test_a_back_off_is_kept_to_the_second_by_whoever_is_left(world: World) -> None:
    world.server.script(TOKENIZE, Answer(status=grpc.StatusCode.UNAVAILABLE), TOKENS)
    job_id = await world.run()
    async with world.worker("a:1", backoff_base_seconds=1.5) as holder:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            async with world.worker("b:1") as other:
                await until(lambda: other.driver.health().ready)
                held.release()
                failed = await world.until_error(job_id)
                await holder.driver.drain(0)
                row = await world.until_row(job_id, lambda row: row["fence"] == 2)
                assert timedelta(0) <= row["updated_at"] - failed["run_after"] < SOON
                await world.until_status(job_id, "COMPLETED")


async def test_a_lease_that_runs_out_is_swept_and_its_run_claimed_then(world: World) -> None:
    job_id = await world.run()
    await world.sql.execute("""
        update run set status = 'RUNNING', next_target = null, resume_target = 'tokenizer', fence = 1,
               lease_owner = 'gone:1', lease_until = now() + interval '0.8 s', started_at = now()""")
    ends = (await world.row(job_id))["lease_until"]
    async with world.worker():
        row = await world.until_row(job_id, lambda row: row["fence"] == 2)
        assert timedelta(0) <= row["updated_at"] - ends < SOON
        await world.until_status(job_id, "COMPLETED")


async def test_a_wake_up_that_was_missed_is_made_up_by_housekeeping(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LONGEST_PAUSE_SECONDS", 0.5)
    async with world.worker() as worker:
        await until(lambda: worker.driver.health().ready)
        worker.listener.wake = lambda payload: None  # type: ignore[method-assign]
        job_id = await world.run()
        await world.until_status(job_id, "COMPLETED")


async def test_without_wake_ups_a_worker_looks_each_second(world: World) -> None:
    async with world.worker(listening=False) as worker:
        await until(lambda: worker.driver.health().ready)
        await asyncio.sleep(1)
        job_id = await world.run()
        row = await world.until_status(job_id, "COMPLETED")
    assert row["started_at"] - row["created_at"] < SOON
