"""Kafka, the registry or Postgres being away delays what is published, and counts against no record."""

import asyncio

from schemas.ids import key_of
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from tests.fixtures.eventually import eventually
from tests.fixtures.kafka import Kafka, OnEmbedded
from tests.relay.bench import RelayBench, first_arrivals
from tests.store.samples import connected, letter


async def test_a_broker_outage_delays_and_counts_nothing(bench: RelayBench) -> None:
    async with bench.relay(lease_seconds=10) as running:
        await bench.runs(2)
        await bench.until_published()
        with bench.kafka.outage():
            jobs = await bench.runs(20)
            await bench.more_events(jobs, [2])
            await asyncio.sleep(1)  # seconds of outage
            assert await bench.queued() == 40
        await bench.until_published()

    assert running.failures() == 0
    records = await bench.published(42)
    assert len(first_arrivals(records)) == 42


async def test_a_broker_that_is_gone_shows_in_health(pausable: RelayBench) -> None:
    async with pausable.relay(lease_seconds=10) as running:
        await pausable.runs(1)
        await pausable.until_published()
        await eventually(lambda: running.relay.health().ready)
        assert isinstance(pausable.kafka, OnEmbedded)
        pausable.kafka._broker.kill()
        await eventually(lambda: "Kafka: " in running.relay.health().detail)
        assert not running.relay.health().ready
        assert running.relay.health().alive
        await running.crash()


async def test_what_the_producer_was_made_to_forget_is_sent_again(pausable: RelayBench) -> None:
    async with pausable.relay(lease_seconds=10) as running:
        await pausable.runs(1)
        await pausable.until_published()
        with pausable.kafka.outage():
            await pausable.runs(5)
            await eventually(lambda: len(running.producer._outstanding) == 5)
            running.producer.purge()
            await eventually(lambda: not running.producer._outstanding)
            assert await pausable.queued() == 5
        await pausable.until_published()

    assert running.failures() == 0
    assert len(first_arrivals(await pausable.published(6))) == 6


async def test_a_registry_outage_delays_counts_nothing_and_asks_seldom(bench: RelayBench) -> None:
    await bench.runs(50)
    bench.registry.fail_next(2)
    before = len(bench.registry.requests())

    async with bench.relay() as running:
        await eventually(lambda: "503" in running.relay.health().detail)
        assert not running.relay.health().ready
        await bench.until_published()
        await eventually(lambda: running.relay.health().ready)

    assert running.failures() == 0
    assert len(bench.registry.requests()) - before <= 5


async def test_a_schema_that_nobody_registered_is_waited_for(unregistered: RelayBench) -> None:
    await unregistered.runs(1)
    await unregistered.letters(letter(1, topic=unregistered.topics.requests.name))

    async with unregistered.relay() as running:
        await eventually(lambda: "is not registered" in running.relay.health().detail)
        # Letters need no schema.
        await unregistered.published(1, f"{unregistered.name}.requests.dlq")
        assert await unregistered.queued() == 1
        await unregistered.register()
        await unregistered.until_published()


async def test_an_outage_of_the_store_is_waited_out(
    kafka: Kafka, registry: RegistryServer, own_postgres: EmbeddedPostgres
) -> None:
    async with connected(own_postgres.url()) as sql:
        bench = RelayBench(kafka, registry, own_postgres.url(), sql)
        await bench.prepare()
        async with bench.relay() as running:
            await bench.runs(3)
            await bench.until_published()
            own_postgres.stop()
            await eventually(lambda: "store" in running.relay.health().detail)
            assert running.relay.health().alive
            own_postgres.start()
            async with connected(own_postgres.url()) as anew:
                bench.sql = anew
                jobs = await bench.runs(3)
                await bench.until_published()
        await bench.close()

    records = await bench.published(6)
    assert {record.key for record in records} >= {key_of(job) for job in jobs}
    assert len(records) == 6
