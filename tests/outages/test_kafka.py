"""Kafka goes away and comes back: runs go on without it, and their events and new requests arrive afterwards."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID, uuid4

import pytest

from tests.acceptance.fleet import WORKFLOW
from tests.driver.stories import EMBED
from tests.outages.stand import KAFKA_SECONDS, Stand, submit

pytestmark = pytest.mark.asyncio(loop_scope="package")

KAFKA_NOTICED_SECONDS = 15.0
"""How soon a worker says that no broker answers: some 5 s after the last answer, on a machine that has time for it."""


@contextmanager
def killed(stand: Stand) -> Iterator[None]:
    stand.cluster.kill()
    yield
    stand.cluster.start()


@contextmanager
def refused(stand: Stand) -> Iterator[None]:
    with stand.refused(stand.to_kafka):
        yield


@contextmanager
def black_hole(stand: Stand) -> Iterator[None]:
    with stand.black_hole(stand.to_kafka):
        yield


@pytest.mark.parametrize("outage", [killed, refused, black_hole])
async def test_d23_an_outage_of_kafka_delays_events_and_requests_loses_none_and_counts_nothing(
    stand: Stand, outage: Callable[[Stand], AbstractContextManager[None]]
) -> None:
    worker = await stand.worker()
    async with stand.watching(worker) as watch:
        with stand.fleet.server.holding(EMBED) as held:
            [underway] = await stand.fleet.produce(1)
            await held.arrived()
            with outage(stand):
                held.release()
                meanwhile = [await submit(worker, WORKFLOW, {"text": f"text {number}"}) for number in range(20)]
                await stand.fleet.until_all([underway, *meanwhile], "COMPLETED")
                await watch.until_troubled("relay", "intake", seconds=KAFKA_NOTICED_SECONDS)
                assert await unpublished(stand, meanwhile) == 4 * len(meanwhile)
        later = await stand.fleet.produce(10)
        await stand.until_finished([underway, *meanwhile, *later], runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
        await watch.until_ready(seconds=KAFKA_SECONDS)
        assert await unpublished(stand, meanwhile) == 0
    await stand.counted_nothing([underway, *meanwhile, *later])
    await stand.fleet.until_read_up()


async def unpublished(stand: Stand, jobs: list[UUID]) -> int:
    """How many events of *jobs* are not known to be on the topic; none of them has a failed try."""
    rows = await stand.fleet.rows(
        "select attempts from workflow_run_events_outbox where job_id = any (%(jobs)s) and status = 'PENDING'",
        jobs=jobs,
    )
    assert {row["attempts"] for row in rows} <= {0}
    return len(rows)


async def test_connections_that_are_cut_in_the_middle_of_a_record_lose_and_double_nothing(stand: Stand) -> None:
    worker = await stand.worker()
    jobs: list[UUID] = []
    async with stand.watching(worker):
        for _ in range(4):
            stand.to_kafka.cut_after(4_000)
            jobs += await stand.fleet.produce(10)
            jobs += [await submit(worker, WORKFLOW, {"text": "a"}, uuid4()) for _ in range(5)]
            stand.to_kafka.reset_all()
        stand.to_kafka.heal()
        await stand.until_finished(jobs, runs=KAFKA_SECONDS, events=KAFKA_SECONDS)
    await stand.fleet.until_read_up()
