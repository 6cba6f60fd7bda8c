"""How long a connection may take to answer, whatever became of the server or the network."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import psycopg


@contextlib.asynccontextmanager
async def answered_within(connection: psycopg.AsyncConnection[Any], seconds: float) -> AsyncIterator[None]:
    """Cut *connection* when the block takes longer, so that what waits for an answer fails at that moment.

    The server is not asked to end the statement: it limits statements by itself, and one that does not answer would
    hold up the caller for ten seconds more.

    Raises:
        TimeoutError: the connection was cut; whether the statement took effect is unknown.
    """
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    began = timer.when() - seconds
    try:
        yield
    except psycopg.Error as error:
        if asyncio.get_running_loop().time() - began >= seconds:
            raise TimeoutError(f"no answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


@contextlib.asynccontextmanager
async def transaction_within(connection: psycopg.AsyncConnection[Any], seconds: float) -> AsyncIterator[None]:
    """A transaction, committed or rolled back when the block ends, whose begin and end take no longer than that.

    Raises:
        TimeoutError: the connection was cut; at the end of the block, whether it was committed is unknown.
    """
    transaction = connection.transaction()
    async with answered_within(connection, seconds):
        await transaction.__aenter__()
    try:
        yield
    except BaseException as error:
        async with answered_within(connection, seconds):
            await transaction.__aexit__(type(error), error, error.__traceback__)
        raise
    async with answered_within(connection, seconds):
        await transaction.__aexit__(None, None, None)


def cut(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """End the connection both ways below the driver, which sees that the server has gone."""
    if connection.closed:
        return
    with (
        contextlib.suppress(OSError, psycopg.OperationalError),
        socket.socket(fileno=os.dup(connection.fileno())) as wire,
    ):
        wire.shutdown(socket.SHUT_RDWR)
