"""Patience with the store: what has no answer is asked again."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from schemas.errors import StoreUnavailable
from streams.workflow.backoff import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE: Final = Backoff(base_seconds=0.1, cap_seconds=2.0)


async def until_answered(
    ask: Callable[[], Awaitable[T]],
    *,
    for_seconds: float | None = None,
    before_waiting: Callable[[], None] = lambda: None,
) -> T:
    """Return what *ask* returns, asking again while the store is away: first after 0.1 s, later every 2 s.

    *before_waiting* is called ahead of each pause. What else *ask* raises passes through.

    Raises:
        StoreUnavailable: it was still away after *for_seconds*; None stands for ever.
    """
    began = time.monotonic()
    failures = 0
    while True:
        try:
            return await ask()
        except StoreUnavailable as error:
            failures += 1
            if for_seconds is not None and time.monotonic() - began >= for_seconds:
                raise
            if failures == 1:
                log.warning("the store is away: %s", error)
        before_waiting()
        await asyncio.sleep(PAUSE.delay_seconds(failures))
