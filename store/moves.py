"""The holder's moves: what a worker writes about a run it has claimed.

Each names the claim's fence and owner, so that a worker that lost its lease changes nothing and announces nothing.
"""

import asyncio
from datetime import timedelta
from typing import Final

from schemas.errors import LeaseLost, MoveRefused
from schemas.events import EventType, Status
from store.committer import Committer
from store.events import error_texts, event_columns, request_detail
from store.flush import PendingMove
from store.lifecycle import Move
from store.notify import READY, RELAY
from store.records import HeldRun, MoveResult, StoredCheckpoint

_ANNOUNCED: Final = frozenset({RELAY})
_DUE: Final = frozenset({READY})
_QUIET: Final[frozenset[str]] = frozenset()
_LONGEST_DELAY_SECONDS: Final = timedelta(days=366).total_seconds()


class Moves:
    """Makes moves through the process's committer. Moves of one run keep their order, also past a cancelled wait.

    Every method raises:
        LeaseLost: the claim is no longer the newest, or was ended by another move; nothing was written. Drop the run.
        MoveRefused: what was to be written can never be stored; nothing was written and the claim still stands.
        StoreUnavailable: nothing was written and the claim still stands, unless the committer was closed meanwhile.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    async def checkpoint(self, held: HeldRun, checkpoint: StoredCheckpoint) -> None:
        """Keep a finished step, so that it never runs again. The claim goes on."""
        if checkpoint.skipped and checkpoint.response is not None:
            raise ValueError(f"step {checkpoint.step} was skipped and has a response")
        await self._settled(held)
        told = event_columns(held, EventType.STEP_CHECKPOINT, Status.RUNNING, step=checkpoint.step)
        row = {
            **told,
            "step_index": checkpoint.step_index,
            "step": checkpoint.step,
            "skipped": checkpoint.skipped,
            "response": checkpoint.response,
        }
        await self._make(held, Move.CHECKPOINT, row, _ANNOUNCED)

    async def park(self, held: HeldRun, *, step: str, step_index: int, request: object, resume_target: str) -> None:
        """Let the run wait for an answer to *step*; *request* is what is asked. It goes on at *resume_target*.

        The answer takes the next free *step_index*, whatever is said here.
        """
        await self._settled(held)
        detail = request_detail(request)
        told = event_columns(held, EventType.WAITING, Status.WAITING, step=step, detail=detail)
        row = {**told, "step": step, "resume_target": resume_target, "request": request, "detail": detail}
        await self._make(held, Move.PARK, row, _ANNOUNCED)

    async def retry(self, held: HeldRun, *, step: str | None, target: str, error: str, delay_seconds: float) -> None:
        """Count a failed try of *step* (None: of the workflow itself) and queue the run for another one later.

        Not announced. *error* is shown in the row as the last error.
        """
        await self._settled(held)
        whole, _ = error_texts(error)
        row: dict[str, object] = {
            "seq": held.seq,
            "attempt": held.try_of(step),
            "step": step,
            "target": target,
            "error": whole,
            "delay_seconds": _bounded(delay_seconds),
        }
        await self._make(held, Move.RETRY, row, _QUIET if delay_seconds > 0 else _DUE)

    async def release(self, held: HeldRun, *, target: str, delay_seconds: float = 0) -> None:
        """Hand the run back without counting anything. Without a delay it is due at once, in its old place."""
        await self._settled(held)
        lost_leases = 0 if held.seq > held.claim.seq else held.claim.lost_leases  # forgotten at the first checkpoint
        row = {"seq": held.seq, "target": target, "delay_seconds": _bounded(delay_seconds), "lost_leases": lost_leases}
        await self._make(held, Move.RELEASE, row, _QUIET if delay_seconds > 0 else _DUE)

    async def complete(self, held: HeldRun, *, result: object, verdict: str) -> None:
        """End the run as COMPLETED. *verdict* is one line of at most 500 characters."""
        await self._settled(held)
        told = event_columns(held, EventType.COMPLETED, Status.COMPLETED, step=None, verdict=verdict)
        row = {**told, "type": EventType.COMPLETED, "status": Status.COMPLETED, "verdict": verdict, "result": result}
        await self._make(held, Move.COMPLETE, row, _ANNOUNCED)

    async def fail(self, held: HeldRun, *, step: str | None, error: str) -> None:
        """End the run as FAILED. A step's failed try counts; *step* is None where the workflow itself failed."""
        await self._end_badly(held, Move.FAIL, EventType.FAILED, Status.FAILED, step, error)

    async def give_up(self, held: HeldRun, *, step: str | None, error: str) -> None:
        """End the run as DEAD, after the last try of *step* failed. The try counts."""
        await self._end_badly(held, Move.GIVE_UP, EventType.DEAD, Status.DEAD, step, error)

    async def _end_badly(
        self, held: HeldRun, move: Move, event_type: EventType, status: Status, step: str | None, error: str
    ) -> None:
        await self._settled(held)
        whole, cut = error_texts(error)
        told = event_columns(held, event_type, status, step=step, error=cut)
        failed_tries = told["attempt"] if step is not None else None
        outcome = {"type": event_type, "status": status, "step": step, "failed_tries": failed_tries}
        await self._make(held, move, {**told, **outcome, "error": whole, "event_error": cut}, _ANNOUNCED)

    async def _settled(self, held: HeldRun) -> None:
        """Wait until the run's last move has its answer: a wait for it may have been cancelled, the move was not."""
        if held.last_move is not None and not held.last_move.done():
            await asyncio.wait({held.last_move})

    async def _make(self, held: HeldRun, move: Move, row: dict[str, object], payloads: frozenset[str]) -> None:
        claim = {"job_id": str(held.job_id), "fence": held.fence, "lease_owner": held.claim.lease_owner}
        pending = PendingMove.of(move, held.job_id, {**claim, **row}, payloads, history=held.history)
        told = "event_id" in row
        leaving = move is not Move.CHECKPOINT

        def answered(answer: asyncio.Future[MoveResult]) -> None:
            if answer.exception() is not None:
                held.leaving = False
            elif told and answer.result() is not MoveResult.LEASE_LOST:
                held.seq += 1

        held.leaving = leaving
        held.last_move = self._committer.put(pending)
        held.last_move.add_done_callback(answered)
        if await asyncio.shield(held.last_move) is MoveResult.LEASE_LOST:
            raise LeaseLost(held.job_id, held.fence)


def _bounded(delay_seconds: float) -> float:
    """No delay leads past what Postgres and Python both read as a time."""
    if not 0 <= delay_seconds <= _LONGEST_DELAY_SECONDS:
        raise MoveRefused(f"a delay of {delay_seconds} s is not between 0 and a year")
    return delay_seconds
