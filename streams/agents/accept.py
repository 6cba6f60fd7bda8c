"""A batch of request records: each becomes a run or a dead letter, all in one transaction with the positions."""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from schemas.errors import (
    ContentRefused,
    ContractError,
    EvaluatorUnavailable,
    PositionMoved,
    RegistryUnavailable,
    StoreUnavailable,
    TablesRefuse,
    UnknownSchema,
)
from schemas.topics import Topic
from store.records import DeadLetter, Submission, SubmitOutcome
from store.submit import CONFLICT_CODE, BatchResult, IntakeBatch, IntakeRecord, refusal_of
from streams.agents.decode import Registry
from streams.agents.prepare import REFUSED_BY_STORE, Submitter, prepare
from streams.kafka.assignment import Assignment, Partition
from streams.kafka.records import Record
from streams.metrics import Metrics

_log = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 2.0

_Result = TypeVar("_Result")


class Batches(Protocol):
    """Writes a batch; see `store.submit.Submits`."""

    async def batch(self, batch: IntakeBatch) -> BatchResult: ...


@dataclass(frozen=True, slots=True)
class _Decided:
    """A record, and what it becomes: a submission, or nothing but its letter."""

    record: Record
    letter: DeadLetter
    submission: Submission | None

    @property
    def where(self) -> Partition:
        return self.record.topic, self.record.partition


