"""Connections: bounded, recovering by themselves, and with our errors only."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import psycopg
import pytest

from schemas.errors import MoveRefused, SettingsInvalid, StoreUnavailable
from store.database import Database, connection_info, is_content_error, translate
from streams.dev.postgres import EmbeddedPostgres


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as database:
        yield database


@contextlib.asynccontextmanager
async def opened(url: str, *, pool_size: int = 2, statement_timeout_seconds: float = 10) -> AsyncIterator[Database]:
    database = Database(url, pool_size=pool_size, statement_timeout_seconds=statement_timeout_seconds)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def test_a_connection_has_the_settings_that_the_moves_rely_on(database: Database) -> None:
    connection = await database.connect()
    async with connection:
        shown = {}
        for name in ("search_path", "TimeZone", "transaction_isolation", "statement_timeout"):
            cursor = await connection.execute(f"show {name}".encode())
            [row] = await cursor.fetchall()
            shown[name] = next(iter(row.values()))
    assert shown == {
        "search_path": "workflow_runs",
        "TimeZone": "UTC",
        "transaction_isolation": "read committed",
        "statement_timeout": "10s",
    }


def test_what_a_url_says_itself_stands_and_its_password_is_never_repeated() -> None:
    info = connection_info("postgresql://me:secret@db/x?application_name=mine&options=-c%20jit%3Doff", "ours", 5)
    assert "application_name=mine" in info
    assert "jit=off" in info
    with pytest.raises(SettingsInvalid) as refused:
        connection_info("postgresql://me:secret@db:port:port/x?nonsense", "ours", 5)
    assert "secret" not in str(refused.value)


async def test_a_transaction_is_committed_whole_or_rolled_back_whole(database: Database) -> None:
    async def half_done() -> None:
        async with database.transaction() as transaction:
            await transaction.execute("leases/hold_claims", {"owner": "me"})
            raise LookupError

    with pytest.raises(LookupError):
        await half_done()
    async with database.transaction() as one, database.transaction() as other:
        assert await one.execute("leases/hold_claims", {"owner": "me"}) == 1
        assert await other.rows("database/ping", {}) == [{"answer": 1}]


async def test_connections_that_the_server_ended_are_never_handed_out(database: Database, database_url: str) -> None:
    await asyncio.gather(database.ping(), database.ping())  # two idle connections
    await end_others(database_url)
    for _ in range(4):
        await database.ping()


async def end_others(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
        await operator.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


async def test_a_server_that_is_away_is_told_at_once_and_used_again_when_it_is_back(
    own_postgres: EmbeddedPostgres,
) -> None:
    async with opened(own_postgres.url()) as database:
        await database.ping()
        own_postgres.stop()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await database.ping()
        own_postgres.start()
        await database.ping()


async def test_a_pool_in_use_is_waited_for_and_then_told(database_url: str) -> None:
    async with opened(database_url, pool_size=1) as database:
        patience = database.answer_seconds
        async with database.transaction():
            database._answer_seconds = 0.05  # for the wait alone: a busy machine takes longer to begin and to end
            with pytest.raises(StoreUnavailable, match="in use"):
                await database.ping()
            database._answer_seconds = patience
        await database.ping()


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(database_url: str) -> None:
    async with opened(database_url, statement_timeout_seconds=0.05) as database:
        async with await psycopg.AsyncConnection.connect(database_url) as other:
            await other.execute("lock table workflow_runs.run in access exclusive mode")
            with pytest.raises(StoreUnavailable, match="timeout"):
                await database.rows("leases/targets", {"now": datetime.now(UTC), "engine_level": 1})
        await database.ping()


async def test_a_closed_pool_refuses_and_keeps_nothing_open(database_url: str) -> None:
    async with opened(database_url) as database:
        async with database.transaction():
            await database.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await database.ping()
    async with await psycopg.AsyncConnection.connect(database_url) as operator:
        cursor = await operator.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert await cursor.fetchone() == (0,)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_text_that_cannot_be_stored_is_the_callers_fault(database: Database, text: str) -> None:
    with pytest.raises(MoveRefused) as refused:
        await database.rows("notify/send", {"payloads": [text]})
    assert is_content_error(refused.value)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (psycopg.errors.UntranslatableCharacter, MoveRefused),
        (psycopg.errors.ProgramLimitExceeded, MoveRefused),
        (psycopg.errors.AdminShutdown, StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction, StoreUnavailable),
        (psycopg.errors.InsufficientPrivilege, StoreUnavailable),
        (psycopg.errors.UndefinedTable, StoreUnavailable),
        (psycopg.errors.DiskFull, StoreUnavailable),
        (psycopg.errors.DeadlockDetected, StoreUnavailable),
    ],
)
def test_an_error_means_that_content_is_at_fault_or_that_the_store_is_away(
    error: type[psycopg.Error], meaning: type[Exception]
) -> None:
    assert type(translate(error("why"))) is meaning
    assert is_content_error(error("why")) is (meaning is MoveRefused)
