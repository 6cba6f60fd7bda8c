"""D23: handed to the client is not delivered. tests/kafka/test_rights.py has the topic that denies writes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.dev.registry.server import RegistryServer
from tests.acceptance.relay_stand import RelayStand, all_are_there, many_runs, none_is_gone_that_is_not_there
from tests.acceptance.waiting import until
from tests.fixtures.eventually import eventually
from tests.fixtures.kafka import Kafka
from tests.relay.bench import RelayBench, pausable_bench
from tests.store.samples import connected

pytestmark = pytest.mark.case("D23")

QUEUE_LIMIT = 500
BROKER_PAUSE_SECONDS = 6.0


@pytest.fixture
async def stand(kafka: Kafka, registry: RegistryServer, database_url: str, tmp_path: Path) -> AsyncIterator[RelayStand]:
    async with connected(database_url) as sql:
        stand = RelayStand(RelayBench(kafka, registry, database_url, sql), tmp_path)
        await stand.bench.prepare()
        yield stand
        await stand.close()


@pytest.fixture
async def pausable(registry: RegistryServer, database_url: str) -> AsyncIterator[RelayBench]:
    """A bench with a broker that can pause in no time."""
    async with pausable_bench(registry, database_url) as bench:
        yield bench


@pytest.mark.embedded
async def test_d23_rows_in_the_client_of_a_relay_that_is_killed_while_the_broker_is_stopped(stand: RelayStand) -> None:
    bench = stand.bench
    doomed = stand.start("doomed")
    await doomed.ready()
    await bench.runs(1)
    await stand.until_published()  # so that the client knows the topic, and takes what it is given
    with bench.kafka.outage():
        await bench.runs(100)
        await stand.until_in_flight(doomed, 100)
        await stand.kill(doomed)
        assert await bench.queued() == 100
    await none_is_gone_that_is_not_there(bench)
    await stand.let_leases_end("doomed")

    stand.start("heir")
    await stand.until_published()

    assert len(await all_are_there(bench)) >= 101


@pytest.mark.embedded
async def test_d23_sigterm_right_after_a_batch_is_produced(stand: RelayStand) -> None:
    bench = stand.bench
    jobs = await many_runs(bench, 100)
    await bench.more_events(jobs, range(2, 11))
    relay = stand.start("stopped")

    async def has_begun() -> bool:
        return await bench.queued() < 1000

    await until(has_begun, lambda: relay.log)
    relay.terminate()
    await until(lambda: not relay.process.is_alive(), lambda: relay.log)
    assert relay.process.exitcode == 0, relay.log

    left = await bench.queued()
    await none_is_gone_that_is_not_there(bench)
    stand.start("heir")
    await stand.until_published()
    records = await all_are_there(bench)
    # What was on its way had landed and was marked: nothing came twice.
    assert len(records) == 1000, f"{left} rows were left"


@pytest.mark.embedded
async def test_d23_a_full_local_queue(pausable: RelayBench) -> None:
    await many_runs(pausable, 10_000)
    async with pausable.relay(lease_seconds=10, queue_buffering_max_messages=QUEUE_LIMIT) as running:
        with pausable.kafka.outage():
            await eventually(lambda: running.producer.in_flight == QUEUE_LIMIT)
            await asyncio.sleep(0.2)  # seconds in which one more could slip in
            assert running.producer.in_flight == QUEUE_LIMIT
            assert await pausable.queued() == 10_000
        await pausable.until_queued_at_most(5_000)
        await none_is_gone_that_is_not_there(pausable)
        await pausable.until_published(seconds=60)
        assert running.failures() == 0

    assert len(await all_are_there(pausable)) == 10_000


@pytest.mark.embedded
async def test_d23_records_that_the_client_gives_up_while_the_broker_pauses(pausable: RelayBench) -> None:
    async with pausable.relay(lease_seconds=10, message_timeout_ms=2_000) as running:
        await pausable.runs(1)
        await pausable.until_published()
        with pausable.kafka.outage():
            jobs = await many_runs(pausable, 50)
            await pausable.more_events(jobs, [2])
            await eventually(lambda: running.producer.in_flight == 50)
            await asyncio.sleep(BROKER_PAUSE_SECONDS)
            assert await pausable.queued() == 100
            assert "MSG_TIMED_OUT" in running.relay.health().detail
            assert not running.relay.health().ready
        await none_is_gone_that_is_not_there(pausable)
        await pausable.until_published()
        assert running.failures() == 0

    assert len(await all_are_there(pausable)) >= 101
