"""One stand and one worker for all tests: an outage leaves nothing behind, or it is a fault."""

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from streams.dev.postgres import EmbeddedPostgres
from tests.fixtures.postgres import migrated_server
from tests.outages.stand import Stand, opened_stand

_HERE = Path(__file__).parent
_LOG_LINES = 200


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here runs real worker processes on Apache Kafka, in one loop."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("acceptance")
            item.add_marker("apache")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of every worker's log where a test failed."""
    report = yield
    stand = getattr(item, "funcargs", {}).get("stand")
    if report.failed and isinstance(stand, Stand):
        for worker in stand.fleet.workers:
            lines = worker.log.splitlines()[-_LOG_LINES:]
            report.sections.append((f"log of {worker.name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="package")
def outage_postgres(request: pytest.FixtureRequest, _apache_missing: str | None) -> Iterator[EmbeddedPostgres]:
    """A migrated server of these tests alone."""
    if _apache_missing is not None:
        pytest.skip(f"needs Apache Kafka: {_apache_missing}")
    with migrated_server(request.config) as server:
        yield server


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def stand(outage_postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """Servers behind proxies, and a worker that all tests share."""
    async with opened_stand(tmp_path_factory.mktemp("stand"), outage_postgres) as stand:
        yield stand
