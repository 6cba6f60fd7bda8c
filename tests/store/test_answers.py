"""Answers to parked steps: the right one wakes the run, every other changes nothing and is told why."""

import json
from uuid import uuid4

import pytest

from schemas.errors import MoveRefused
from schemas.events import Status
from store.answers import AnswerOutcome, AnswerResult
from store.notify import READY, RELAY
from store.records import StoredCheckpoint
from tests.store.given import Given, finished
from tests.store.samples import select_one


@pytest.mark.spec(83)
async def test_a_parked_run_waits_without_a_lease_and_shows_what_it_asks(given: Given) -> None:
    run = await given.held()
    request = {"text": "a" * 20_000}
    await given.moves.park(run, step="review", step_index=0, request=request, resume_target="after")
    row = await given.row(run.job_id)
    assert (row["status"], row["outstanding_step"], row["composed_request"]) == ("WAITING", "review", request)
    assert (row["lease_owner"], row["lease_until"], row["next_target"]) == (None, None, None)
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review"]
    assert await given.leases("worker-b:1").claim({run.claim.target: 1, "after": 1}) == []
    assert await given.leases("worker-b:1").targets() == {}


async def test_a_waiting_event_carries_the_request_where_it_fits(given: Given) -> None:
    small, large = await given.many_held(2)
    await given.moves.park(small, step="review", step_index=0, request={"text": "ä"}, resume_target="x")
    await given.moves.park(large, step="review", step_index=0, request={"text": "ä" * 5000}, resume_target="x")
    query = "select detail from event where job_id = %(id)s and type = 3"
    assert await select_one(given.sql, query, {"id": small.job_id}) == '{"request":{"text":"ä"}}'
    assert await select_one(given.sql, query, {"id": large.job_id}) == '{"request_bytes": 10023}'


@pytest.mark.spec(84)
async def test_the_right_answer_is_kept_as_the_next_checkpoint_and_queues_the_run(given: Given) -> None:
    run = await given.held()
    await given.moves.checkpoint(run, finished(0, "tokenize"))
    await given.moves.park(run, step="review", step_index=1, request={"q": 1}, resume_target="after")
    given.woken.payloads.clear()

    told = await given.answer(run, {"approved": True, "by": 2**60})

    assert told == AnswerResult(AnswerOutcome.APPLIED, Status.QUEUED)
    assert given.woken.payloads == [{READY, RELAY}]
    row = await given.row(run.job_id)
    assert (row["status"], row["outstanding_step"], row["composed_request"]) == ("QUEUED", None, None)
    assert (row["next_target"], row["resume_target"]) == ("after", None)
    assert await given.log(run.job_id) == [
        "ACCEPTED",
        "STEP_CHECKPOINT tokenize",
        "WAITING review",
        "STEP_CHECKPOINT review",
    ]
    [again] = await given.leases("worker-b:1").claim({"after": 1})
    assert again.claim.checkpoints[1] == StoredCheckpoint(
        1, "review", skipped=False, response={"approved": True, "by": 2**60}
    )
    assert again.seq == 4


@pytest.mark.spec(85)
async def test_the_same_answer_again_is_told_the_status_now_and_adds_nothing(given: Given) -> None:
    run = await given.parked()
    await given.answer(run, {"approved": True})
    before = await given.everything(run.job_id)
    again, different = await given.answer(run, {"approved": True}), await given.answer(run, {"approved": False})
    assert again == AnswerResult(AnswerOutcome.ALREADY_DONE, Status.QUEUED, same=True)
    assert different == AnswerResult(AnswerOutcome.ALREADY_DONE, Status.QUEUED, same=False)
    rejected = await given.reject_answer(run)
    assert rejected.outcome is AnswerOutcome.ALREADY_DONE
    assert await given.everything(run.job_id) == before

    [held] = await given.leases("worker-b:1").claim({"after": 1})
    await given.moves.complete(held, result={}, verdict="1 steps, output x")
    assert (await given.answer(run, {"approved": True})).status is Status.COMPLETED


