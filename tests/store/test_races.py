"""Two transactions on one run, one of them held open: whoever comes second sees what the first one did."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import LeaseLost
from schemas.events import Status
from schemas.ids import uuid7
from store.answers import AnswerOutcome
from store.control import CancelOutcome
from store.database import Transaction
from store.records import HeldRun
from tests.store.given import Given, finished, worker
from tests.store.samples import until_blocked


def params(**row: Any) -> dict[str, object]:
    """The parameters of a statement that takes moves, for one."""
    return {"moves": json.dumps([row], default=str), "now": None}


def checkpoint_row(run: HeldRun) -> dict[str, object]:
    return {
        "job_id": run.job_id,
        "fence": run.fence,
        "lease_owner": worker(run),
        "seq": run.seq + 1,
        "event_id": uuid7(),
        "attempt": 1,
        "step_index": 0,
        "step": "tokenize",
        "skipped": False,
        "response": {},
    }


async def open_checkpoint(transaction: Transaction, run: HeldRun) -> None:
    assert await transaction.rows("moves/checkpoint", params(**checkpoint_row(run)))


async def open_cancel(transaction: Transaction, job_id: UUID) -> None:
    row = params(job_id=job_id, tenant_id="default", event_id=uuid7(), reason="no", event_reason="no")
    await transaction.rows("moves/lock", row)
    [told] = await transaction.rows("control/cancel", row)
    assert told["outcome"] == "APPLIED"


async def open_answer(transaction: Transaction, job_id: UUID, **content: object) -> None:
    row = params(job_id=job_id, tenant_id="default", step="review", event_id=uuid7(), **content)
    await transaction.rows("moves/lock", row)
    [told] = await transaction.rows("answers/answer", row)
    assert told["outcome"] == "APPLIED"


async def test_a_cancel_that_waits_for_a_checkpoint_takes_the_next_place_in_the_log(given: Given) -> None:
    run = await given.held()
    async with given.database.transaction() as holder:
        await open_checkpoint(holder, run)
        cancel = asyncio.create_task(given.cancel(run))
        await until_blocked(given.sql, cancel)
    assert (await cancel).outcome is CancelOutcome.APPLIED
    assert await given.log(run.job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "CANCELLED"]


async def test_a_checkpoint_that_waits_for_a_cancel_is_not_written(given: Given) -> None:
    run = await given.held()
    async with given.database.transaction() as operator:
        await open_cancel(operator, run.job_id)
        checkpoint = asyncio.create_task(given.moves.checkpoint(run, finished()))
        await until_blocked(given.sql, checkpoint)
    with pytest.raises(LeaseLost):
        await checkpoint
    assert await given.log(run.job_id) == ["ACCEPTED", "CANCELLED"]
    assert (await given.row(run.job_id))["checkpoints"] == []


async def test_a_sweep_passes_over_a_run_whose_renewal_is_under_way(given: Given) -> None:
    run = await given.held()
    await given.expire(run.job_id)
    async with given.database.transaction() as holder:
        claims = json.dumps([{"job_id": str(run.job_id), "fence": run.fence}])
        renewal = {"claims": claims, "owner": worker(run), "lease": "5 min", "now": None}
        assert await holder.rows("leases/renew", renewal)
        assert (await given.upkeep.sweep()).expired == 0
    assert (await given.upkeep.sweep()).expired == 0
    assert (await given.row(run.job_id))["status"] == "RUNNING"


async def test_a_renewal_that_waits_for_a_sweep_is_told_that_the_lease_is_lost(given: Given) -> None:
    run = await given.held()
    await given.expire(run.job_id)
    before = run.held_until
    async with given.database.transaction() as sweeper:
        assert await sweeper.rows("upkeep/pick_expired", {"limit": 10, "now": None})
        renewal = asyncio.create_task(given.leases(worker(run)).renew([run]))
        await until_blocked(given.sql, renewal)
        assert await sweeper.rows("upkeep/expire", {"job_ids": [run.job_id], "ceiling": 3, "now": None})
    assert await renewal == [run]
    assert run.held_until == before


async def test_a_sweep_passes_over_an_open_checkpoint_and_keeps_its_place_in_the_log(given: Given) -> None:
    run = await given.held()
    await given.expire(run.job_id)
    async with given.database.transaction() as holder:
        await open_checkpoint(holder, run)
        assert (await given.upkeep.sweep()).expired == 0
    taken = await given.reclaimed(run)
    assert (taken.seq, [entry.step for entry in taken.claim.checkpoints]) == (2, ["tokenize"])
    await given.moves.checkpoint(taken, finished(1, "embed"))
    assert await given.log(run.job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed"]


async def test_an_expiry_looks_again_at_the_leases_it_is_given(given: Given) -> None:
    run = await given.held()
    await given.expire(run.job_id)
    async with given.database.transaction() as sweeper:
        stale = {"job_ids": [run.job_id], "ceiling": 3, "now": None}
        await given.leases(worker(run)).renew([run])
        assert await sweeper.rows("upkeep/expire", stale) == []


@pytest.mark.spec(89)
@pytest.mark.parametrize("first", ["valid", "invalid"])
async def test_of_a_valid_and_an_invalid_answer_exactly_one_decides(given: Given, first: str) -> None:
    run = await given.parked()
    async with given.database.transaction() as winner:
        if first == "valid":
            await open_answer(winner, run.job_id, response={"approved": True})
            loser = asyncio.create_task(given.reject_answer(run))
        else:
            await open_answer(winner, run.job_id, error="VALIDATION: no", event_error="VALIDATION: no")
            loser = asyncio.create_task(given.answer(run, {"approved": True}))
        await until_blocked(given.sql, loser)
    told = await loser
    row = await given.row(run.job_id)
    log = await given.log(run.job_id)
    if first == "valid":
        assert (told.outcome, row["status"]) == (AnswerOutcome.ALREADY_DONE, "QUEUED")
        assert log == ["ACCEPTED", "WAITING review", "STEP_CHECKPOINT review"]
    else:
        assert (told.outcome, told.status, row["status"]) == (AnswerOutcome.WRONG_STATE, Status.FAILED, "FAILED")
        assert row["checkpoints"] == []
        assert log == ["ACCEPTED", "WAITING review", "FAILED review"]


async def test_the_second_of_two_answers_is_told_whether_it_is_the_same(given: Given) -> None:
    run = await given.parked()
    async with given.database.transaction() as winner:
        await open_answer(winner, run.job_id, response={"approved": True})
        losers = [
            asyncio.create_task(given.answer(run, response)) for response in ({"approved": True}, {"approved": False})
        ]
        await until_blocked(given.sql, losers[0])
    told = await asyncio.gather(*losers)
    assert [(one.outcome, one.same) for one in told] == [
        (AnswerOutcome.ALREADY_DONE, True),
        (AnswerOutcome.ALREADY_DONE, False),
    ]
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review", "STEP_CHECKPOINT review"]


async def test_an_answer_that_waits_for_a_park_is_applied(given: Given) -> None:
    run = await given.held()
    row = {
        **checkpoint_row(run),
        "step": "review",
        "resume_target": "after",
        "request": {},
        "detail": "{}",
    }
    async with given.database.transaction() as holder:
        await holder.rows("moves/park", params(**row))
        answer = asyncio.create_task(given.answer(run, {}))
        await until_blocked(given.sql, answer)
    assert (await answer).outcome is AnswerOutcome.APPLIED
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review", "STEP_CHECKPOINT review"]


async def test_an_answer_that_waits_for_a_cancel_changes_nothing(given: Given) -> None:
    run = await given.parked()
    async with given.database.transaction() as operator:
        await open_cancel(operator, run.job_id)
        answer = asyncio.create_task(given.answer(run, {}))
        await until_blocked(given.sql, answer)
    assert ((await answer).outcome, (await answer).status) == (AnswerOutcome.WRONG_STATE, Status.CANCELLED)
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review", "CANCELLED"]


async def test_a_claim_passes_over_runs_that_another_worker_is_claiming(given: Given) -> None:
    target = f"target-{uuid4().hex}"
    runs = {await given.run(target=target), await given.run(target=target)}
    claim = {
        "targets": json.dumps([{"target": target, "free": 1, "low": "-infinity"}]),
        "owner": "worker-a:1",
        "lease": "5 min",
        "engine_level": 1,
        "now": None,
    }
    async with given.database.transaction() as slow:
        [taken] = await slow.rows("leases/claim", claim)
        async with asyncio.timeout(2):  # without SKIP LOCKED this would hang
            quick = await given.leases("worker-b:1").claim({target: 2})
    assert {run.job_id for run in quick} == runs - {taken["job_id"]}


async def test_a_claim_whose_answer_was_lost_is_waited_for_and_handed_back(given: Given) -> None:
    target = f"target-{uuid4().hex}"
    job_id = await given.run(target=target)
    kept = await given.held(owner="worker-a:1")
    claim = {
        "targets": json.dumps([{"target": target, "free": 1, "low": "-infinity"}]),
        "owner": "worker-a:1",
        "lease": "5 min",
        "engine_level": 1,
        "now": None,
    }
    async with given.database.transaction() as lost:
        await lost.rows("leases/claim", claim)
        release = asyncio.create_task(given.leases("worker-a:1").release_unheld([kept]))
        await until_blocked(given.sql, release)
    assert await release == 1
    row = await given.row(job_id)
    assert (row["status"], row["next_target"], row["lost_leases"]) == ("QUEUED", target, 0)
    assert (await given.row(kept.job_id))["status"] == "RUNNING"
