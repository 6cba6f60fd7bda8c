"""Held letters: records whose schema the registry does not know yet are tried again from their rows.

A producer may be faster than the registration of its schema, or than the replica that we ask. Such a record holds
nobody up: it waits beside the topic, and becomes a run as soon as its schema is known. When its time is over and the
registry still says that it does not know, it is a dead letter like others. No answer settles nothing.
"""

import asyncio
import contextlib
import logging
from typing import Final

from schemas.errors import (
    ContentRefused,
    ContractError,
    EvaluatorUnavailable,
    RegistryUnavailable,
    StoreUnavailable,
    UnknownSchema,
)
from schemas.topics import Topic
from store.dead_letters import DeadLetters, HeldLetter, OpenLetters
from store.looks import MOST_LETTERS
from store.submit import Submits, refusal_of
from streams.agents.decode import Registry
from streams.agents.prepare import REFUSED_BY_STORE, Submitter, prepare
from streams.health import ServiceHealth
from streams.kafka.records import Record
from streams.metrics import Metrics

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 21.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 15.0
_AT_ONCE_SECONDS: Final = 0.05
_PAGE: Final = 20  # whole records, of a megabyte each at worst
_PAGES_AT_ONCE: Final = 50


class HeldLetters:
    """Tries the held letters of one topic, for the life of a worker. Any number of workers may do so at once.

    While nothing is held it asks nothing of its own, as long as others of its process look at the store. Else it looks
    after 1 s, doubling to 15 s, and when a letter's time ends.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        letters: DeadLetters,
        submits: Submits,
        submitter: Submitter,
        registry: Registry,
        metrics: Metrics,
        idle_seconds: float = IDLE_SECONDS,
        first_pause_seconds: float = _FIRST_PAUSE_SECONDS,
    ) -> None:
        self._topic = topic
        self._letters = letters
        self._submits = submits
        self._submitter = submitter
        self._registry = registry
        self._metrics = metrics
        self._idle_seconds = idle_seconds
        self._first_pause_seconds = first_pause_seconds
        self._pause_seconds = first_pause_seconds
        self._wake = asyncio.Event()
        self._after: HeldLetter | None = None
        self._open = OpenLetters(0, 0)
        self._waits_for: str | None = None

    def wake(self) -> None:
        """Say that something was held just now: it is tried soon."""
        self._wake.set()

    async def run(self) -> None:
        """Try until cancelled. An outage, of the store or of the registry, is waited out."""
        newest_seconds = 0.0
        while True:
            pause_seconds = await self._round(newest_seconds)
            newest_seconds = 0.0 if self._open.held else self._idle_seconds
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_seconds)
                newest_seconds = 0.0
                self._pause_seconds = self._first_pause_seconds
                await asyncio.sleep(self._pause_seconds)  # just asked, the registry would say the same
            self._wake.clear()

    def health(self) -> ServiceHealth:
        """Always ready, since a held letter holds nobody up; `detail` counts the letters that are not published."""
        told = [f"{_counted(self._open.held)} held", f"{_counted(self._open.ready)} to publish"]
        if self._waits_for is not None and self._open.held:
            told.append(self._waits_for)
        return ServiceHealth("dead letters", alive=True, ready=True, detail=", ".join(told))

    async def _round(self, newest_seconds: float) -> float:
        """Count what is open, try what is held, and return how long to wait. The count may be *newest_seconds* old."""
        settled, next_end_seconds = 0, None
        try:
            await self._count(newest_seconds)
            if self._open.held:
                settled, next_end_seconds = await self.look()
                await self._count()
            self._waits_for = None
        except (StoreUnavailable, RegistryUnavailable, EvaluatorUnavailable) as error:
            if self._waits_for is None:
                _log.warning("held letters wait: %s", error)
            self._waits_for = str(error)
        if not self._open.held:
            self._pause_seconds = self._first_pause_seconds
            return self._idle_seconds
        if settled:
            self._pause_seconds = self._first_pause_seconds
            return _AT_ONCE_SECONDS if self._after is not None else self._pause_seconds
        pause = self._pause_seconds
        self._pause_seconds = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return pause if next_end_seconds is None else min(pause, max(next_end_seconds, _AT_ONCE_SECONDS))

    async def _count(self, newest_seconds: float = 0.0) -> None:
        self._open = await self._letters.open(newest_seconds=newest_seconds)
        self._metrics.dead_letters_held.set(self._open.held)
        self._metrics.dead_letters_ready.set(self._open.ready)

    async def look(self) -> tuple[int, float | None]:
        """Try the next held letters, a thousand at most; the next look goes on behind them.

        Returns:
            How many were settled, and in how many seconds the time of the next one ends; None when none was looked at.

        Raises:
            RegistryUnavailable: no answer; what was not settled is still held.
            StoreUnavailable: no answer; look again.
        """
        settled = 0
        ends: list[float] = []
        for _ in range(_PAGES_AT_ONCE):
            page = await self._letters.held(self._topic.name, after=self._after, limit=_PAGE)
            for held in page:
                if await self._settled(held):
                    settled += 1
                else:
                    ends.append(held.seconds_left)
            self._after = page[-1] if len(page) == _PAGE else None
            if self._after is None:
                break
        return settled, min(ends, default=None)

    async def _settled(self, held: HeldLetter) -> bool:
        """Try one letter; False when it is still held."""
        record = _record(held)
        try:
            submission = await prepare(record, self._topic, self._registry, self._submitter)
            submitted = await self._submits.submit_held(held.letter_id, submission)
        except UnknownSchema as error:
            return held.seconds_left <= 0 and await self._refuse(held, error.code, str(error))
        except ContractError as error:
            return await self._refuse(held, error.code, str(error))
        except ContentRefused as error:
            return await self._refuse(held, REFUSED_BY_STORE, str(error))
        if submitted is None:
            return True  # by another worker
        self._metrics.held_letters.labels(submitted.outcome.lower()).inc()
        if (refusal := refusal_of(submitted)) is not None:
            self._tell(held, *refusal)
        else:
            _log.info("held letter %d is a run now: %s", held.letter_id, submitted.job_id)
        return True

    async def _refuse(self, held: HeldLetter, code: str, reason: str) -> bool:
        if await self._letters.refuse(held.letter_id, code=code, reason=reason):
            self._metrics.held_letters.labels("dead_letter").inc()
            self._tell(held, code, reason)
        return True

    def _tell(self, held: HeldLetter, code: str, reason: str) -> None:
        where = held.letter.identity
        self._metrics.dead_letters.labels(code).inc()
        _log.warning("dead letter: %s[%d] offset %d: %s: %s", where.topic, where.partition, where.offset, code, reason)


def _record(held: HeldLetter) -> Record:
    letter, identity = held.letter, held.letter.identity
    return Record(
        topic=identity.topic,
        partition=identity.partition,
        offset=identity.offset,
        timestamp_ms=identity.timestamp_ms,
        key=letter.key,
        value=letter.value,
        headers=letter.headers,
    )


def _counted(count: int) -> str:
    return f"{MOST_LETTERS} or more" if count == MOST_LETTERS else str(count)
