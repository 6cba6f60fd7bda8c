"""Submitting runs: one way in, for the verb and for intake.

A run is written with its input, its first event and the event's place in the relay's queue, all in one transaction.
The id decides: whoever submits the same request again finds the run as it is, and other content under the same id is
refused, also after the run was pruned. Once runs are forgotten the record's time decides: one with an unknown id that
is so old that its run may be among them is too old to know, and never run.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg

from schemas.errors import ContentRefused, MoveRefused, StoreUnavailable, TablesRefuse
from schemas.events import Status
from store.database import CommitPoint, Database, Transaction, passes
from store.dead_letters import lock_held, refuse_held, remove_letter, write_letters
from store.events import first_event_columns
from store.notify import READY, RELAY, OnCommitted
from store.positions import move_positions
from store.records import DeadLetter, PositionMove, Submission, SubmitOutcome, Submitted

CONFLICT_CODE: Final = "conflict"
"""Code of the dead letter of a record whose job id stands for other content."""

TOO_OLD_CODE: Final = "too-old"
"""Code of the dead letter of a record with an unknown job id whose run may have been pruned and forgotten."""

_TRIES: Final = 5  # each lost race is settled for good: the next try sees what won it
_RACES: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class IntakeRecord:
    """A request from a record. `letter` is the record itself, for the case that its id stands for other content."""

    submission: Submission
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class IntakeBatch:
    """What one flush of intake writes: records and letters in the order they were read, and how far that is."""

    group_id: str
    records: Sequence[IntakeRecord] = ()
    letters: Sequence[DeadLetter] = ()
    positions: Sequence[PositionMove] = ()


@dataclass(frozen=True, slots=True)
class BatchResult:
    """`submitted` has one entry per record, in their order. `letters` counts those that are new, conflicts included."""

    submitted: tuple[Submitted, ...]
    letters: int


class _RaceLost(Exception):
    """Another transaction changed what this one had decided on; run it again."""


class Submits:
    """Writes runs. A call of unknown outcome is repeated as it is: it finds what it wrote, and nothing doubles."""

    def __init__(self, database: Database, *, on_committed: OnCommitted, commit_point: CommitPoint = passes) -> None:
        """`commit_point` is awaited at `submit.before_commit` and `.after_commit`, for a batch at `intake.…`."""
        self._database = database
        self._on_committed = on_committed
        self._commit_point = commit_point

    async def submit(self, submission: Submission) -> Submitted:
        """Make *submission* a run, QUEUED or born FAILED, unless its id is known.

        Raises:
            ContentRefused: Postgres cannot hold something of it; it never will.
            StoreUnavailable: no usable answer; repeat the call.
        """

        async def work(transaction: Transaction) -> list[Submitted]:
            return await _write_runs(transaction, [submission])

        submitted = await self._commit("submit", work)
        self._announce([submission], submitted, letters=0)
        return submitted[0]

    async def known(self, job_id: UUID, tenant_id: str, fingerprint: bytes) -> Submitted | None:
        """Say what became of a request under *job_id* before; None when the id is unknown. Nothing is written.

        A `submit` that follows decides by itself: this answer only saves the work of preparing it.

        Raises:
            StoreUnavailable: no usable answer; repeat the call.
        """
        asked = _asked(0, job_id, tenant_id, fingerprint, is_new=False)
        rows = await self._database.rows("submit/known", {"asked": json.dumps([asked])})
        return _found(job_id, rows[0], taken_back=False) if rows else None

    async def batch(self, batch: IntakeBatch) -> BatchResult:
        """Write *batch* in one transaction: positions, runs, dead letters, or none of them.

        A record that conflicts or is too old becomes its dead letter in the same transaction. Runs are created in the
        order of the records: `created_at` is the transaction's time plus a microsecond per place.

        Raises:
            PositionMoved: somebody else moved a position; reassign before anything else.
            ContentRefused: Postgres cannot hold something of a record. Send the batch again in two halves, in order,
                each with the positions that it reaches; a record that is refused alone goes as a letter of a batch
                without records, which is never refused for its content.
            StoreUnavailable: no usable answer; repeat the call.
        """
        submissions = [record.submission for record in batch.records]

        async def work(transaction: Transaction) -> BatchResult:
            await move_positions(transaction, batch.group_id, batch.positions)
            submitted = await _write_runs(transaction, submissions)
            letters = [*batch.letters, *_refused(batch.records, submitted)]
            return BatchResult(tuple(submitted), await write_letters(transaction, letters))

        result = await self._commit("intake", work)
        self._announce(submissions, result.submitted, letters=result.letters)
        return result

    async def submit_held(self, letter_id: int, submission: Submission) -> Submitted | None:
        """Make the record of a held letter a run, and take its letter away, in one transaction.

        Where the record conflicts or is too old its letter is final, with that code. None: the letter is not held any
        more, or somebody else has it in hand; nothing was written.

        Raises:
            ContentRefused: Postgres cannot hold something of it; the letter is still held.
            StoreUnavailable: no usable answer; repeat the call.
        """

        async def work(transaction: Transaction) -> Submitted | None:
            if not await lock_held(transaction, letter_id):
                return None
            [submitted] = await _write_runs(transaction, [submission])
            if (refusal := refusal_of(submitted)) is None:
                await remove_letter(transaction, letter_id)
            else:
                await refuse_held(transaction, letter_id, *refusal)
            return submitted

        submitted = await self._commit("held", work)
        if submitted is not None:
            self._announce([submission], [submitted], letters=int(refusal_of(submitted) is not None))
        return submitted

    async def _commit(self, move: str, work: Callable[[Transaction], Awaitable[_Result]]) -> _Result:
        """Run *work* in a transaction, again after a lost race."""
        for _ in range(_TRIES):
            try:
                async with self._database.transaction() as transaction:
                    result = await work(transaction)
                    await self._commit_point(f"{move}.before_commit")
                await self._commit_point(f"{move}.after_commit")
            except (_RaceLost, psycopg.errors.UniqueViolation) as error:
                lost: Exception = error
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, _RACES):
                    raise
                lost = error
            except psycopg.IntegrityError as error:
                raise TablesRefuse(
                    f"the tables refuse what this program writes: {error.diag.message_primary}",
                    constraint=error.diag.constraint_name or "",
                ) from error
            except MoveRefused as error:
                raise ContentRefused(str(error)) from error
            else:
                return result
        raise StoreUnavailable(f"a race was lost {_TRIES} times: {lost}") from lost

    def _announce(self, submissions: Sequence[Submission], submitted: Sequence[Submitted], *, letters: int) -> None:
        created = [
            submission.error is None
            for submission, answer in zip(submissions, submitted, strict=True)
            if answer.outcome is SubmitOutcome.CREATED
        ]
        payloads = [READY] if any(created) else []
        if created or letters:
            payloads.append(RELAY)
        if payloads:
            self._on_committed(payloads)


async def _write_runs(transaction: Transaction, submissions: Sequence[Submission]) -> list[Submitted]:
    """Insert what is new, then look in a second statement at what is not, was pruned, or is too old to know."""
    created = await _insert(transaction, submissions)
    known = await _look(transaction, submissions, created)
    not_new = [created[ordinal] for ordinal in known if ordinal in created]
    if not_new:
        await transaction.execute("submit/take_back", {"rows": json.dumps(not_new, default=str)})
    gone = {row["job_id"] for row in not_new}
    return [
        _answer(submission, ordinal in created, known.get(ordinal), taken_back=submission.job_id in gone)
        for ordinal, submission in enumerate(submissions)
    ]


async def _insert(transaction: Transaction, submissions: Sequence[Submission]) -> dict[int, dict[str, Any]]:
    """Insert the runs whose ids are not there; answer their places in the relay's queue by ordinal.

    Of several submissions with one id the first is inserted; the others are then compared with it like any known run.
    """
    first: dict[UUID, int] = {}
    rows: list[dict[str, object]] = []
    for ordinal, submission in enumerate(submissions):
        if first.setdefault(submission.job_id, ordinal) == ordinal:
            rows.append(_row_of(ordinal, submission))
    if not rows:
        return {}
    created: list[dict[str, Any]] = await transaction.rows("submit/submit", {"rows": json.dumps(rows), "now": None})
    return {first[row["job_id"]]: row for row in created}


async def _look(
    transaction: Transaction, submissions: Sequence[Submission], created: Mapping[int, object]
) -> dict[int, dict[str, Any]]:
    asked = [
        {
            **_asked(ordinal, each.job_id, each.tenant_id, each.fingerprint, is_new=ordinal in created),
            "record_time": each.record_time and each.record_time.isoformat(),
        }
        for ordinal, each in enumerate(submissions)
    ]
    if not asked:
        return {}
    rows: list[dict[str, Any]] = await transaction.rows("submit/known", {"asked": json.dumps(asked)})
    return {row["ordinal"]: row for row in rows}


def _asked(ordinal: int, job_id: UUID, tenant_id: str, fingerprint: bytes, *, is_new: bool) -> dict[str, object]:
    return {
        "ordinal": ordinal,
        "job_id": str(job_id),
        "tenant_id": tenant_id,
        "fingerprint": fingerprint.hex(),
        "is_new": is_new,
    }


def _answer(submission: Submission, is_new: bool, known: Mapping[str, Any] | None, *, taken_back: bool) -> Submitted:
    if known is not None:
        return _found(submission.job_id, known, taken_back=taken_back)
    if not is_new:
        raise _RaceLost(f"run {submission.job_id} was there and is gone")
    status = Status.QUEUED if submission.error is None else Status.FAILED
    return Submitted(submission.job_id, SubmitOutcome.CREATED, status)


def _found(job_id: UUID, known: Mapping[str, Any], *, taken_back: bool) -> Submitted:
    """Judge a row of submit/known.sql. With *taken_back* the run in it is one that this transaction removes again.

    Of several records in a batch with one id, all are too old when the first is: what they ask for may have been done.
    """
    if known["run_status"] is not None and not taken_back:
        is_same, status, outcome = known["run_same"], known["run_status"], SubmitOutcome.EXISTING
    elif known["pruned_status"] is not None:
        is_same, status, outcome = known["pruned_same"], known["pruned_status"], SubmitOutcome.PRUNED
    else:
        return Submitted(job_id, SubmitOutcome.TOO_OLD, None)
    if not is_same:
        return Submitted(job_id, SubmitOutcome.CONFLICT, None)
    return Submitted(job_id, outcome, Status(status))


def refusal_of(submitted: Submitted) -> tuple[str, str] | None:
    """Return code and reason of the dead letter of a record that was answered so; None where it needs none."""
    match submitted.outcome:
        case SubmitOutcome.CONFLICT:
            return CONFLICT_CODE, f"job {submitted.job_id} stands for other content: nothing was changed"
        case SubmitOutcome.TOO_OLD:
            return (
                TOO_OLD_CODE,
                f"job {submitted.job_id} is unknown, and runs as old as its record are forgotten: it may have run",
            )
        case _:
            return None


def _refused(records: Sequence[IntakeRecord], submitted: Sequence[Submitted]) -> list[DeadLetter]:
    refusals = [(record.letter, refusal_of(answer)) for record, answer in zip(records, submitted, strict=True)]
    return [replace(letter, code=refusal[0], reason=refusal[1]) for letter, refusal in refusals if refusal is not None]


def _row_of(ordinal: int, submission: Submission) -> dict[str, object]:
    return {
        **first_event_columns(submission),
        "ordinal": ordinal,
        "job_id": str(submission.job_id),
        "tenant_id": submission.tenant_id,
        "workflow_name": submission.workflow_name,
        "fingerprint": submission.fingerprint.hex(),
        "definition_hash": submission.definition_hash.hex() if submission.definition_hash is not None else None,
        "engine_level": submission.engine_level,
        "steps_total": submission.steps_total,
        "max_attempts": submission.max_attempts,
        "target": submission.target,
        "input": submission.input,
        "labels": submission.labels and dict(submission.labels),
        "business_key": submission.business_key,
        "trace_context": submission.trace_context,
        "record_time": submission.record_time and submission.record_time.isoformat(),
        "run_deadline_ms": submission.run_deadline_ms,
    }
