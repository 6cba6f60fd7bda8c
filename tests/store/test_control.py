"""Cancelling: once, from every live status, over the holder's head."""

from uuid import uuid4

import pytest

from schemas.errors import LeaseLost
from schemas.events import Status
from store.answers import AnswerOutcome
from store.control import CancelOutcome, CancelResult
from store.notify import RELAY, cancelled
from store.records import HeldRun
from tests.store.given import HOLDER_MOVES, Given
from tests.store.samples import select_one

APPLIED = CancelResult(CancelOutcome.APPLIED, Status.CANCELLED)


async def in_state(given: Given, state: str) -> HeldRun:
    run = await given.held()
    if state == "QUEUED":
        await given.moves.release(run, target="x")
    elif state == "WAITING":
        await given.moves.park(run, step="review", step_index=0, request={}, resume_target="x")
    return run


@pytest.mark.spec(104)
@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "WAITING"])
async def test_a_live_run_is_cancelled_once_and_later_writes_are_refused(given: Given, state: str) -> None:
    run = await in_state(given, state)
    given.woken.payloads.clear()
    assert await given.cancel(run) == APPLIED
    assert given.woken.payloads == [{RELAY, cancelled(run.job_id)}]
    row = await given.row(run.job_id)
    assert (row["status"], row["error"], row["fence"]) == ("CANCELLED", "no longer needed", run.fence + 1)
    assert (row["composed_request"], row["completed_at"]) == (None, row["updated_at"])

    settled = await given.everything(run.job_id)
    assert await given.cancel(run) == CancelResult(CancelOutcome.TERMINAL, Status.CANCELLED)
    for move in HOLDER_MOVES.values():
        with pytest.raises(LeaseLost):
            await move(given.moves, run)
    assert (await given.answer(run, {})).outcome is AnswerOutcome.WRONG_STATE
    assert await given.leases("worker-b:1").claim({"x": 1, "after": 1, run.claim.target: 1}) == []
    assert await given.everything(run.job_id) == settled
    assert (await given.log(run.job_id))[-1] == "CANCELLED"
    assert (await given.log(run.job_id)).count("CANCELLED") == 1


@pytest.mark.spec(104)
@pytest.mark.parametrize("end", ["complete", "fail", "give_up"])
async def test_a_settled_run_stays_as_it_is(given: Given, end: str) -> None:
    run = await given.held()
    await HOLDER_MOVES[end](given.moves, run)
    settled = await given.everything(run.job_id)
    told = await given.cancel(run)
    assert (told.outcome, told.status) == (CancelOutcome.TERMINAL, (await given.row(run.job_id))["status"])
    assert await given.everything(run.job_id) == settled


async def test_a_foreign_tenants_run_is_as_unknown_as_one_that_is_not_there(given: Given) -> None:
    run = await given.held()
    before = await given.everything(run.job_id)
    absent = await given.control.cancel(tenant_id="default", job_id=uuid4(), reason="x")
    assert await given.cancel(run, tenant_id="elsewhere") == absent == CancelResult(CancelOutcome.UNKNOWN, None)
    assert await given.everything(run.job_id) == before


async def test_a_reason_of_any_length_is_whole_in_the_row_and_cut_in_the_event(given: Given) -> None:
    run = await given.held()
    reason = "why\0 " + "ä" * 10_000
    await given.control.cancel(tenant_id="default", job_id=run.job_id, reason=reason)
    assert (await given.row(run.job_id))["error"] == reason.replace("\0", "\N{REPLACEMENT CHARACTER}")
    told = await select_one(given.sql, "select error from event where job_id = %(id)s and type = 7", {"id": run.job_id})
    assert len(told) == 4000


@pytest.mark.parametrize(("failed_tries", "state", "attempt"), [(0, "QUEUED", 0), (2, "QUEUED", 2), (2, "RUNNING", 3)])
async def test_its_event_belongs_to_the_try_in_hand_or_the_last_one(
    given: Given, failed_tries: int, state: str, attempt: int
) -> None:
    run = await given.held()
    for _ in range(failed_tries):
        await given.moves.retry(run, step="tokenize", target="x", error="UNAVAILABLE", delay_seconds=0)
        [run] = await given.leases("worker-a:1").claim({"x": 1})
    if state == "QUEUED":
        await given.moves.release(run, target="x")
    await given.cancel(run)
    query = "select attempt from event where job_id = %(id)s and type = 7"
    assert await select_one(given.sql, query, {"id": run.job_id}) == attempt