class Accept:
    """Stores batches of one topic. Knows nothing of Faust.

    An outage, of Postgres or of the schema registry where it must be asked, is waited out for as long as the batch's
    assignment lasts: nothing of a batch is skipped, and nothing behind it is begun. A record that the tables refuse
    holds its own partition alone.
    """

    def __init__(
        self,
        *,
        group_id: str,
        topic: Topic,
        submitter: Submitter,
        registry: Registry,
        batches: Batches,
        metrics: Metrics,
        held_seconds: float = 600.0,
        on_held: Callable[[], None] = lambda: None,
    ) -> None:
        """A record whose schema the registry does not know is held for *held_seconds*, and *on_held* is told."""
        self._held_seconds = held_seconds
        self._on_held = on_held
        self._group_id = group_id
        self._topic = topic
        self._submitter = submitter
        self._registry = registry
        self._batches = batches
        self._metrics = metrics
        self.waits_for: str | None = None
        """The outage that holds a batch now; None while none does."""

    async def store(self, assignment: Assignment, records: Sequence[Record]) -> dict[Partition, int]:
        """Store *records*, read under *assignment* in this order, and return the next offset of each partition.

        Of a partition that stands still, nothing is stored from that place on.

        Raises:
            AssignmentEnded: the partitions were taken away meanwhile. Drop the batch; it is read again.
            PositionMoved: somebody else moved a position; the part of the batch before it may be stored. Reassign.
        """
        began = time.monotonic()
        decided = [await self._patiently(assignment, partial(self._decide, assignment, record)) for record in records]
        stored = await self._write(assignment, decided)
        self._metrics.intake_batch_seconds.observe(time.monotonic() - began)
        return _next_offsets(stored)

    async def _decide(self, assignment: Assignment, record: Record) -> _Decided:
        try:
            submission = await prepare(record, self._topic, self._registry, self._submitter)
        except UnknownSchema as error:
            letter = _letter(assignment, record, error.code, str(error))
            return _Decided(record, replace(letter, held_seconds=self._held_seconds), None)
        except ContractError as error:
            return _Decided(record, _letter(assignment, record, error.code, str(error)), None)
        return _Decided(record, _letter(assignment, record, CONFLICT_CODE, ""), submission)

    async def _write(self, assignment: Assignment, decided: Sequence[_Decided]) -> list[Record]:
        """Write *decided* in one transaction; where Postgres refuses something of it, in halves, in order.

        Returns:
            The records that are stored: all but those of partitions that stand still at one of them, or before.
        """
        decided = [one for one in decided if not assignment.holds.stop(one.where, one.record.offset)]
        if not decided:
            return []
        try:
            await self._patiently(assignment, partial(self._send, assignment, decided))
        except (ContentRefused, TablesRefuse) as error:
            return await self._write_apart(assignment, decided, error)
        return [one.record for one in decided]

    async def _send(self, assignment: Assignment, decided: Sequence[_Decided]) -> None:
        moves = assignment.moves(_next_offsets([one.record for one in decided]))
        batch = IntakeBatch(
            self._group_id,
            records=[IntakeRecord(one.submission, one.letter) for one in decided if one.submission is not None],
            letters=[one.letter for one in decided if one.submission is None],
            positions=moves,
        )
        result = await self._batches.batch(batch)
        assignment.moved(moves)
        self._count(batch, result)

    async def _write_apart(
        self, assignment: Assignment, decided: Sequence[_Decided], refusal: ContentRefused | TablesRefuse
    ) -> list[Record]:
        if len(decided) > 1:
            middle = len(decided) // 2
            return await self._write(assignment, decided[:middle]) + await self._write(assignment, decided[middle:])
        [alone] = decided
        if isinstance(refusal, TablesRefuse) or alone.submission is None:
            # Letters are never refused for their content: the tables are not what this program takes them for.
            self._hold(assignment, alone, refusal)
            return []
        letter = _letter(assignment, alone.record, REFUSED_BY_STORE, str(refusal))
        return await self._write(assignment, [_Decided(alone.record, letter, None)])

    def _hold(self, assignment: Assignment, alone: _Decided, refusal: ContentRefused | TablesRefuse) -> None:
        """Let the partition of one record stand still, and try that record again until the tables take it.

        No constraint makes a record a dead letter: what a record can break, our own checks refuse before. So the tables
        and this program do not fit, and the hold names the record and the way out.
        """
        topic, partition, offset = alone.record.topic, alone.record.partition, alone.record.offset
        self._count_refusal(refusal)

        async def heals() -> bool:
            try:
                await self._send(assignment, [alone])
            except TablesRefuse as error:
                self._count_refusal(error)
                return False
            except StoreUnavailable:
                return False
            except ContentRefused:
                return alone.submission is not None
            except PositionMoved:
                return True
            return True

        assignment.holds.add(
            alone.where,
            offset,
            f"{topic}[{partition}] offset {offset}: {refusal}; mend the tables, or leave the record out for ever with"
            f" `workflow-runs intake skip {topic} {partition} --to {offset + 1} --reason ...`",
            heals,
        )

    def _count_refusal(self, refusal: ContentRefused | TablesRefuse) -> None:
        if isinstance(refusal, TablesRefuse):
            self._metrics.intake_refusals.labels(refusal.constraint).inc()

    async def _patiently(self, assignment: Assignment, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do *work*, again and again while what it needs is away. That tables refuse is left to the caller."""
        delay = _FIRST_DELAY_SECONDS
        try:
            while True:
                try:
                    return await work()
                except TablesRefuse:
                    raise
                except (StoreUnavailable, RegistryUnavailable, EvaluatorUnavailable) as error:
                    self._holds(str(error))
                await assignment.pause(delay * random.uniform(0.5, 1))
                delay = min(delay * 2, _LONGEST_DELAY_SECONDS)
        finally:
            self._holds(None)

    def _holds(self, waits_for: str | None) -> None:
        if (waits_for is None) != (self.waits_for is None):
            _log.log(
                logging.WARNING, "intake holds its partitions: %s" if waits_for else "intake goes on%s", waits_for or ""
            )
        self.waits_for = waits_for

    def _count(self, batch: IntakeBatch, result: BatchResult) -> None:
        for record, submitted in zip(batch.records, result.submitted, strict=True):
            born_failed = submitted.outcome is SubmitOutcome.CREATED and record.submission.error is not None
            outcome = "born_failed" if born_failed else submitted.outcome.lower()
            self._metrics.requests.labels(outcome).inc()
            if (refusal := refusal_of(submitted)) is not None:
                self._tell(record.letter, *refusal)
        for letter in batch.letters:
            if letter.held_seconds is None:
                self._metrics.requests.labels("dead_letter").inc()
                self._tell(letter, letter.code, letter.reason)
            else:
                self._metrics.requests.labels("held").inc()
                where = letter.identity
                _log.info("held: %s[%d] offset %d: %s", where.topic, where.partition, where.offset, letter.reason)
                self._on_held()

    def _tell(self, letter: DeadLetter, code: str, reason: str) -> None:
        where = letter.identity
        self._metrics.dead_letters.labels(code).inc()
        _log.warning("dead letter: %s[%d] offset %d: %s: %s", where.topic, where.partition, where.offset, code, reason)


def _letter(assignment: Assignment, record: Record, code: str, reason: str) -> DeadLetter:
    topic_id = assignment.partitions[record.topic, record.partition].topic_id
    return DeadLetter(
        identity=record.identity(assignment.cluster_id, topic_id),
        key=record.key,
        value=record.value,
        headers=record.headers,
        code=code,
        reason=reason,
    )


def _next_offsets(records: Sequence[Record]) -> dict[Partition, int]:
    return {(record.topic, record.partition): record.offset + 1 for record in records}


def _always(error: Exception) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        raise error

    return work
