"""The Faust App may crash as often as it likes: nothing else in the process notices."""

import asyncio
from uuid import UUID

from streams.settings import load_settings
from streams.worker import Worker
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.waiting import until
from tests.driver.stories import TOKENIZE, TOKENS
from tests.fixtures.grpc_server import Answer

CRASHES = 10


async def test_intake_that_crashes_ten_times_under_load_cuts_no_step_and_loses_no_request(fleet: Fleet) -> None:
    fleet.server.script(TOKENIZE, Answer(TOKENS.payload, delay_seconds=0.3))
    worker = Worker(load_settings(**fleet.settings("worker-a", lease_seconds=60)))
    running = asyncio.create_task(worker.run())
    assert worker._intake is not None
    intake = worker._intake.service
    # Ten crashes in a row would be waited out for a minute: the pauses grow.
    intake._longest_delay_seconds = 0.3
    enough = asyncio.Event()
    producing = asyncio.create_task(keep_producing(fleet, enough))
    for number in range(1, CRASHES + 1):
        await until(lambda: intake.health().ready and held(worker) > 0, intake.health)
        await intake.crash(RuntimeError(f"crash {number}"))
        await until(lambda number=number: rebuilds(worker) == number, intake.health)  # type: ignore[misc]
    await until(lambda: intake.health().ready, intake.health)
    enough.set()
    jobs = await producing

    await fleet.until_all(jobs, "COMPLETED")
    await fleet.until_told(jobs, EMBED_TEXT_LOG)
    await fleet.until_read_up()
    assert rebuilds(worker) == CRASHES
    assert await fleet.one("select count(*) from run") == len(jobs)
    assert await fleet.one("select count(*) from run where fence <> 1 or attempt <> 0 or lost_leases <> 0") == 0
    calls = fleet.server.calls()
    assert len(calls) == 2 * len(jobs)
    assert all(call.answered for call in calls)
    worker.stop()
    assert await asyncio.wait_for(running, 20) == 0


async def keep_producing(fleet: Fleet, enough: asyncio.Event) -> list[UUID]:
    jobs: list[UUID] = []
    while not enough.is_set():
        jobs += await fleet.produce(4)
        await asyncio.sleep(0.2)
    return jobs


def held(worker: Worker) -> float:
    """How many runs the worker has in hand."""
    return worker.metrics.registry.get_sample_value("workflow_runs_held_runs") or 0


def rebuilds(worker: Worker) -> float:
    return worker.metrics.registry.get_sample_value("workflow_runs_intake_rebuilds_total") or 0
