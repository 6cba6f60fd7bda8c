"""A batch of request records: each becomes a run or a dead letter, all in one transaction with the positions."""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from schemas.errors import ContentRefused, ContractError, RegistryUnavailable, StoreUnavailable
from schemas.requests import Request, Unusable
from schemas.topics import DEFAULT_TENANT, Topic
from store.records import DeadLetter, Submission, SubmitOutcome
from store.submit import CONFLICT_CODE, BatchResult, IntakeBatch, IntakeRecord
from streams.agents.decode import Registry, decode, record_time, trace_context
from streams.kafka.assignment import Assignment, Partition
from streams.kafka.records import Record
from streams.metrics import Metrics
from streams.verbs.submit import Origin

_log = logging.getLogger(__name__)

REFUSED_BY_STORE: Final = "refused-by-store"
"""Code of the dead letter of a record that Postgres cannot hold although our own checks passed it."""

_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 2.0

_Result = TypeVar("_Result")


class Submitter(Protocol):
    """Resolves a request; see `streams.verbs.submit`. Raises StoreUnavailable, and nothing for bad content."""

    async def prepare(self, request: Request | Unusable, origin: Origin) -> Submission: ...


class Batches(Protocol):
    """Writes a batch; see `store.submit.Submits`."""

    async def batch(self, batch: IntakeBatch) -> BatchResult: ...


@dataclass(frozen=True, slots=True)
class _Decided:
    """A record, and what it becomes: a submission, or nothing but its letter."""

    record: Record
    letter: DeadLetter
    submission: Submission | None


class Accept:
    """Stores batches of one topic. Knows nothing of Faust.

    An outage, of Postgres or of the schema registry where it must be asked, is waited out for as long as the batch's
    assignment lasts: nothing of a batch is skipped, and nothing behind it is begun.
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
    ) -> None:
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

        Raises:
            AssignmentEnded: the partitions were taken away meanwhile. Drop the batch; it is read again.
            PositionMoved: somebody else moved a position; the part of the batch before it may be stored. Reassign.
        """
        began = time.monotonic()
        decided = [await self._patiently(assignment, partial(self._decide, assignment, record)) for record in records]
        await self._write(assignment, decided)
        self._metrics.intake_batch_seconds.observe(time.monotonic() - began)
        return _next_offsets(records)

    async def _decide(self, assignment: Assignment, record: Record) -> _Decided:
        try:
            request = await decode(record, self._topic.formats, self._registry)
        except ContractError as error:
            return _Decided(record, _letter(assignment, record, error.code, str(error)), None)
        origin = Origin(
            tenant_id=self._topic.tenant or DEFAULT_TENANT,
            trace_context=trace_context(record),
            record_time=record_time(record),
        )
        submission = await self._submitter.prepare(request, origin)
        return _Decided(record, _letter(assignment, record, CONFLICT_CODE, ""), submission)

    async def _write(self, assignment: Assignment, decided: Sequence[_Decided]) -> None:
        """Write *decided* in one transaction; where Postgres refuses the content of something, in halves, in order."""
        moves = assignment.moves(_next_offsets([one.record for one in decided]))
        batch = IntakeBatch(
            self._group_id,
            records=[IntakeRecord(one.submission, one.letter) for one in decided if one.submission is not None],
            letters=[one.letter for one in decided if one.submission is None],
            positions=moves,
        )
        try:
            result = await self._patiently(assignment, partial(self._batches.batch, batch))
        except ContentRefused as error:
            await self._write_apart(assignment, decided, error)
            return
        assignment.moved(moves)
        self._count(batch, result)

    async def _write_apart(self, assignment: Assignment, decided: Sequence[_Decided], refusal: ContentRefused) -> None:
        if len(decided) > 1:
            middle = len(decided) // 2
            await self._write(assignment, decided[:middle])
            await self._write(assignment, decided[middle:])
            return
        [alone] = decided
        letter = _letter(assignment, alone.record, REFUSED_BY_STORE, str(refusal))
        if alone.submission is None:
            # Letters are never refused for their content: the tables are not what this program takes them for.
            await self._patiently(assignment, _always(StoreUnavailable(f"a dead letter is refused: {refusal}")))
        await self._write(assignment, [_Decided(alone.record, letter, None)])

    async def _patiently(self, assignment: Assignment, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do *work*, again and again while something that it needs is away."""
        delay = _FIRST_DELAY_SECONDS
        try:
            while True:
                try:
                    return await work()
                except (StoreUnavailable, RegistryUnavailable) as error:
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
            if submitted.outcome is SubmitOutcome.CONFLICT:
                self._tell(record.letter, CONFLICT_CODE, f"job {submitted.job_id} stands for other content")
        for letter in batch.letters:
            self._metrics.requests.labels("dead_letter").inc()
            self._tell(letter, letter.code, letter.reason)

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
