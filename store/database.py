"""Connections to Postgres, bounded in number and in time, and the one place where its errors become ours.

A pool of a few connections serves single statements and short transactions. Connections are opened when they are needed
and dropped at the first doubt, so that an outage ends for us when it ends for Postgres, and each failed call says why.
"""

import asyncio
import contextlib
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from schemas.errors import MoveRefused, SettingsInvalid, StoreUnavailable
from store.deadline import answered_within, transaction_within
from store.history import History, Place
from store.statements import sql

Row = dict[str, object]
Connection = psycopg.AsyncConnection[Row]
CommitPoint = Callable[[str], Awaitable[None]]
"""Awaited at `<move>.before_commit` and `<move>.after_commit`, so that a test can stop the process right there."""

CONTENT_CONSTRAINTS: Final[frozenset[str]] = frozenset()
"""Constraints that what a caller sends can break. None today: all of it is refused by our own checks before."""

_CONTENT_CLASSES: Final = ("22", "54")  # data exceptions, program limits
_CONNECT_SECONDS: Final = 5
_GRACE_SECONDS: Final = 2  # the server ends a statement first, so that its outcome is known


async def passes(point: str) -> None:
    """Pass a commit point without stopping: what every process but a test's does."""


class Database:
    """A pool of connections to one database. Safe to share between the tasks of one event loop.

    Every connection commits statement by statement, reads committed rows, speaks UTC, finds the store's tables first,
    and ends a statement or an idle transaction after `statement_timeout_seconds`. A server that stops answering is
    given up 2 s later.

    A database that was put back to an earlier state, or failed over, is noticed on the first new connection: `history`
    tells everybody, whatever was under way is unavailable, and only later calls reach the changed database.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        application_name: str = "workflow-runs",
        statement_timeout_seconds: float = 10,
    ) -> None:
        """Connect to nothing yet.

        Raises:
            SettingsInvalid: *url* is no connection URL.
        """
        self._conninfo = connection_info(url, application_name, statement_timeout_seconds)
        self._answer_seconds = statement_timeout_seconds + _GRACE_SECONDS
        self._permits = asyncio.Semaphore(pool_size)
        self._idle: list[tuple[Connection, int]] = []
        self._open = False
        self.history = History()

    @property
    def answer_seconds(self) -> float:
        """How long an answer is waited for, at most. Above the server's own limit, so that it comes first."""
        return self._answer_seconds

    async def open(self) -> None:
        """Let the pool be used. Waits for nothing: the first use connects."""
        self._open = True

    async def close(self) -> None:
        """Close what is idle now, and every connection in use when it comes back. Further use is refused."""
        self._open = False
        while self._idle:
            await self._idle.pop()[0].close()

    async def connect(self) -> Connection:
        """Open a connection beside the pool, for whoever needs one of its own. The caller closes it.

        Raises:
            StoreUnavailable: the server cannot be reached, or its history changed meanwhile; try again later.
        """
        changes = self.history.changes
        connection = await open_connection(self._conninfo)
        try:
            await self._look_at(connection)
            self._expect_no_change_since(changes)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def rows(self, statement: str, params: Mapping[str, object]) -> list[Row]:
        """Run one statement, named as in `store.statements`, as a transaction of its own, and return its rows.

        Raises:
            MoveRefused: the content of *params* can never be stored.
            StoreUnavailable: no usable answer. Whether the statement took effect is unknown: repeat what is idempotent.
            psycopg.IntegrityError: a constraint stands against it; nothing was written.
        """
        async with self._connection() as connection:
            return await run_statement(connection, statement, params, self._answer_seconds)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator["Transaction"]:
        """Run several statements in one transaction, committed when the block ends and rolled back when it raises.

        Raises:
            StoreUnavailable: no usable answer. At the end of the block: whether it was committed is unknown.
        """
        async with self._connection() as connection:
            with translated():
                async with transaction_within(connection, self._answer_seconds):
                    yield Transaction(connection, self._answer_seconds)

    async def ping(self) -> None:
        """Make sure that the server answers.

        Raises:
            StoreUnavailable: it does not, and why.
        """
        await self.rows("database/ping", {})

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        if not self._open:
            raise StoreUnavailable("the pool of connections is closed")
        changes = self.history.changes
        async with self._permit():
            connection = await self._take()
            try:
                self._expect_no_change_since(changes)
                yield connection
            except StoreUnavailable:
                # Broken, or alive on a server that takes no writes any more: the next one connects anew.
                await connection.close()
                raise
            finally:
                await self._give_back(connection, changes)

    def _expect_no_change_since(self, changes: int) -> None:
        """Refuse to go on when the history changed while a caller waited: it had decided on what is void now."""
        if self.history.changes != changes:
            raise StoreUnavailable("the database was put back or failed over: begin again with what it holds now")

    async def _look_at(self, connection: Connection) -> None:
        for row in await run_statement(connection, "history/place", {}, self._answer_seconds):
            self.history.see(Place(**row))  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def _permit(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._answer_seconds):
                await self._permits.acquire()
        except TimeoutError:
            raise StoreUnavailable("every connection of the pool is in use") from None
        try:
            yield
        finally:
            self._permits.release()

    async def _take(self) -> Connection:
        while self._idle:
            connection, changes = self._idle.pop()
            if changes == self.history.changes and not _has_news(connection):
                return connection
            await connection.close()
        return await self.connect()

    async def _give_back(self, connection: Connection, changes: int) -> None:
        if self._open and not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE:
            self._idle.append((connection, changes))
        else:
            await connection.close()


