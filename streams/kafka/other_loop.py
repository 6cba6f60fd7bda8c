"""Running work in the event loop of another thread."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")


def run_in(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, _Answer]]
) -> "concurrent.futures.Future[_Answer]":
    """Run *work* in *loop*; cancelling the future cancels it there.

    As `asyncio.run_coroutine_threadsafe`, but the coroutine is made in that loop. When the loop ends before it gets to
    it, there is nothing that nobody awaited, and the future has no answer.

    Raises:
        RuntimeError: the loop is closed.
    """
    answer: concurrent.futures.Future[_Answer] = concurrent.futures.Future()

    def begin() -> None:
        task = loop.create_task(work())
        task.add_done_callback(tell)

        def cancel(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs there any more
                loop.call_soon_threadsafe(task.cancel)

        answer.add_done_callback(cancel)

    def tell(task: "asyncio.Task[_Answer]") -> None:
        error = None if task.cancelled() else task.exception()
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # whoever asked has given up
            if task.cancelled():
                answer.cancel()
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

    loop.call_soon_threadsafe(begin)
    return answer
