"""Answers to parked steps: what a person, or another system, says to a run that waits."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast
from uuid import UUID

from schemas.errors import MoveRefused
from schemas.events import Status
from schemas.ids import uuid7
from store.database import CommitPoint, Database, passes
from store.events import error_texts, event_detail
from store.notify import READY, RELAY, OnCommitted


class AnswerOutcome(StrEnum):
    """What became of an answer."""

    APPLIED = "APPLIED"
    ALREADY_DONE = "ALREADY_DONE"  # the step has its checkpoint
    WRONG_STATE = "WRONG_STATE"  # the run waits for another step, or for none
    UNKNOWN = "UNKNOWN"  # no such run, or another tenant's


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """`status` is the run's status now. `same`, with ALREADY_DONE: whether the answer equals the one that stands."""

    outcome: AnswerOutcome
    status: Status | None
    outstanding_step: str | None = None
    same: bool | None = None


class Answers:
    """Applies answers. The first one decides, whoever sends it; a repeat changes nothing and is told so."""

    def __init__(self, database: Database, *, on_committed: OnCommitted, commit_point: CommitPoint = passes) -> None:
        """*commit_point* is awaited at `answer.before_commit` and `answer.after_commit`."""
        self._database = database
        self._on_committed = on_committed
        self._commit_point = commit_point

    async def answer(self, *, tenant_id: str, job_id: UUID, step: str, response: object) -> AnswerResult:
        """Keep *response* as the checkpoint of the step that the run waits for, and queue the run.

        Raises:
            MoveRefused: *response* can never be stored; the run still waits.
            StoreUnavailable: whether it was applied is unknown. Send it again: a repeat is told ALREADY_DONE.
        """
        return await self._apply(tenant_id, job_id, step, {"response": response})

    async def reject_answer(
        self, *, tenant_id: str, job_id: UUID, step: str, error: str, detail: object | None = None
    ) -> AnswerResult:
        """End the run as FAILED because the answer to the step it waits for broke its rules. No checkpoint is kept.

        *detail* is told in the event, which has room for 8 kB of it.

        Raises:
            MoveRefused: *detail* is no JSON; the run still waits.
            StoreUnavailable: whether it was applied is unknown. Send it again: a repeat is told WRONG_STATE.
        """
        whole, cut = error_texts(error)
        told = event_detail(detail) if detail is not None else None
        return await self._apply(tenant_id, job_id, step, {"error": whole, "event_error": cut, "detail": told})

    async def _apply(self, tenant_id: str, job_id: UUID, step: str, content: Mapping[str, object]) -> AnswerResult:
        move = {"job_id": str(job_id), "tenant_id": tenant_id, "step": step, "event_id": str(uuid7()), **content}
        try:
            params = {"moves": json.dumps([move], allow_nan=False), "now": None}
        except (ValueError, RecursionError) as error:
            raise MoveRefused(f"the answer is no JSON: {error}") from error
        async with self._database.transaction() as transaction:
            await transaction.rows("moves/lock", params)
            [row] = await transaction.rows("answers/answer", params)
            await self._commit_point("answer.before_commit")
        await self._commit_point("answer.after_commit")
        outcome = AnswerOutcome(cast(str, row["outcome"]))
        status = Status(cast(str, row["status"])) if row["status"] is not None else None
        if outcome is AnswerOutcome.APPLIED:
            self._on_committed({READY, RELAY} if status is Status.QUEUED else {RELAY})
            return AnswerResult(outcome, status)
        if outcome is AnswerOutcome.ALREADY_DONE:
            return AnswerResult(outcome, status, same=cast(bool, row["same"]))
        return AnswerResult(outcome, status, outstanding_step=cast("str | None", row["outstanding_step"]))
