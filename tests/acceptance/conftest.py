"""Real worker processes, each test with topics, a group and a database of its own."""

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from tests.acceptance.bench import Bench, opened_bench
from tests.acceptance.fleet import Fleet, opened_fleet
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, Compiler
from tests.fixtures.grpc_server import ScriptedServer
from tests.fixtures.kafka import Kafka

_HERE = Path(__file__).parent
_LOG_LINES = 200
# Each takes less than a minute by itself.
_BUSY_MACHINE_SECONDS = 240


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is an acceptance test; what is not of the smaller set runs on Apache Kafka alone."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("acceptance")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_BUSY_MACHINE_SECONDS))
            if item.get_closest_marker("embedded") is None:
                item.add_marker("apache")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of every worker's log where a test failed."""
    report = yield
    fleets = [value for value in (getattr(item, "funcargs", None) or {}).values() if isinstance(value, Fleet)]
    for fleet in fleets if report.failed else ():
        for worker in fleet.workers:
            lines = worker.log.splitlines()[-_LOG_LINES:]
            report.sections.append((f"log of {worker.name}, process {worker.process.name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def services(grpc_server: ScriptedServer) -> ScriptedServer:
    """Both services of the story answer; the test changes what it wants."""
    grpc_server.script(TOKENIZE, TOKENS)
    grpc_server.script(EMBED, VECTOR)
    return grpc_server


@pytest.fixture
async def fleet(
    kafka: Kafka,
    registry: RegistryServer,
    database_url: str,
    tmp_path: Path,
    services: ScriptedServer,
    compiler: Compiler,
) -> AsyncIterator[Fleet]:
    """A fleet without workers."""
    async with opened_fleet(kafka, registry, database_url, tmp_path, services, compiler) as fleet:
        yield fleet


@pytest.fixture
async def bench(
    database_url: str, tmp_path: Path, services: ScriptedServer, compiler: Compiler
) -> AsyncIterator[Bench]:
    """A bench without workers."""
    async with opened_bench(database_url, tmp_path, services, compiler) as bench:
        yield bench


@pytest.fixture
async def outage_fleet(
    kafka: Kafka,
    registry: RegistryServer,
    own_postgres: EmbeddedPostgres,
    tmp_path: Path,
    services: ScriptedServer,
    compiler: Compiler,
) -> AsyncIterator[Fleet]:
    """A fleet without workers on `own_postgres`, which the test may stop."""
    async with opened_fleet(kafka, registry, own_postgres.url(), tmp_path, services, compiler) as fleet:
        yield fleet
