"""D24: the same event twice has the same identity."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.dev.registry.server import RegistryServer
from tests.acceptance.forked import Forked
from tests.acceptance.relay_stand import RelayStand, all_are_there, copies, many_runs
from tests.acceptance.waiting import until
from tests.fixtures.kafka import Kafka
from tests.relay.bench import RelayBench
from tests.store.samples import connected

pytestmark = [pytest.mark.case("D24"), pytest.mark.embedded]

KILLS = 20
JOBS_A_KILL, EVENTS_A_JOB = 10, 5


@pytest.fixture
async def own_registry() -> AsyncIterator[RegistryServer]:
    """A registry that may be restarted."""
    server = RegistryServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
async def stand(
    kafka: Kafka, own_registry: RegistryServer, database_url: str, tmp_path: Path
) -> AsyncIterator[RelayStand]:
    async with connected(database_url) as sql:
        stand = RelayStand(RelayBench(kafka, own_registry, database_url, sql), tmp_path)
        await stand.bench.prepare()
        yield stand
        await stand.close()


async def test_d24_relays_killed_between_acknowledgement_and_mark_repeat_themselves_byte_for_byte(
    stand: RelayStand, own_registry: RegistryServer
) -> None:
    """Three relays at any time: one that has died, which each does at its first mark, is followed by another."""
    bench, started = stand.bench, 0
    alive: dict[str, Forked] = {}
    for _ in range(KILLS):
        jobs = await many_runs(bench, JOBS_A_KILL)
        await bench.more_events(jobs, range(2, EVENTS_A_JOB + 1))
        while len(alive) < 3:
            started += 1
            alive[f"relay-{started}"] = stand.start(f"relay-{started}", stop_at="relay.before_mark")
        await until(lambda: any(not relay.process.is_alive() for relay in alive.values()), lambda: "nobody dies")
        name = next(name for name, relay in alive.items() if not relay.process.is_alive())
        await alive.pop(name).was_killed()
        await stand.let_leases_end(name)
    for name, relay in alive.items():
        await stand.kill(relay)
        await stand.let_leases_end(name)
    assert await bench.queued() == 1000
    own_registry.stop()
    own_registry.start()
    await bench.register()  # it keeps its schemas in memory alone

    for number in range(3):
        stand.start(f"heir-{number}")
    await stand.until_published()

    told = copies(await all_are_there(bench))
    assert len(told) == 1000
    assert max(len(records) for records in told.values()) > 2
    for records in told.values():
        contents = {(r.key, r.value, tuple(r.headers), r.timestamp_ms, r.partition) for r in records}
        assert len(contents) == 1


async def test_d24_three_relays_that_nobody_kills_publish_each_event_once(stand: RelayStand) -> None:
    bench = stand.bench
    async with bench.relay("a:1"), bench.relay("b:1"), bench.relay("c:1"):
        jobs = await many_runs(bench, 100)
        for seq in range(2, 11):
            await bench.more_events(jobs, [seq])
            await asyncio.sleep(0)
        await bench.until_published()

    assert len(await all_are_there(bench)) == 1000
