"""A loop for async handlers, on a thread of its own: one that blocks holds up its like, never the worker."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25
_BLOCKED_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 0.5
_END_SECONDS: Final = 0.2


class LoopThread:
    """An asyncio loop on a thread, started at the first use."""

    def __init__(self, *, blocked_seconds: float = _BLOCKED_SECONDS) -> None:
        self._blocked_seconds = blocked_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._told = False
        self.lag_seconds = 0.0
        """How long the loop has not turned, when last looked at."""

    @property
    def used(self) -> bool:
        """Whether anything was ever run."""
        return self._loop is not None

    def start(
        self, make: Callable[[], Coroutine[Any, Any, T]], *, name: str, on_end: Callable[["asyncio.Task[T]"], None]
    ) -> Callable[[], None]:
        """Run what *make* returns as a task of that name, in a copy of the caller's context.

        Returns what cancels it. *on_end* is called in this loop once the task is done, however long that takes.
        """
        loop = self._started()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = loop.create_task(make(), name=name)
            tasks.append(task)
            task.add_done_callback(on_end)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        loop.call_soon_threadsafe(begin)
        return lambda: _call_soon(loop, cancel)

    def stop(self) -> None:
        """End the loop. Its tasks are not waited for; a loop that is blocked is left behind."""
        if self._loop is None or self._thread is None:
            return
        _call_soon(self._loop, self._loop.stop)
        self._thread.join(_JOIN_SECONDS)

    async def watch(self, *, on_lag: Callable[[float], None]) -> None:
        """Look four times a second whether the loop turns, and log once what holds it up for over a second."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._loop is not None:
                self._look(self._loop)
                on_lag(self.lag_seconds)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self.lag_seconds = 0.0
            self._asked_at = now
            _call_soon(loop, self._answer)
            return
        self.lag_seconds = now - self._asked_at
        if self.lag_seconds >= self._blocked_seconds and not self._told:
            self._told = True
            log.warning("async handlers have been held up for %.1f s by %s", self.lag_seconds, self._culprit(loop))

    def _answer(self) -> None:
        self._asked_at, self._told = None, False

    def _culprit(self, loop: asyncio.AbstractEventLoop) -> str:
        task = asyncio.current_task(loop)
        name = task.get_name() if task is not None else "what no task is running"
        ident = self._thread.ident if self._thread is not None else None
        frame = sys._current_frames().get(ident) if ident is not None else None
        where = f", at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
        return f"{name}{where}: what blocks belongs into a sync handler"

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="async handlers", daemon=True)
            self._thread.start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001  # asyncio lets SystemExit through a task and out of its loop
                log.error("an async handler let %s out: the others go on", type(error).__name__)
                continue
            break
        _end_tasks(loop)
        loop.close()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        with contextlib.suppress(BaseException):
            loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS))


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended, and everything in it
        loop.call_soon_threadsafe(call)
