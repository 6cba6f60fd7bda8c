"""The evaluator in child processes: bounded in time and memory, whatever an expression does."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from schemas.errors import EvaluatorUnavailable
from streams.evaluator.channel import CALL_SECONDS, MEMORY_BYTES, Channel, ChildDied, ChildOverran
from streams.evaluator.evaluators import Digests, OperationsEvaluator
from streams.evaluator.frames import FrameInvalid, Header
from streams.evaluator.operations import Refused
from streams.evaluator.turns import Turns
from streams.workflow.descriptors import SchemaSet

log = logging.getLogger(__name__)


class ChildEvaluator(OperationsEvaluator):
    """Evaluates in children, each of which is started at its first use and again after it has ended.

    A request may use *seconds* of processor time and *memory_bytes* of address space. One that ends its child fails;
    the next one has a new child. Callers take turns, those of one schema in order, and the schemas one after the other:
    a workflow with slow expressions holds up the others by one at a time.
    """

    def __init__(
        self,
        *,
        seconds: float = CALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        children: int = 1,
        python: str = sys.executable,
    ) -> None:
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._python = python
        self._turns = Turns(children)
        self._idle: list[Channel] = []
        self._channels: set[Channel] = set()
        self._digests = Digests()
        self._closed = False

    async def ask(
        self, schemas: SchemaSet, request: Header, blobs: Sequence[bytes] = ()
    ) -> tuple[Header, Sequence[bytes]]:
        await self._turns.take(self._digests.of(schemas))
        # A task of its own, with the turn: a caller who gives up leaves no half of an exchange to the next one.
        task = asyncio.create_task(self._asked(schemas, request, blobs))
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[tuple[Header, Sequence[bytes]]]") -> None:
        self._turns.give_back()
        if not task.cancelled():
            task.exception()  # whoever asked may be gone

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(self._drop(channel) for channel in list(self._channels)))

    async def _asked(
        self, schemas: SchemaSet, request: Header, blobs: Sequence[bytes]
    ) -> tuple[Header, Sequence[bytes]]:
        try:
            return await self._exchanged(schemas, request, blobs)
        except ChildDied:  # by the request, or by somebody on this machine: a new child tells which
            pass
        try:
            return await self._exchanged(schemas, request, blobs)
        except ChildDied as error:
            if self._closed:
                raise _closed() from None
            raise Refused(f"the process that evaluates does not survive it: {error}") from None

    async def _exchanged(
        self, schemas: SchemaSet, request: Header, blobs: Sequence[bytes]
    ) -> tuple[Header, Sequence[bytes]]:
        channel = await self._channel()
        try:
            answer, answered = await self._answer(channel, schemas, request, blobs)
        except ChildOverran:
            await self._drop(channel)
            raise Refused(f"it takes over {self._seconds:g} s of processor time") from None
        except FrameInvalid as error:
            self._idle.append(channel)
            raise Refused(f"what it reads is too long: {error}") from None
        except BaseException:
            await self._drop(channel)
            raise
        if answer.pop("worn", False) or self._closed:
            await self._drop(channel)
        else:
            self._idle.append(channel)
        if not answer.pop("ok"):
            raise Refused(answer["refused"])
        return answer, answered

    async def _answer(
        self, channel: Channel, schemas: SchemaSet, request: Header, blobs: Sequence[bytes]
    ) -> tuple[Header, Sequence[bytes]]:
        request = {**request, "schema": self._digests.of(schemas)}
        answer, answered = await channel.call(request, blobs)
        if answer.get("unknown_schema"):
            answer, answered = await channel.call({**request, "loads": True}, [*blobs, schemas.to_bytes()])
        return answer, answered

    async def _channel(self) -> Channel:
        while self._idle:
            channel = self._idle.pop()
            if channel.alive:
                return channel
            await self._drop(channel)
        if self._closed:
            raise _closed()
        try:
            channel = await Channel.start(seconds=self._seconds, memory_bytes=self._memory_bytes, python=self._python)
        except EvaluatorUnavailable as error:
            log.warning("%s", error)
            raise
        self._channels.add(channel)
        return channel

    async def _drop(self, channel: Channel) -> None:
        self._channels.discard(channel)
        await channel.close()


def _closed() -> EvaluatorUnavailable:
    return EvaluatorUnavailable("the evaluator of expressions is closed")
