"""One Faust App of intake: how it runs, what it waits for, and how it ends whatever is out of reach."""

import asyncio
import logging
from typing import Final

import faust

from streams.kafka.assignment import Assignment
from streams.kafka.transport import IntakeConsumer

_log = logging.getLogger(__name__)

# Of the 8 s that a stop may take; the rest is for the client's thread, by force if need be.
_ORDERLY_STOP_SECONDS: Final = 4.5
_CANCEL_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 5.0


async def run_app(app: faust.App) -> None:
    """Start *app* and wait until it stops or crashes, be it in the middle of its start. Raises what that raised."""
    over = asyncio.create_task(app.wait_until_stopped(), name="intake: app's end")
    starting = asyncio.create_task(app.start(), name="intake: app's start")
    try:
        await asyncio.wait({over, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            await starting
            await over
    finally:
        # A start that is still under way would go on starting what is stopped.
        over.cancel()
        starting.cancel()
        await asyncio.wait({over, starting}, timeout=_CANCEL_SECONDS)


async def end_app(app: faust.App) -> bool:
    """Stop *app*, whatever state it is in. False: it did not end in time."""
    consumer = consumer_of(app)
    # Waited for, not cancelled: Faust takes a cancellation for one of its own.
    stopping = asyncio.create_task(_finish(app, consumer), name="intake: stop")
    await asyncio.wait({stopping}, timeout=_ORDERLY_STOP_SECONDS)
    ended = consumer is None or await consumer.end_client(by_force=not stopping.done())
    await asyncio.wait({stopping}, timeout=_CANCEL_SECONDS)
    if stopping.done() and (stopping.cancelled() or stopping.exception() is not None):
        _log.warning("intake did not stop cleanly: %r", None if stopping.cancelled() else stopping.exception())
    return ended and stopping.done()


def has_joined(app: faust.App) -> bool:
    """Whether the group has given *app* its partitions, be it none, and they can be read."""
    return bool(app.started and not app.rebalancing and app.tables.actives_ready and app._fetcher.started)


def consumer_of(app: faust.App | None) -> IntakeConsumer | None:
    """Return the consumer of *app*, None before it has one."""
    consumer = app._consumer if app is not None else None
    assert consumer is None or isinstance(consumer, IntakeConsumer)
    return consumer


def assignment_of(app: faust.App | None) -> Assignment | None:
    """Return what *app* reads now, None while it reads nothing."""
    consumer = consumer_of(app)
    return consumer.current if consumer is not None else None


def waits_for(app: faust.App) -> str | None:
    """Return why *app* reads nothing, None while it reads, be it no partition."""
    consumer = consumer_of(app)
    if consumer is not None and consumer.refused is not None:
        return consumer.refused
    if consumer is not None and consumer.silent_seconds > _SILENT_SECONDS:
        return f"no broker has answered for {consumer.silent_seconds:.0f} s"
    if consumer is None or not app.started or app.should_stop or app.crashed:
        return "the app starts or stops"
    if not has_joined(app):
        return "the group is rebalancing"
    if not consumer.has_coordinator:
        return "no broker answers for the group"
    return consumer.waits_for or consumer.missing


async def _finish(app: faust.App, consumer: IntakeConsumer | None) -> None:
    if consumer is not None:
        await consumer.finish()
    await app.stop()
