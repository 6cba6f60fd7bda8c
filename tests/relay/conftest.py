"""A bench on the test's own database and topics."""

from collections.abc import AsyncIterator

import pytest

from streams.dev.registry.server import RegistryServer
from tests.fixtures.kafka import Kafka
from tests.relay.bench import RelayBench, pausable_bench
from tests.store.samples import connected


@pytest.fixture
async def unregistered(kafka: Kafka, registry: RegistryServer, database_url: str) -> AsyncIterator[RelayBench]:
    """A bench whose schemas nobody has registered yet."""
    async with connected(database_url) as sql:
        bench = RelayBench(kafka, registry, database_url, sql)
        await bench.prepare(register=False)
        yield bench
        await bench.close()


@pytest.fixture
async def pausable(registry: RegistryServer, database_url: str) -> AsyncIterator[RelayBench]:
    """A bench with a broker of its own, whose outages begin and end in no time."""
    async with pausable_bench(registry, database_url) as bench:
        yield bench


@pytest.fixture
async def bench(unregistered: RelayBench) -> RelayBench:
    """A bench with topics and schemas."""
    await unregistered.register()
    return unregistered
