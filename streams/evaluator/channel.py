"""One child process, as its parent sees it: requests go in, answers come out, one at a time."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import streams
from schemas.errors import EvaluatorUnavailable
from streams.evaluator.frames import LENGTH, FrameInvalid, Header, body_length, decode, encode

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
    """A running child. Once a request fails with anything but an answer, it is of no use any more: close it."""

    def __init__(self, process: asyncio.subprocess.Process, seconds: float) -> None:
        self._process = process
        self._seconds = seconds

    @classmethod
    async def start(
        cls, *, seconds: float = CALL_SECONDS, memory_bytes: int = MEMORY_BYTES, python: str = sys.executable
    ) -> "Channel":
        """Start a child. Raises EvaluatorUnavailable when this machine cannot."""
        with tempfile.TemporaryFile() as errors:  # within the child's limit; a pipe would have to be held in memory
            try:
                process = await asyncio.create_subprocess_exec(
                    python,
                    *("-I", "-c", _START, _ROOT, str(memory_bytes), str(seconds)),
                    env={},  # the parent's may hold secrets
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    limit=1 << 20,
                )
            except OSError as error:
                raise _cannot_start(str(error)) from error
            channel = cls(process, seconds)
            try:
                await channel.call({"operation": "ready"}, ())
            except (ChildOverran, ChildDied) as error:
                errors.seek(0)
                said = errors.read(_SAID_BYTES).decode(errors="replace").strip()
                raise _cannot_start(said.rpartition("\n")[2] or str(error)) from None
            except BaseException:
                process.kill()
                raise
            return channel

    async def call(self, request: Header, blobs: Sequence[bytes]) -> tuple[Header, list[bytes]]:
        """Send one request and return its answer.

        Raises:
            ChildOverran, ChildDied: no answer came, nor will one.
            EvaluatorUnavailable: no answer came for long, without much work done.
            FrameInvalid: the request is too long.
        """
        frame = encode(request, blobs)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it is a pipe"
        assert stdout is not None, "it is a pipe"
        try:
            async with asyncio.timeout(max(START_SECONDS, self._seconds * STALL_FACTOR)):
                stdin.write(frame)
                await stdin.drain()
                length = body_length(await stdout.readexactly(LENGTH.size))
                return decode(await stdout.readexactly(length))
        except TimeoutError:
            raise EvaluatorUnavailable("the evaluator of expressions gave no answer: this machine is stalled") from None
        except (asyncio.IncompleteReadError, ConnectionError, FrameInvalid):
            status = await self.close()
            if status == -signal.SIGPROF:
                raise ChildOverran from None
            raise ChildDied(f"the evaluator ended with status {status}") from None

    async def close(self) -> int:
        """End the child, if it has not ended by itself; return its exit status."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            try:
                async with asyncio.timeout(0.1):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        return await self._process.wait()


def _cannot_start(reason: str) -> EvaluatorUnavailable:
    return EvaluatorUnavailable(f"the evaluator of expressions cannot be started here: {reason}")
