"""Work in the event loop of another thread: its answer, its error, its cancellation, and a loop that ends before."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator

import pytest

from streams.kafka.other_loop import run_in


@pytest.fixture
async def other() -> AsyncIterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    await asyncio.to_thread(thread.join)
    loop.close()


async def test_the_answer_and_the_error_come_back(other: asyncio.AbstractEventLoop) -> None:
    async def answer() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def fail() -> None:
        raise LookupError("no")

    assert await asyncio.wrap_future(run_in(other, answer)) is other
    with pytest.raises(LookupError, match="no"):
        await asyncio.wrap_future(run_in(other, fail))


async def test_work_is_cancelled_from_either_side(other: asyncio.AbstractEventLoop) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def last() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def give_up() -> None:
        raise asyncio.CancelledError

    waiting = asyncio.ensure_future(asyncio.wrap_future(run_in(other, last)))
    assert await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    assert await asyncio.to_thread(cancelled.wait, 10)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wrap_future(run_in(other, give_up))


def test_a_loop_that_ends_before_it_gets_to_it_leaves_nothing_that_nobody_awaited() -> None:
    async def never() -> None:
        raise AssertionError

    loop = asyncio.new_event_loop()
    answer = run_in(loop, never)
    loop.close()
    gc.collect()  # a coroutine that was made and not awaited would warn, and fail this test
    assert not answer.done()
    with pytest.raises(RuntimeError):
        run_in(loop, never)
