"""An open store on the test's own database."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from store.answers import Answers
from store.committer import Committer
from store.control import Control
from store.database import Database
from store.moves import Moves
from store.prune import Prune
from store.relay_queue import RelayQueue
from store.submit import Submits
from store.upkeep import Upkeep
from tests.store.given import LEASE_SECONDS, Given
from tests.store.pruned import pruning
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


@pytest.fixture
async def committer(database: Database, woken: Woken) -> AsyncIterator[Committer]:
    """A committer at work."""
    committer = Committer(database, on_committed=woken)
    running = asyncio.create_task(committer.run())
    yield committer
    await asyncio.wait_for(committer.close(), 10)
    await running


@pytest.fixture
async def given(
    database: Database, submits: Submits, committer: Committer, woken: Woken, sql: Sql
) -> AsyncIterator[Given]:
    given = Given(
        database=database,
        submits=submits,
        moves=Moves(committer),
        answers=Answers(database, on_committed=woken),
        control=Control(database, on_committed=woken),
        upkeep=Upkeep(database, lease_seconds=LEASE_SECONDS, max_lost_leases=3, on_committed=woken),
        woken=woken,
        sql=sql,
    )
    yield given
    await given.close()


@pytest.fixture
def prune(database: Database) -> Prune:
    return pruning(database)


@pytest.fixture
def queue(database: Database) -> RelayQueue:
    return RelayQueue(database)
