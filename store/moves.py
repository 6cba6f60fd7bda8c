"""The holder's moves: what a worker writes about a run it has claimed.

Each names the claim's fence and owner, so that a worker that lost its lease changes nothing and announces nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Final

from schemas.errors import LeaseLost, MoveRefused
from schemas.events import EventType, Status
from store.committer import Committer
from store.events import error_texts, event_columns, event_detail, request_detail
from store.flush import PendingMove
from store.handler_transactions import HandlerTransaction
from store.lifecycle import Move
from store.notify import READY, RELAY
from store.records import HeldRun, MoveResult, StoredCheckpoint, StoredItem
from store.step_records import StepRecord

_ANNOUNCED: Final = frozenset({RELAY})
_QUEUED: Final = frozenset({READY})
_UNHEARD: Final[frozenset[str]] = frozenset()
_STAYING: Final = frozenset({Move.ITEM, Move.CHECKPOINT})
_LONGEST_DELAY_SECONDS: Final = timedelta(days=366).total_seconds()

Put = Callable[[PendingMove], "asyncio.Future[MoveResult]"]
"""Takes a move, and returns the future of its answer, which is never cancelled."""


class Moves:
    """Makes moves through the process's committer. Moves of one run keep their order, also past a cancelled wait.

    Every method raises:
        LeaseLost: the claim is no longer the newest, or was ended by another move; nothing was written. Drop the run.
        MoveRefused: what was to be written can never be stored; nothing was written and the claim still stands.
        StoreUnavailable: nothing was written and the claim still stands, unless the committer was closed meanwhile.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    async def items(self, held: HeldRun, *, step: str, items: Sequence[StoredItem], new_items: int = 0) -> None:
        """Keep what became of some items of *step*, so that those that are final never run again. The claim goes on.

        Not announced. No claim may write an item twice. The first move of a step says in *new_items* how many it has.
        """
        await self._settled(held)
        row: dict[str, object] = {
            "step": step,
            "new_items": new_items,
            "first_item": items[0].item_index,
            "items": [asdict(item) for item in items],
        }
        await self._make(held, Move.ITEM, row, _UNHEARD)

    async def checkpoint(
        self,
        held: HeldRun,
        checkpoint: StoredCheckpoint,
        *,
        detail: object | None = None,
        record: StepRecord | None = None,
        transaction: HandlerTransaction | None = None,
    ) -> None:
        """Keep a finished step, so that it never runs again, and the record that it sends. The claim goes on.

        *detail* is told in the step's event. With *transaction* it is committed together with what the step's handler
        wrote there, which raises what `HandlerTransaction.put` says as well.
        """
        if checkpoint.skipped and checkpoint.response is not None:
            raise ValueError(f"step {checkpoint.step} was skipped and has a response")
        await self._settled(held)
        told_detail = event_detail(detail) if detail is not None else None
        told = event_columns(held, EventType.STEP_CHECKPOINT, Status.RUNNING, step=checkpoint.step, detail=told_detail)
        row = {
            **told,
            "step_index": checkpoint.step_index,
            "step": checkpoint.step,
            "skipped": checkpoint.skipped,
            "response": checkpoint.response,
            "detail": told_detail,
        }
        put = transaction.put if transaction is not None else None
        await self._make(held, Move.CHECKPOINT, row, _ANNOUNCED, record, put)

    async def park(
        self,
        held: HeldRun,
        *,
        step: str,
        step_index: int,
        request: object,
        resume_target: str,
        answer_within_ms: int | None = None,
        remind_after_ms: int | None = None,
        record: StepRecord | None = None,
    ) -> None:
        """Let the run wait for an answer to *step*; *request* is what is asked. It goes on at *resume_target*.

        The answer takes the next free *step_index*, whatever is said here. Without an answer in *answer_within_ms* the
        run fails; after *remind_after_ms* its event is told once more. *record* is sent with the park.
        """
        await self._settled(held)
        detail = request_detail(request)
        told = event_columns(held, EventType.WAITING, Status.WAITING, step=step, detail=detail)
        due: dict[str, object] = {"answer_in_ms": answer_within_ms}
        if remind_after_ms is not None:
            due |= {"due_move": Move.REMIND, "due_in_ms": remind_after_ms}
        elif answer_within_ms is not None:
            due |= {"due_move": Move.OVERDUE, "due_in_ms": answer_within_ms}
        row = {**told, "step": step, "resume_target": resume_target, "request": request, "detail": detail, **due}
        await self._make(held, Move.PARK, row, _ANNOUNCED, record)

    async def park_until(
        self, held: HeldRun, *, step: str, resume_target: str, at: datetime | None = None, after_ms: int | None = None
    ) -> None:
        """Let the run wait for a time, then go on at *resume_target*: for *at*, or *after_ms* from now on."""
        await self._settled(held)
        detail = event_detail({"until": at.isoformat()} if at is not None else {"forMs": after_ms})
        told = event_columns(held, EventType.WAITING, Status.WAITING, step=step, detail=detail)
        due = {"due_move": Move.WAKE, "due_at": at and at.isoformat(), "due_in_ms": after_ms}
        row = {**told, "step": step, "resume_target": resume_target, "detail": detail, **due}
        await self._make(held, Move.PARK, row, _ANNOUNCED)

    async def retry(
        self,
        held: HeldRun,
        *,
        step: str | None,
        target: str,
        error: str,
        delay_seconds: float,
        failed_tries: int | None = None,
    ) -> None:
        """Count a failed try of *step* (None: of the workflow itself) and queue the run for another one later.

        Not announced. *error* is shown in the row as the last error. *failed_tries* is given where they are not those
        of the whole step, but of its items.
        """
        await self._settled(held)
        whole, _ = error_texts(error)
        row: dict[str, object] = {
            "seq": held.seq,
            "attempt": held.try_of(step) if failed_tries is None else failed_tries,
            "step": step,
            "target": target,
            "error": whole,
            "delay_seconds": _bounded(delay_seconds),
        }
        await self._make(held, Move.RETRY, row, _QUEUED)

    async def release(self, held: HeldRun, *, target: str, delay_seconds: float = 0) -> None:
        """Hand the run back without counting anything. Without a delay it is due at once, in its old place."""
        await self._settled(held)
        progress = held.seq > held.claim.seq or held.kept_items
        lost_leases = 0 if progress else held.claim.lost_leases
        row = {"seq": held.seq, "target": target, "delay_seconds": _bounded(delay_seconds), "lost_leases": lost_leases}
        await self._make(held, Move.RELEASE, row, _QUEUED)

    async def complete(self, held: HeldRun, *, result: object, verdict: str) -> None:
        """End the run as COMPLETED. *verdict* is one line of at most 500 characters."""
        await self._settled(held)
        told = event_columns(held, EventType.COMPLETED, Status.COMPLETED, step=None, verdict=verdict)
        row = {**told, "type": EventType.COMPLETED, "status": Status.COMPLETED, "verdict": verdict, "result": result}
        await self._make(held, Move.COMPLETE, row, _ANNOUNCED)

    async def fail(self, held: HeldRun, *, step: str | None, error: str, detail: object | None = None) -> None:
        """End the run as FAILED. A step's failed try counts; *step* is None where the workflow itself failed.

        *detail* is told in the event.
        """
        await self._end_badly(held, Move.FAIL, EventType.FAILED, Status.FAILED, step, error, detail)

    async def give_up(self, held: HeldRun, *, step: str | None, error: str) -> None:
        """End the run as DEAD, after the last try of *step* failed. The try counts."""
        await self._end_badly(held, Move.GIVE_UP, EventType.DEAD, Status.DEAD, step, error)

    async def _end_badly(
        self,
        held: HeldRun,
        move: Move,
        event_type: EventType,
        status: Status,
        step: str | None,
        error: str,
        detail: object | None = None,
    ) -> None:
        await self._settled(held)
        whole, cut = error_texts(error)
        told_detail = event_detail(detail) if detail is not None else None
        told = event_columns(held, event_type, status, step=step, error=cut, detail=told_detail)
        failed_tries = told["attempt"] if step is not None else None
        outcome = {"type": event_type, "status": status, "step": step, "failed_tries": failed_tries}
        texts = {"error": whole, "event_error": cut, "detail": told_detail}
        await self._make(held, move, {**told, **outcome, **texts}, _ANNOUNCED)

    async def _settled(self, held: HeldRun) -> None:
        """Wait until the run's last move has its answer: a wait for it may have been cancelled, the move was not."""
        if held.last_move is not None and not held.last_move.done():
            await asyncio.wait({held.last_move})

    async def _make(
        self,
        held: HeldRun,
        move: Move,
        row: dict[str, object],
        payloads: frozenset[str],
        record: StepRecord | None = None,
        put: Put | None = None,
    ) -> None:
        claim = {"job_id": str(held.job_id), "fence": held.fence, "lease_owner": held.claim.lease_owner}
        sent = {**claim, "seq": row["seq"], **record.row()} if record is not None else None
        pending = PendingMove.of(move, held.job_id, {**claim, **row}, payloads, history=held.history, record=sent)
        told = "event_id" in row
        leaving = move not in _STAYING

        def answered(answer: asyncio.Future[MoveResult]) -> None:
            if answer.exception() is not None:
                held.leaving = False
            elif answer.result() is not MoveResult.LEASE_LOST:
                held.seq += told
                held.kept_items |= move is Move.ITEM

        held.leaving = leaving
        held.last_move = (put or self._committer.put)(pending)
        held.last_move.add_done_callback(answered)
        if await asyncio.shield(held.last_move) is MoveResult.LEASE_LOST:
            raise LeaseLost(held.job_id, held.fence)


def _bounded(delay_seconds: float) -> float:
    """No delay leads past what Postgres and Python both read as a time."""
    if not 0 <= delay_seconds <= _LONGEST_DELAY_SECONDS:
        raise MoveRefused(f"a delay of {delay_seconds} s is not between 0 and a year")
    return delay_seconds
