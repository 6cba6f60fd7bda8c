"""Transactional handlers for tests, on a table `written (job_id, note)`. What one does is its request's text."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from streams.handlers import Context, Reject, Retry, handler
from tests.handlers.steps import Reply


class Gate:
    """Holds a handler up behind its write, until the test lets it go on."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.open = threading.Event()

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]


GATE = Gate()

_RAISES: Mapping[str, Exception] = {
    "raises": ValueError("after writing"),
    "retries": Retry("after writing"),
    "rejects": Reject("after writing"),
}
_EXECUTES: Mapping[str, Sequence[str]] = {
    "commits in SQL": ("commit",),
    "begins anew": ("commit", "begin"),
    "broken at commit": ("insert into public.deferred values (1), (1)",),
    "leaves settings": ("set search_path = nowhere", "set application_name = 'left behind'"),
    "breaks": ("select 1 / 0",),
}
_WRITE = "insert into public.written (job_id, note) values (%s, %s)"
_WHERE = "select current_setting('application_name')"


@handler("steps.v1.Steps/Write", transactional=True)
def write(request: Any, context: Context) -> Any:
    connection, does = context.connection, request.text
    connection.execute(_WRITE, (context.job_id, does))
    if does in _RAISES:
        raise _RAISES[does]
    if does == "waits":
        GATE.arrived.set()
        assert GATE.open.wait(30)
    if does == "commits":
        connection.commit()
    if does == "idles":
        time.sleep(1.6)  # leaves its transaction idle for longer than the second that its test allows
    for statement in _EXECUTES.get(does, ()):
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            return Reply(text=str(error))
    [where] = connection.execute(_WHERE).fetchone()
    return {"nothing": None, "unkeepable": Reply(text="a\0b")}.get(does, Reply(text=where))


@handler("steps.v1.Steps/AsyncWrite", transactional=True)
async def async_write(request: Any, context: Context) -> Any:
    connection, does = context.connection, request.text
    await connection.execute(_WRITE, (context.job_id, does))
    if does in _RAISES:
        raise _RAISES[does]
    if does == "waits":
        GATE.arrived.set()
        await asyncio.to_thread(GATE.open.wait, 30)
    if does == "commits":
        await connection.commit()
    if does == "idles":
        await asyncio.sleep(1.6)  # as above
    for statement in _EXECUTES.get(does, ()):
        try:
            await connection.execute(statement)
        except psycopg.Error as error:
            return Reply(text=str(error))
    cursor = await connection.execute(_WHERE)
    [where] = await cursor.fetchone()
    return {"nothing": None, "unkeepable": Reply(text="a\0b")}.get(does, Reply(text=where))
