"""The schema registry goes away: what is known already needs none, and what is not waits for it."""

from uuid import uuid4

import pytest

from tests.acceptance.fleet import WORKFLOW
from tests.acceptance.producer import Request
from tests.outages.stand import KAFKA_SECONDS, Stand, submit

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_worker_that_knows_its_schemas_works_on_without_the_registry(stand: Stand) -> None:
    worker = await stand.worker()
    await stand.until_finished(await stand.fleet.produce(2), runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
    async with stand.watching(worker) as watch:
        with stand.refused(stand.to_registry):
            jobs = await stand.fleet.produce(20)
            await stand.until_finished(jobs, runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
            assert all(look.ready for look in watch.looks)


@pytest.mark.parametrize("silent", [True, False], ids=["black hole", "refused"])
async def test_a_worker_that_starts_without_the_registry_holds_its_work_until_it_is_back(
    stand: Stand, silent: bool
) -> None:
    shared = await stand.worker()
    shared.pause()  # else it would do the work
    fleet = stand.fleet
    worker = stand.start("worker-b", group=fleet.kafka.unique("apart"), lease_seconds=4)
    try:
        async with stand.watching(worker) as watch:
            with stand.black_hole(stand.to_registry) if silent else stand.refused(stand.to_registry):
                framed = [Request(uuid4(), WORKFLOW, {"text": "a"}) for _ in range(5)]
                await fleet.send(framed)
                submitted = await submit(worker, WORKFLOW, {"text": "a"})
                await fleet.until_all([submitted], "COMPLETED")
                await watch.until_troubled("intake", "relay")
                jobs = [request.job_id for request in framed]
                assert await fleet.statuses(jobs) == {}
            await stand.until_finished([*jobs, submitted], runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
            await watch.until_ready(seconds=KAFKA_SECONDS)
    finally:
        shared.resume()
        worker.kill()
        await shared.ready()
