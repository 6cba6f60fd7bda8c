"""Dead letters back to the topic they came from: the record as it was, without what we wrote about its failure."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from schemas.errors import BrokerUnavailable, RecordRefused
from schemas.headers import without_failure
from store.dead_letters import DeadLetters, LetterState, StoredLetter
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.producer import EventProducer

ANSWER_SECONDS: Final = 30.0
_AT_ONCE: Final = 20


class ReplayOutcome(StrEnum):
    """What became of one letter."""

    REPLAYED = "REPLAYED"
    ALREADY = "ALREADY"  # put back before, and left alone
    HELD = "HELD"  # not final yet: it is tried again by itself
    REFUSED = "REFUSED"  # by Kafka, as it is
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One letter's outcome; `detail` says more where there is more to say."""

    letter_id: int
    outcome: ReplayOutcome
    detail: str = ""


class Replay:
    """Puts letters back. Each is marked, and audited, after Kafka has acknowledged it.

    So a crash in between puts a letter back twice, never not at all; that the job id is the same makes it one run.
    """

    def __init__(self, letters: DeadLetters, producer: EventProducer, *, actor: str, reason: str | None = None) -> None:
        """*producer* is started and closed by the caller; *actor* and *reason* go into the audit."""
        self._letters = letters
        self._producer = producer
        self._actor = actor
        self._reason = reason

    async def put_back(self, letter_ids: Sequence[int], *, again: bool = False) -> list[ReplayResult]:
        """Put the letters with these ids back, in this order; one that was put back before only with *again*.

        A record's key chooses its partition anew, and its time is that of the replay.

        Raises:
            BrokerUnavailable: Kafka did not acknowledge in time. What it acknowledged is marked: call again.
            StoreUnavailable: no answer; call again.
        """
        results: list[ReplayResult] = []
        once = list(dict.fromkeys(letter_ids))
        for start in range(0, len(once), _AT_ONCE):
            results += await self._some(once[start : start + _AT_ONCE], again=again)
        return results

    async def _some(self, letter_ids: Sequence[int], *, again: bool) -> list[ReplayResult]:
        sent: dict[int, asyncio.Future[None]] = {}
        results: dict[int, ReplayResult] = {}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for letter_id in letter_ids:
                    stored = await self._letters.get(letter_id)
                    if stored is None:
                        results[letter_id] = ReplayResult(letter_id, ReplayOutcome.UNKNOWN, "there is no such letter")
                    elif (kept := _kept_back(stored, again=again)) is not None:
                        results[letter_id] = kept
                    else:
                        sent[letter_id] = await self._produce(stored)
                if sent:
                    await asyncio.wait(sent.values())
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka did not acknowledge within {ANSWER_SECONDS:g} s") from error
        finally:
            await self._mark([letter_id for letter_id, answer in sent.items() if _acknowledged(answer)])
        for letter_id, answer in sent.items():
            try:
                answer.result()
                results[letter_id] = ReplayResult(letter_id, ReplayOutcome.REPLAYED)
            except RecordRefused as error:
                results[letter_id] = ReplayResult(letter_id, ReplayOutcome.REFUSED, str(error))
        return [results[letter_id] for letter_id in letter_ids]

    async def _produce(self, stored: StoredLetter) -> "asyncio.Future[None]":
        """Hand a letter's record to the producer; the future says what became of it, also of one refused at once."""
        try:
            return await self._producer.produce(_record(stored))
        except RecordRefused as error:
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            refused.exception()  # looked at, whatever happens to the others
            return refused

    async def _mark(self, letter_ids: Sequence[int]) -> None:
        if letter_ids:
            await self._letters.mark_replayed(letter_ids, actor=self._actor, reason=self._reason)


def _acknowledged(answer: "asyncio.Future[None]") -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _kept_back(stored: StoredLetter, *, again: bool) -> ReplayResult | None:
    """Why a letter is not put back; None when it is."""
    if stored.state is LetterState.HELD:
        until = stored.held_until and stored.held_until.isoformat(timespec="seconds")
        return ReplayResult(stored.letter_id, ReplayOutcome.HELD, f"it is tried by itself until {until}")
    if stored.replayed_at is not None and not again:
        at = stored.replayed_at.isoformat(timespec="seconds")
        return ReplayResult(stored.letter_id, ReplayOutcome.ALREADY, f"put back at {at}; --again does it once more")
    return None


def _record(stored: StoredLetter) -> OutgoingRecord:
    # Its time is now: under its own, a topic whose retention is over for it would remove it before it is read.
    letter = stored.letter
    return OutgoingRecord(letter.identity.topic, letter.key, letter.value, without_failure(letter.headers))
