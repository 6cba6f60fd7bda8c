"""An open store on the test's own database."""

from collections.abc import AsyncIterator

import pytest

from store.database import Database
from store.submit import Submits
from tests.store.samples import Sql, Woken, connected


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A pool of a few connections: a pool of one would hide every race."""
    database = Database(database_url, pool_size=6)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def sql(database_url: str) -> AsyncIterator[Sql]:
    """A connection beside the store, to look with and to prepare what others would have written."""
    async with connected(database_url) as connection:
        yield connection


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def submits(database: Database, woken: Woken) -> Submits:
    return Submits(database, on_committed=woken)
