"""SIGTERM ends a worker in time, whatever it can no longer reach."""

import time

import pytest

from tests.driver.stories import EMBED
from tests.outages.stand import KAFKA_SECONDS, Stand

pytestmark = pytest.mark.asyncio(loop_scope="package")

GRACE_SECONDS = 1
STOP_SECONDS = 5


async def test_a_worker_that_reaches_nothing_any_more_stops_in_time_and_its_runs_are_done_by_others(
    stand: Stand,
) -> None:
    shared = await stand.worker()
    shared.pause()  # else it would take the runs
    fleet = stand.fleet
    worker = stand.start(
        "worker-c", group=fleet.kafka.unique("apart"), lease_seconds=4, drain_grace_seconds=GRACE_SECONDS
    )
    try:
        await worker.ready()
        with fleet.server.holding(EMBED) as held:
            jobs = await fleet.produce(5)
            for _ in jobs:
                await held.arrived()
            with stand.black_hole(*stand.proxies):
                began = time.monotonic()
                worker.terminate()
                code = await worker.wait(60)
                took = time.monotonic() - began
    finally:
        worker.kill()
        shared.resume()
    await stand.until_finished(jobs, runs=KAFKA_SECONDS, events=2 * KAFKA_SECONDS)
    await shared.ready()
    assert code in (0, 75)
    assert took < GRACE_SECONDS + STOP_SECONDS
