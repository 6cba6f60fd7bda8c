"""Calls of handlers: bytes in, bytes out, each in the runner that it asks for, and never in the worker's loop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from schemas.errors import HandlerDied, HandlerOverdue, SegmentInterrupted
from streams.handlers.children import Children
from streams.handlers.context import Context
from streams.handlers.declarations import RunsIn
from streams.handlers.loop_thread import LoopThread
from streams.handlers.registry import Registry
from streams.handlers.running import awaited, called, settle
from streams.handlers.threads import Threads
from streams.handlers.values import Given, Served
from streams.health import ServiceHealth
from streams.metrics import Metrics
from streams.workflow.callbacks import CallRequest
from streams.workflow.descriptors import SchemaSet

T = TypeVar("T")

_NAME: Final = "handlers"
_handler_log = logging.getLogger("handlers")


@dataclass(frozen=True, slots=True)
class OnBehalf:
    """Whose call it is. `report` takes progress from any thread; `connection` is that of a transactional handler."""

    job_id: UUID
    tenant_id: str
    attempt: int
    report: Callable[[int, int], None]
    connection: Any = None


@dataclass(slots=True)
class _Call:
    """A call under way: `result` is done once the handler has really ended, and `stop` asks it to."""

    result: "asyncio.Future[bytes]"
    stop: Callable[[], None]
    asked_to_stop: bool = field(default=False)


class HandlerCalls:
    """Calls the handlers of one worker.

    A call lasts at most *call_cap_seconds*. A handler that does not end in time is left behind: its thread cannot be
    ended, so its permit stays taken until it has returned. Sync handlers have a thread each, async ones share a loop on
    a thread of its own, and the others a process each.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        default_permits: int = 8,
        transactional_permits: int = 4,
        call_cap_seconds: float = 900,
        metrics: Metrics,
    ) -> None:
        """*default_permits* are those of a handler that names none, *transactional_permits* of a transactional one."""
        self.registry = registry
        self._transactional_permits = min(transactional_permits, default_permits)
        self._default_permits = default_permits
        self._call_cap_seconds = call_cap_seconds
        self._metrics = metrics
        self._threads = Threads()
        self._loop_thread = LoopThread()
        self._children = Children()
        self._left_behind = 0

    def __len__(self) -> int:
        return len(self.registry)

    def serves(self, target: str) -> bool:
        """Whether a handler here serves *target*."""
        return self.registry.find(target) is not None

    def permits_of(self, target: str) -> int:
        """How many calls of *target* may be at work at once; 0 when nothing here serves it."""
        served = self.registry.find(target)
        if served is None:
            return 0
        declared = served.declaration
        return declared.permits or (self._transactional_permits if declared.transactional else self._default_permits)

    async def __call__(
        self,
        request: CallRequest,
        on_behalf: OnBehalf,
        *,
        schemas: SchemaSet,
        on_end: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Call the handler of `request.target` and return the serialized response.

        *on_end* is called once, in this loop, when the handler has really ended: maybe long after this call has.

        Raises:
            StepFailed: as the handler ended; see `streams.handlers.failures`. HandlerOverdue: it did not in time.
            SegmentInterrupted: nothing here serves the target; nothing was called.
        """
        served = self.registry.find(request.target)
        if served is None:
            on_end()
            raise SegmentInterrupted(f"this worker does not serve the target {request.target}")
        seconds = min(
            request.timeout_seconds,
            self._call_cap_seconds,
            served.declaration.timeout_seconds or request.timeout_seconds,
        )
        try:
            call = self._started(served, request, on_behalf, schemas, seconds, on_end)
        except BaseException as error:
            on_end()
            if isinstance(error, RuntimeError):
                raise HandlerDied(f"the handler of {served.declaration.name} cannot be started: {error}") from error
            raise
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(call.result)
        except TimeoutError:
            self._leave(call)
            raise HandlerOverdue(
                f"the handler of {served.declaration.name} did not end within {seconds:.3g} s"
            ) from None
        except asyncio.CancelledError:
            self._leave(call)
            raise

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run *work* in a thread, and return what it returns. To stop waiting does not stop it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._threads.start(lambda: settle(loop, done, work))
        return await asyncio.shield(done)

    async def in_loop(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop of async handlers. To stop waiting does not stop it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._loop_thread.start(
            make, name="the transaction of a handler", on_end=lambda task: settle(loop, done, task.result)
        )
        return await asyncio.shield(done)

    async def run(self) -> None:
        """Watch whether the loop of async handlers turns, until cancelled."""
        await self._loop_thread.watch(on_lag=self._metrics.handler_loop_lag.set)

    async def close(self) -> None:
        """End the child processes and the loop. What runs in a thread ends with the process."""
        await self._children.close()
        if self._loop_thread.used:
            await self.in_thread(self._loop_thread.stop)

    def health(self) -> ServiceHealth:
        """What is served, and what was left behind."""
        names = ", ".join(sorted(one.declaration.target for one in self.registry)) or "nothing"
        left = f"; {self._left_behind} calls overran and are still at work" if self._left_behind else ""
        lag = self._loop_thread.lag_seconds
        held_up = f"; async handlers are held up for {lag:.1f} s" if lag >= 1 else ""
        return ServiceHealth(_NAME, alive=True, ready=True, detail=f"serving {names}{left}{held_up}")

    def _started(
        self,
        served: Served,
        request: CallRequest,
        on_behalf: OnBehalf,
        schemas: SchemaSet,
        seconds: float,
        on_end: Callable[[], None],
    ) -> _Call:
        context = Context(
            job_id=on_behalf.job_id,
            tenant_id=on_behalf.tenant_id,
            step=request.step,
            attempt=on_behalf.attempt,
            deadline=datetime.now(UTC) + timedelta(seconds=seconds),
            log=_handler_log.getChild(served.declaration.name.replace("/", ".")),
            report=on_behalf.report,
            transaction=on_behalf.connection,
        )
        method = schemas.method(request.method.removeprefix("/"))
        given = Given(request.payload, method.input_type.full_name, request.response_type, lambda: schemas)
        match served.declaration.runs_in:
            case RunsIn.THREAD:
                call = self._in_thread(served, given, context)
            case RunsIn.LOOP:
                call = self._in_loop(served, given, context)
            case RunsIn.CHILD:
                call = self._in_child(served, given, context)
        call.result.add_done_callback(lambda result: self._ended(call, on_end))
        return call

    def _in_thread(self, served: Served, given: Given, context: Context) -> _Call:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes] = loop.create_future()
        self._threads.start(lambda: settle(loop, result, lambda: called(served, given, context)))
        return _Call(result, context.stop.set)

    def _in_loop(self, served: Served, given: Given, context: Context) -> _Call:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes] = loop.create_future()
        cancel = self._loop_thread.start(
            lambda: awaited(served, given, context),
            name=f"the handler of {served.declaration.name} for run {context.job_id}",
            on_end=lambda task: settle(loop, result, task.result),
        )

        def stop() -> None:
            context.stop.set()
            cancel()

        return _Call(result, stop)

    def _in_child(self, served: Served, given: Given, context: Context) -> _Call:
        task = asyncio.create_task(self._children.call(served, given, context))
        return _Call(task, lambda: _cancel(task))

    def _leave(self, call: _Call) -> None:
        if not call.result.done():
            call.asked_to_stop = True
            self._left_behind += 1
            self._metrics.handlers_left_behind.set(self._left_behind)
            call.stop()

    def _ended(self, call: _Call, on_end: Callable[[], None]) -> None:
        if not call.result.cancelled():
            call.result.exception()  # whoever waited may be gone
        if call.asked_to_stop:
            self._left_behind -= 1
            self._metrics.handlers_left_behind.set(self._left_behind)
        on_end()


def _cancel(task: "asyncio.Task[bytes]") -> None:
    task.cancel()