class Transaction:
    """An open transaction. Its statements raise like those of `Database.rows`; after an error no other can be run."""

    def __init__(self, connection: Connection, answer_seconds: float) -> None:
        self._connection = connection
        self._answer_seconds = answer_seconds

    async def rows(self, statement: str, params: Mapping[str, object]) -> list[Row]:
        """Run a statement and return its rows; empty also where it returns none by its nature."""
        return await run_statement(self._connection, statement, params, self._answer_seconds)

    async def execute(self, statement: str, params: Mapping[str, object]) -> int:
        """Run a statement and return how many rows it returned or touched."""
        with translated():
            async with answered_within(self._connection, self._answer_seconds):
                return (await self._connection.execute(sql(statement), params)).rowcount


def connection_info(url: str, application_name: str, statement_timeout_seconds: float) -> str:
    """Complete *url* with what every connection of the store needs; what it says itself stands.

    Raises:
        SettingsInvalid: it cannot be read. The message does not repeat it, since it may hold a password.
    """
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise SettingsInvalid(["the database's address is no postgresql:// URL"]) from None
    defaults: dict[str, Any] = {
        "application_name": application_name,
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    milliseconds = int(statement_timeout_seconds * 1000)
    options = (
        "-c search_path=workflow_runs -c TimeZone=UTC -c default_transaction_isolation=read\\ committed"
        f" -c statement_timeout={milliseconds} -c idle_in_transaction_session_timeout={milliseconds}"
    )
    own_options = f"{given.get('options') or ''} {options}".strip()
    return conninfo.make_conninfo(**{**defaults, **given, "client_encoding": "UTF8", "options": own_options})


async def open_connection(info: str) -> Connection:
    """Open a connection by what `connection_info` returned.

    Raises:
        StoreUnavailable: the server cannot be reached; the message says why.
    """
    with translated():
        return await psycopg.AsyncConnection.connect(
            info, autocommit=True, prepare_threshold=0, row_factory=dict_row, cursor_factory=psycopg.AsyncCursor
        )


async def run_statement(
    connection: Connection, statement: str, params: Mapping[str, object], answer_seconds: float
) -> list[Row]:
    """Run a statement on *connection* and return its rows, with the errors of `Database.rows`."""
    with translated():
        async with answered_within(connection, answer_seconds):
            cursor = await connection.execute(sql(statement), params)
            return await cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of Postgres and its driver as ours, with the original as the cause."""
    try:
        yield
    except psycopg.IntegrityError as error:
        if is_content_error(error):
            raise translate(error) from error
        raise
    except psycopg.Error as error:
        raise translate(error) from error
    except UnicodeEncodeError as error:
        raise MoveRefused(f"the text cannot be stored: {error}") from error
    except TimeoutError as error:
        raise StoreUnavailable("Postgres did not answer in time") from error


def translate(error: psycopg.Error) -> MoveRefused | StoreUnavailable:
    """Return what *error* means to a caller: its content is at fault, or the store is away.

    The store is also away where the server answers but cannot do its work: read-only after a failover, out of disk,
    without the tables or the rights we need. Waiting, and an operator, heal that; giving up work would not.
    """
    code = f" ({error.sqlstate})" if error.sqlstate else ""
    text = f"{_first_line(error)}{code}"
    return MoveRefused(f"Postgres refuses it: {text}") if is_content_error(error) else StoreUnavailable(text)


def is_content_error(error: BaseException) -> bool:
    """Whether what was sent is itself at fault, so that sending it again can never help."""
    if isinstance(error, MoveRefused | UnicodeEncodeError):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)  # refused by the driver: a NUL in a text, say
    return error.sqlstate[:2] in _CONTENT_CLASSES or error.diag.constraint_name in CONTENT_CONSTRAINTS


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error)
    return text.strip().partition("\n")[0] or type(error).__name__


def _has_news(connection: Connection) -> bool:
    """Whether something came on an idle connection: the server's farewell, as a rule."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
