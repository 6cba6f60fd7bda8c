"""One connection of a transactional handler, driven where its handler runs: in a thread, or in a loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import psycopg
from psycopg.pq import TransactionStatus

from store.deadline import cut
from store.statements import sql

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread. To stop waiting does not stop it."""

InLoop = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Awaitable[Any]]
"""Runs a coroutine in the loop of async handlers. To stop waiting does not stop it."""


class HandlerSession(Protocol):
    """A connection, and a transaction on it that the handler cannot end. Its methods raise psycopg's errors."""

    @property
    def connection(self) -> Any:
        """What the handler is given."""

    @property
    def status(self) -> TransactionStatus:
        """Where its transaction stands, as the driver knows."""

    async def begin(self, params: Mapping[str, object]) -> str:
        """Begin a transaction, and return its id."""

    async def resume(self, params: Mapping[str, object]) -> str:
        """Take the transaction over from the handler, and return its id."""

    async def execute(self, statement: str, params: Mapping[str, object]) -> int:
        """Run a statement in it, and return how many rows it returned or touched."""

    async def commit(self) -> None:
        """End it."""

    async def reset(self) -> None:
        """Leave nothing of this handler on the connection for the next one."""

    def cut(self) -> None:
        """End the connection below the driver, whatever it is used for now: the server rolls back."""

    async def close(self) -> None:
        """Close what is left of it."""


class ThreadSession:
    """A `HandlerSession` of a sync handler."""

    def __init__(self, connection: psycopg.Connection[Any], in_thread: InThread) -> None:
        self.connection = connection
        self._in_thread = in_thread
        self._transaction: Any = None

    @classmethod
    async def open(cls, info: str, in_thread: InThread) -> "ThreadSession":
        def connect() -> psycopg.Connection[Any]:
            return psycopg.Connection.connect(info, autocommit=True, prepare_threshold=None)

        return cls(await _opened(in_thread(connect)), in_thread)

    @property
    def status(self) -> TransactionStatus:
        return self.connection.info.transaction_status

    async def begin(self, params: Mapping[str, object]) -> str:
        def work() -> str:
            self._transaction = self.connection.transaction()
            self._transaction.__enter__()
            return self._xid("handler_transactions/begin", params)

        return str(await self._in_thread(work))

    async def resume(self, params: Mapping[str, object]) -> str:
        return str(await self._in_thread(lambda: self._xid("handler_transactions/resume", params)))

    async def execute(self, statement: str, params: Mapping[str, object]) -> int:
        return int(await self._in_thread(lambda: self.connection.execute(sql(statement), params).rowcount))

    async def commit(self) -> None:
        await self._in_thread(lambda: self._transaction.__exit__(None, None, None))

    async def reset(self) -> None:
        await self._in_thread(lambda: self.connection.execute("discard all"))

    def cut(self) -> None:
        cut(self.connection)

    async def close(self) -> None:
        await self._in_thread(self.connection.close)

    def _xid(self, statement: str, params: Mapping[str, object]) -> str:
        with psycopg.Cursor(self.connection, row_factory=psycopg.rows.tuple_row) as cursor:
            return str(cursor.execute(sql(statement), params).fetchall()[0][0])


class LoopSession:
    """A `HandlerSession` of an async handler."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], in_loop: InLoop) -> None:
        self.connection = connection
        self._in_loop = in_loop
        self._transaction: Any = None

    @classmethod
    async def open(cls, info: str, in_loop: InLoop) -> "LoopSession":
        async def connect() -> psycopg.AsyncConnection[Any]:
            return await psycopg.AsyncConnection.connect(info, autocommit=True, prepare_threshold=None)

        return cls(await _opened(in_loop(connect)), in_loop)

    @property
    def status(self) -> TransactionStatus:
        return self.connection.info.transaction_status

    async def begin(self, params: Mapping[str, object]) -> str:
        async def work() -> str:
            self._transaction = self.connection.transaction()
            await self._transaction.__aenter__()
            return await self._xid("handler_transactions/begin", params)

        return str(await self._in_loop(work))

    async def resume(self, params: Mapping[str, object]) -> str:
        return str(await self._in_loop(lambda: self._xid("handler_transactions/resume", params)))

    async def execute(self, statement: str, params: Mapping[str, object]) -> int:
        async def work() -> int:
            return (await self.connection.execute(sql(statement), params)).rowcount

        return int(await self._in_loop(work))

    async def commit(self) -> None:
        await self._in_loop(lambda: self._transaction.__aexit__(None, None, None))

    async def reset(self) -> None:
        async def work() -> None:
            await self.connection.execute("discard all")

        await self._in_loop(work)

    def cut(self) -> None:
        cut(self.connection)

    async def close(self) -> None:
        await self._in_loop(self.connection.close)

    async def _xid(self, statement: str, params: Mapping[str, object]) -> str:
        async with psycopg.AsyncCursor(self.connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(sql(statement), params)
            return str((await cursor.fetchall())[0][0])


async def _opened(opening: Awaitable[Any]) -> Any:
    """A connection that is being opened. Where nobody waits for it any more, it is cut as soon as it is there."""
    connection = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(connection)
    except asyncio.CancelledError:
        connection.add_done_callback(_cut_unwanted)
        raise


def _cut_unwanted(connection: "asyncio.Future[Any]") -> None:
    if not connection.cancelled() and connection.exception() is None:
        cut(connection.result())
