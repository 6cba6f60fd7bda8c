"""Child processes for handlers that ask for one: a death there harms no other run."""

import asyncio
import contextlib
import hashlib
import json
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from schemas.errors import HandlerDied, HandlerRejected, HandlerRetry, StepFailed, WorkflowBroken
from streams.handlers.context import Context
from streams.handlers.frames import packed, read_frame
from streams.handlers.values import Given, Served
from streams.settings import child_environment

_VOICELESS_SECONDS: Final = 1.0
_CHILD: Final = Path(__file__).with_name("child.py")


class Children:
    """At most as many processes of one handler as it has calls at once; each serves one call at a time, and stays."""

    def __init__(self, *, python: str = sys.executable) -> None:
        self._python = python
        self._idle: defaultdict[str, list[_Child]] = defaultdict(list)
        self._closed = False

    async def call(self, served: Served, given: Given, context: Context) -> bytes:
        """Call the handler in a process. When this is cancelled, the process is killed, and gone when it returns.

        Raises:
            StepFailed: as the handler ended. HandlerDied: its process did.
        """
        idle = self._idle[served.declaration.target]
        child = idle.pop() if idle else await self._start(served)
        kept = False
        try:
            response = await child.call(served, given, context)
            kept = not self._closed
            return response
        except StepFailed:
            kept = not self._closed and not child.gone
            raise
        finally:
            if kept:
                idle.append(child)
            else:
                await child.end()

    async def close(self) -> None:
        """End the processes that wait for a call, and every other once its call has ended."""
        self._closed = True
        for idle in self._idle.values():
            while idle:
                await idle.pop().end()

    async def _start(self, served: Served) -> "_Child":
        declaration = served.declaration
        command = (self._python, "-P", str(_CHILD), json.dumps(sys.path))
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                env=child_environment(),
                start_new_session=True,  # Ctrl-C asks the worker to stop, and the worker lets its handlers finish
            )
        except OSError as error:
            raise HandlerDied(f"no process can be started for the handler of {declaration.name}: {error}") from error
        child = _Child(process)
        child.send({"module": declaration.function.__module__, "target": declaration.target})
        return child


class _Child:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.gone = False
        """Whether it has ended by itself."""
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    def send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        self._stdin.write(packed(header, blob))

    async def call(self, served: Served, given: Given, context: Context) -> bytes:
        schema = given.schemas().to_bytes()
        call = {
            "request_type": given.request_type,
            "response_type": given.response_type,
            "schema": hashlib.sha256(schema).hexdigest(),
            "job_id": str(context.job_id),
            "tenant_id": context.tenant_id,
            "step": context.step,
            "attempt": context.attempt,
            "deadline": context.deadline.isoformat(),
            "log": context.log.name,
        }
        try:
            self.send(call, given.payload)
            await self._stdin.drain()
            while True:
                header, blob = await read_frame(self._stdout)
                if "done" in header:
                    return blob
                await self._heard(header, schema, context)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            self.gone = True
            status = await self._status()
            name = served.declaration.name
            text = f"the process of the handler of {name} {ended(status)}, in try {context.attempt}"
            raise HandlerDied(text) from None

    async def _heard(self, header: dict[str, Any], schema: bytes, context: Context) -> None:
        if "failed" in header:
            raise _failure(header)
        if "progress" in header:
            context.report(*header["progress"])
        elif "log" in header:
            name, level, message = header["log"]
            logging.getLogger(name).log(level, "%s", message)
        elif "wants" in header:
            self.send({"schema": header["wants"]}, schema)
            await self._stdin.drain()

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self._kill()
        self._stdin.close()
        await asyncio.shield(self._process.wait())

    async def _status(self) -> int:
        """How it ended. One that lives on without a voice is killed; a dead one is not, since that would reap it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_VOICELESS_SECONDS):
                return await self._process.wait()
        self._kill()
        return await self._process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def ended(status: int) -> str:
    """How a process ended, as a part of a sentence."""
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


def _failure(header: dict[str, Any]) -> StepFailed:
    message = str(header["message"])
    match header["failed"]:
        case "HandlerRetry":
            return HandlerRetry(message, after_seconds=header["after"])
        case "HandlerRejected":
            return HandlerRejected(message)
        case "HandlerDied":
            return HandlerDied(message)
        case _:
            return WorkflowBroken(message)
