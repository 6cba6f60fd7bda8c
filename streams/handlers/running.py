"""One call of a function, sync or async, from the bytes of its request to those of its response."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from streams.handlers.context import Context
from streams.handlers.failures import failure_of
from streams.handlers.values import Given, Served

T = TypeVar("T")


def called(served: Served, given: Given, context: Context) -> bytes:
    """Call a sync function. Raises StepFailed alone, whatever it raised."""
    try:
        result = served.declaration.function(served.argument(given), context)
        return served.payload(result, given)
    except BaseException as error:  # noqa: BLE001  # the edge between people's code and ours
        failure = failure_of(error, name=served.declaration.name, attempt=context.attempt)
        raise failure from failure.__cause__


async def awaited(served: Served, given: Given, context: Context) -> bytes:
    """Call an async function. Raises StepFailed alone, or CancelledError when it was asked to stop."""
    try:
        result = await served.declaration.function(served.argument(given), context)
        return served.payload(result, given)
    except asyncio.CancelledError as error:
        if context.cancelled():
            raise
        raise failure_of(error, name=served.declaration.name, attempt=context.attempt) from None
    except BaseException as error:  # noqa: BLE001  # the edge between people's code and ours
        failure = failure_of(error, name=served.declaration.name, attempt=context.attempt)
        raise failure from failure.__cause__


def settle(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", work: Callable[[], T]) -> None:
    """Do *work* here, and put what comes of it into a future of another thread's loop, which may have ended since."""
    deliver: partial[Any]
    try:
        result = work()
        deliver = partial(_give, future, result)
    except asyncio.CancelledError:
        deliver = partial(future.cancel)
    except BaseException as error:  # noqa: BLE001  # whoever waits for the future is told
        deliver = partial(_fail, future, error)
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(deliver)


def _give(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
