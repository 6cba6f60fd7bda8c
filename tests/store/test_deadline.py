"""A server that is connected and says nothing is given up in time."""

import time
from collections.abc import AsyncIterator, Iterator

import pytest
from psycopg import conninfo

from schemas.errors import StoreUnavailable
from store.database import Database
from streams.dev.faultproxy import FaultProxy

ANSWER_SECONDS = 2.2  # the statement's own limit, and two seconds of grace


@pytest.fixture
def proxy(database_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(int(str(conninfo.conninfo_to_dict(database_url)["port"]))) as proxy:
        yield proxy


@pytest.fixture
async def database(database_url: str, proxy: FaultProxy) -> AsyncIterator[Database]:
    url = conninfo.make_conninfo(database_url, port=proxy.port)
    database = Database(url, pool_size=1, statement_timeout_seconds=0.2)
    await database.open()
    await database.ping()
    yield database
    await database.close()


async def test_a_statement_without_an_answer_is_given_up_and_the_next_connects_anew(
    database: Database, proxy: FaultProxy
) -> None:
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        await database.ping()
    assert ANSWER_SECONDS <= time.monotonic() - began < ANSWER_SECONDS + 5
    proxy.heal()
    await database.ping()


async def test_a_transaction_that_does_not_begin_is_given_up(database: Database, proxy: FaultProxy) -> None:
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        async with database.transaction():
            raise AssertionError("it has begun")
    assert time.monotonic() - began < ANSWER_SECONDS + 5
    proxy.heal()
    await database.ping()


async def test_a_transaction_whose_end_is_not_answered_is_given_up(database: Database, proxy: FaultProxy) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):  # noqa: PT012  # the block is the transaction whose end is shown
        async with database.transaction() as transaction:
            await transaction.rows("database/ping", {})
            proxy.silence()
    assert time.monotonic() - began < ANSWER_SECONDS + 5
    proxy.heal()
    await database.ping()


async def test_what_fails_in_a_transaction_that_cannot_be_rolled_back_is_still_told(
    database: Database, proxy: FaultProxy
) -> None:
    with pytest.raises((StoreUnavailable, ZeroDivisionError)):  # noqa: PT012  # the block is the transaction
        async with database.transaction() as transaction:
            await transaction.rows("database/ping", {})
            proxy.silence()
            raise ZeroDivisionError
    proxy.heal()
    await database.ping()
