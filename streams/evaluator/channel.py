"""One child process, as its parent sees it: requests go in, answers come out, one at a time."""

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import streams
from schemas.errors import EvaluatorUnavailable
from streams.evaluator.frames import LENGTH, READY, FrameInvalid, Header, body_length, decode, encode

CALL_SECONDS: Final = 1.0
"""Processor time of one request."""

START_SECONDS: Final = 30.0
STALL_FACTOR: Final = 20.0
"""A child that gives no answer for this many times its processor time is held up by the machine, not by its work."""

MEMORY_BYTES: Final = 1 << 30
"""Address space of the child, much of which is the interpreter's and never touched."""

_SAID_BYTES: Final = 20_000
_ROOT: Final = str(Path(streams.__path__[0]).parent)
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from streams.evaluator.child import main; main(sys.argv[2:])"
)


class ChildOverran(Exception):
    """The request took more processor time than it is given; the child is gone."""


class ChildDied(Exception):
    """The child ended during the request, and not by its own limit on time: it may have been the request, or not."""


class Channel:
    """A running child. After anything but an answer it is of no use any more: close it."""

    def __init__(self, transport: asyncio.SubprocessTransport, wire: "_Wire", patience_seconds: float) -> None:
        self._transport = transport
        self._wire = wire
        self._patience_seconds = patience_seconds
        stdin = transport.get_pipe_transport(0)
        assert stdin is not None, "it is a pipe"
        # uvloop's transports have the methods of asyncio's, and are none of their classes.
        self._requests = cast("asyncio.WriteTransport", stdin)

    @classmethod
    async def start(
        cls, *, seconds: float = CALL_SECONDS, memory_bytes: int = MEMORY_BYTES, python: str = sys.executable
    ) -> "Channel":
        """Start a child and wait until it is there. Raises EvaluatorUnavailable when this machine cannot."""
        loop = asyncio.get_running_loop()
        with tempfile.TemporaryFile() as errors:  # within the child's limit; a pipe would have to be held in memory
            try:
                transport, wire = await loop.subprocess_exec(
                    lambda: _Wire(loop),
                    *(python, "-I", "-c", _START, _ROOT, str(memory_bytes), str(seconds)),
                    env={},  # the parent's may hold secrets
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except OSError as error:
                raise _cannot_start(str(error)) from error
            channel = cls(transport, wire, max(START_SECONDS, seconds * STALL_FACTOR))
            try:
                await channel.call({"operation": READY})
            except BaseException as error:
                await channel.close()
                if not isinstance(error, ChildOverran | ChildDied):
                    raise
                errors.seek(0)
                said = errors.read(_SAID_BYTES).decode(errors="replace").strip()
                raise _cannot_start(said.rpartition("\n")[2] or str(error)) from None
            return channel

    @property
    def alive(self) -> bool:
        """Whether nobody has seen it end yet."""
        return not self._wire.gone.done()

    async def call(self, request: Header, blobs: Sequence[bytes] = ()) -> tuple[Header, list[bytes]]:
        """Send one request and return its answer.

        Raises:
            ChildOverran, ChildDied: no answer came, nor will one.
            EvaluatorUnavailable: no answer came for long, without much work done.
            FrameInvalid: the request is too long; nothing was sent.
        """
        frame = encode(request, blobs)
        answer = self._wire.expect()
        if not self._requests.is_closing():  # else it is ending, which is told as the answer
            self._requests.write(frame)
        try:
            async with asyncio.timeout(self._patience_seconds):
                body = await answer
        except TimeoutError:
            raise EvaluatorUnavailable("the evaluator of expressions gave no answer: this machine is stalled") from None
        if body is None:
            status = self._transport.get_returncode()
            raise ChildOverran if status == -signal.SIGPROF else ChildDied(f"it ended with status {status}")
        try:
            return decode(body)
        except FrameInvalid as error:
            raise ChildDied(str(error)) from None

    async def close(self) -> None:
        """End the child, if it has not ended by itself."""
        self._transport.close()  # which kills it
        await self._wire.gone


class _Wire(asyncio.SubprocessProtocol):
    """Puts together what comes out of a child: a body at a time, or None when there is no child any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._came = bytearray()
        self._answer: asyncio.Future[bytes | None] | None = None
        self.gone: asyncio.Future[None] = loop.create_future()

    def expect(self) -> "asyncio.Future[bytes | None]":
        """The next body that comes."""
        self._answer = self._loop.create_future()
        if self.gone.done():
            self._answer.set_result(None)
        return self._answer

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._came += data
        if len(self._came) < LENGTH.size:
            return
        try:
            end = LENGTH.size + body_length(bytes(self._came[: LENGTH.size]))
        except FrameInvalid:
            end = LENGTH.size  # which leaves an empty body, and that is no frame
        if len(self._came) >= end:
            body = bytes(self._came[LENGTH.size : end])
            self._came.clear()
            self._tell(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set_result(None)
        self._tell(None)

    def _tell(self, body: bytes | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(body)


def _cannot_start(reason: str) -> EvaluatorUnavailable:
    return EvaluatorUnavailable(f"the evaluator of expressions cannot be started here: {reason}")
