"""Shards change hands: from a relay that is gone, late or stopped, and to one that is new."""

import asyncio

from tests.fixtures.eventually import eventually
from tests.relay.bench import LEASE_SECONDS, RelayBench, first_arrivals
from tests.store.samples import select, select_one


async def test_a_relay_that_lost_its_shards_drops_what_is_theirs(pausable: RelayBench) -> None:
    async with pausable.relay("a:1") as running:
        await eventually(lambda: len(running.relay._shards.held) == 16)
        with pausable.kafka.outage():
            jobs = await pausable.runs(5)
            await pausable.more_events(jobs, [2, 3])
            await eventually(lambda: bool(running.producer._outstanding))
            await pausable.sql.execute(
                b"update shard set lease_owner = 'b:1', lease_until = now() + interval '3 seconds'"
            )
            await eventually(lambda: not running.relay._shards.held)
            await eventually(lambda: not running.producer._outstanding)
        # The thief never publishes: when its leases end, the first relay takes the shards again.
        await pausable.until_published()

    events = pausable.decoded(first_arrivals(await pausable.published(15)))
    for job in jobs:
        assert [event.seq for event in events if event.job_id == str(job)] == [1, 2, 3]


async def test_the_shards_of_a_relay_that_is_gone_are_taken_when_its_leases_end(bench: RelayBench) -> None:
    await bench.sql.execute(b"update shard set lease_owner = 'gone:1', lease_until = now() + interval '1 second'")
    await bench.runs(4)

    async with bench.relay("b:1"):
        await bench.until_published(seconds=1 + LEASE_SECONDS)


async def test_shards_are_shared_out_without_publishing_twice(bench: RelayBench) -> None:
    async with bench.relay("a:1") as first:
        await eventually(lambda: len(first.relay._shards.held) == 16)
        jobs = await bench.runs(20)
        async with bench.relay("b:1") as second:
            for seq in range(2, 40):
                await bench.more_events(jobs, [seq])
                await asyncio.sleep(0.02)
            held = (first.relay._shards, second.relay._shards)
            await eventually(lambda: [len(shards.held) for shards in held] == [8, 8])
            await bench.until_published()

    assert len(await bench.published(20 * 39)) == 20 * 39


async def test_a_stopped_relay_has_let_everything_land_and_gives_its_shards_back(bench: RelayBench) -> None:
    async with bench.relay("a:1", lease_seconds=60):
        jobs = await bench.runs(10)
        await bench.more_events(jobs, range(2, 6))
    free = await select_one(bench.sql, "select count(*) from shard where lease_owner is null")
    assert free == 16
    assert await select(bench.sql, "select * from relay_worker") == []

    async with bench.relay("b:1"):
        await bench.until_published()
    assert len(await bench.published(50)) == 50
