"""Stopping: calls get their grace, the rest is handed back, nothing fails and nothing is counted."""

import asyncio
import time

import pytest

from store.notify import READY
from tests.driver.stories import EMBED, TOKENIZE
from tests.driver.world import World, until


@pytest.mark.spec(67)
async def test_a_call_that_outlasts_its_grace_is_cancelled_and_its_run_handed_back(world: World) -> None:
    job_id = await world.run(max_attempts=1)

    async with world.worker("a:1", lease_seconds=300) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            await worker.driver.drain(0.1)
            assert await world.server.calls(TOKENIZE)[0].was_cut()
            row = await world.row(job_id)
            assert (row["status"], row["lease_owner"], row["next_target"]) == ("QUEUED", None, "tokenizer")
            assert (row["attempt"], row["lost_leases"]) == (0, 0)
            assert worker.driving.done()
            assert not worker.driver.health().ready
            assert worker.count("moves_total", move="release", result="applied") == 1

    async with world.worker("b:1"):
        await world.until_status(job_id, "COMPLETED")
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED"]


async def test_a_call_that_ends_within_its_grace_is_kept_and_the_next_is_not_begun(world: World) -> None:
    job_id = await world.run()

    async with world.worker() as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            draining = asyncio.create_task(worker.driver.drain(60))
            await until(lambda: not worker.driver.health().ready)
            held.release()
            await draining

    row = await world.row(job_id)
    assert (row["status"], row["next_target"]) == ("QUEUED", "embedder")
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize"]
    assert world.server.calls(EMBED) == []


async def test_a_run_whose_last_call_ends_within_the_grace_completes(world: World) -> None:
    job_id = await world.run()

    async with world.worker() as worker:
        with world.server.holding(EMBED) as held:
            await held.arrived()
            draining = asyncio.create_task(worker.driver.drain(60))
            await until(lambda: not worker.driver.health().ready)
            held.release()
            await draining

    assert (await world.row(job_id))["status"] == "COMPLETED"


async def test_nothing_is_claimed_once_the_stop_has_begun(world: World) -> None:
    busy = await world.run()

    async with world.worker() as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            draining = asyncio.create_task(worker.driver.drain(60))
            await until(lambda: not worker.driver.health().ready)
            later = await world.run()
            held.release()
            await draining

    assert (await world.row(later))["fence"] == 0
    assert (await world.row(busy))["fence"] == 1


async def test_a_second_signal_ends_the_grace(world: World) -> None:
    await world.run()

    async with world.worker() as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            draining = asyncio.create_task(worker.driver.drain(600))
            await until(lambda: not worker.driver.health().ready)
            assert not draining.done()
            await worker.driver.drain(0)
            await draining


async def test_an_idle_worker_stops_at_once(world: World) -> None:
    async with world.worker() as worker:
        await until(lambda: worker.driver.health().ready)
        began = time.monotonic()
        await worker.driver.drain(60)
        assert time.monotonic() - began < 2


async def test_a_driver_that_is_cancelled_hands_back_what_it_holds(world: World) -> None:
    job_id = await world.run()

    async with world.worker(lease_seconds=300) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            worker.driving.cancel()
            await asyncio.wait({worker.driving})
            row = await world.row(job_id)

    assert (row["status"], row["attempt"], row["lost_leases"]) == ("QUEUED", 0, 0)


async def test_a_loop_that_dies_ends_the_driver_which_hands_back_what_it_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.run()

    async with world.worker(lease_seconds=300) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()

            async def broken() -> dict[str, float]:
                raise ZeroDivisionError("a bug in a loop")

            monkeypatch.setattr(worker.leases, "targets", broken)
            worker.listener.wake(READY)
            await asyncio.wait({worker.driving})
            with pytest.raises(ZeroDivisionError):
                worker.driving.result()
            assert not worker.driver.health().alive
            row = await world.row(job_id)

    assert (row["status"], row["lost_leases"]) == ("QUEUED", 0)


async def test_a_stop_ends_in_time_with_a_database_that_never_answers(world: World) -> None:
    await world.run()

    async with world.worker(lease_seconds=300) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            async with world.locked_out():
                began = time.monotonic()
                await worker.driver.drain(0)
                assert time.monotonic() - began < 4