@pytest.mark.spec(86)
async def test_the_wrong_step_is_told_the_status_and_what_is_waited_for(given: Given) -> None:
    run = await given.parked()
    before = await given.everything(run.job_id)
    told = await given.answer(run, {}, step="approve")
    assert told == AnswerResult(AnswerOutcome.WRONG_STATE, Status.WAITING, outstanding_step="review")
    assert await given.everything(run.job_id) == before


async def test_a_run_that_waits_for_nobody_takes_no_answer(given: Given) -> None:
    run = await given.held()
    assert await given.answer(run, {}) == AnswerResult(AnswerOutcome.WRONG_STATE, Status.RUNNING)
    await given.cancel(run)
    assert await given.answer(run, {}) == AnswerResult(AnswerOutcome.WRONG_STATE, Status.CANCELLED)


async def test_a_foreign_tenants_run_is_as_unknown_as_one_that_is_not_there(given: Given) -> None:
    run = await given.parked()
    before = await given.everything(run.job_id)
    foreign = await given.answer(run, {}, tenant_id="elsewhere")
    absent = await given.answers.answer(tenant_id="default", job_id=uuid4(), step="review", response={})
    assert foreign == absent == AnswerResult(AnswerOutcome.UNKNOWN, None)
    assert await given.reject_answer(run, tenant_id="elsewhere") == absent
    assert await given.everything(run.job_id) == before


async def test_an_answer_that_broke_its_rules_fails_the_run_and_leaves_no_checkpoint(given: Given) -> None:
    run = await given.parked()
    told = await given.reject_answer(run)
    assert told == AnswerResult(AnswerOutcome.APPLIED, Status.FAILED)
    row = await given.row(run.job_id)
    assert (row["status"], row["error"], row["checkpoints"]) == ("FAILED", "VALIDATION: broken", [])
    assert (row["composed_request"], row["next_target"], row["completed_at"] is None) == (None, None, False)
    assert (row["attempt"], row["attempt_step"]) == (1, "review")
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review", "FAILED review"]


async def test_the_event_of_an_answer_that_broke_its_rules_tells_which(given: Given) -> None:
    run = await given.parked()
    detail = {"violations": [{"path": "ä", "ruleId": "r", "message": "m"}], "violationsTotal": 1}
    await given.answers.reject_answer(
        tenant_id="default", job_id=run.job_id, step="review", error="VALIDATION: ä: m", detail=detail
    )
    query = "select detail from event where job_id = %(id)s and type = 5"
    assert json.loads(await select_one(given.sql, query, {"id": run.job_id})) == detail


@pytest.mark.parametrize("response", [{"text": "a\0b"}, {"text": "\ud800"}, {"number": float("nan")}])
async def test_an_answer_that_cannot_be_stored_is_refused_and_the_run_still_waits(
    given: Given, response: object
) -> None:
    run = await given.parked()
    before = await given.everything(run.job_id)
    with pytest.raises(MoveRefused):
        await given.answer(run, response)
    assert await given.everything(run.job_id) == before
    assert (await given.answer(run, {})).outcome is AnswerOutcome.APPLIED


async def test_an_answer_that_is_null_is_an_answer(given: Given) -> None:
    run = await given.parked()
    assert (await given.answer(run, None)).outcome is AnswerOutcome.APPLIED
    assert (await given.answer(run, None)).same is True
    [held] = await given.leases("worker-b:1").claim({"after": 1})
    assert held.claim.checkpoints == (StoredCheckpoint(0, "review", skipped=False, response=None),)


async def test_parks_and_claims_leave_the_allowance_of_tries_alone(given: Given) -> None:
    run = await given.held()
    for step in ("first", "second", "third"):
        await given.moves.park(run, step=step, step_index=0, request={}, resume_target="after")
        await given.answer(run, {}, step=step)
        [run] = await given.leases("worker-a:1").claim({"after": 1})
    assert (run.claim.attempt, run.try_of("embed")) == (0, 1)
