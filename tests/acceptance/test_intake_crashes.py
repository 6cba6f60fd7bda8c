"""The Faust App may crash as often as it likes: nothing else in the process notices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

from streams.settings import load_settings
from streams.worker import Worker
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.waiting import until
from tests.driver.stories import TOKENIZE, TOKENS
from tests.fixtures.grpc_server import Answer

CRASHES = 10
MOST_DUE = 20


async def test_intake_that_crashes_ten_times_under_load_cuts_no_step_and_loses_no_request(fleet: Fleet) -> None:
    fleet.server.script(TOKENIZE, Answer(TOKENS.payload, delay_seconds=0.3))
    async with worker_here(fleet) as worker:
        assert worker._intake is not None
        intake = worker._intake.service
        # Ten crashes in a row would be waited out for a minute: the pauses grow.
        intake._longest_delay_seconds = 0.3
        enough = asyncio.Event()
        producing = asyncio.create_task(keep_producing(fleet, enough))
        for number in range(1, CRASHES + 1):
            await until(lambda: intake.health().ready and held(worker) > 0, intake.health)
            await intake.crash(RuntimeError(f"crash {number}"))
            await until(partial(rebuilt, worker, number), intake.health)
        await until(lambda: intake.health().ready, intake.health)
        enough.set()
        jobs = await producing

        await fleet.until_all(jobs, "COMPLETED")
        await fleet.until_told(jobs, EMBED_TEXT_LOG)
        await fleet.until_read_up()
        assert rebuilt(worker, CRASHES)

    assert await fleet.one("select count(*) from run") == len(jobs)
    assert await fleet.one("select count(*) from run where fence <> 1 or attempt <> 0 or lost_leases <> 0") == 0
    calls = fleet.server.calls()
    assert len(calls) == 2 * len(jobs)
    assert all(call.answered for call in calls)


@asynccontextmanager
async def worker_here(fleet: Fleet) -> AsyncIterator[Worker]:
    """A whole worker in this process, stopped at the end of the block as SIGTERM stops it."""
    worker = Worker(load_settings(**fleet.settings("worker-a", lease_seconds=60)))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        code = await running
    assert code == 0


async def keep_producing(fleet: Fleet, enough: asyncio.Event) -> list[UUID]:
    """Ask for runs as long as few of them are due, until *enough* is set; return them."""
    jobs: list[UUID] = []
    while not enough.is_set():
        if await fleet.one("select count(*) from run where status in ('QUEUED', 'RUNNING')") < MOST_DUE:
            jobs += await fleet.produce(4)
        await asyncio.sleep(0.2)
    return jobs


def held(worker: Worker) -> float:
    """How many runs the worker has in hand."""
    return worker.metrics.registry.get_sample_value("workflow_runs_held_runs") or 0


def rebuilt(worker: Worker, times: int) -> bool:
    """Whether its intake was built anew so many times."""
    return worker.metrics.registry.get_sample_value("workflow_runs_intake_rebuilds_total") == times
