"""Waiting for what other processes do."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

# Far more than anything takes on a machine of its own.
WAIT_SECONDS = 90.0


async def until(
    holds: Callable[[], bool | Awaitable[bool]], told: Callable[[], object], *, seconds: float = WAIT_SECONDS
) -> None:
    """Return as soon as *holds* says true; fail with what *told* says when it does not within that time."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                answer = holds()
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    raise AssertionError(f"after {seconds:g} s: {told()}")
