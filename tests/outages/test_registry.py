"""The schema registry goes away: what is known already needs none."""

import pytest

from tests.outages.stand import KAFKA_SECONDS, Stand

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_worker_that_knows_its_schemas_works_on_without_the_registry(stand: Stand) -> None:
    worker = await stand.worker()
    await stand.until_finished(await stand.fleet.produce(2), runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
    async with stand.watching(worker) as watch:
        with stand.refused(stand.to_registry):
            jobs = await stand.fleet.produce(20)
            await stand.until_finished(jobs, runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
            assert all(look.ready for look in watch.looks)
