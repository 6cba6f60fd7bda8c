"""Stopping work on a held run from outside, for each cause, and only that work."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from schemas.errors import SegmentInterrupted
from store.records import ClaimedRun, HeldRun
from streams.driver.held import Cause, Held, Holding
from streams.driver.permits import Permits

LONG = 60.0


def held_run(job_id: UUID | None = None, *, fence: int = 1, seconds_left: float = LONG) -> HeldRun:
    claim = ClaimedRun(
        job_id=job_id or uuid4(),
        tenant_id="default",
        workflow_name="embed-text",
        fence=fence,
        lease_owner="a:1",
        seq=1,
        attempt=0,
        attempt_step=None,
        max_attempts=3,
        lost_leases=0,
        steps_total=2,
        definition_hash=b"\1" * 32,
        target="tokenizer",
        run_after=datetime.now(UTC),
        deadline_at=None,
        business_key=None,
        input="{}",
        trace_context=None,
        checkpoints=(),
        claimed_at=datetime.now(UTC),
    )
    return HeldRun(claim, seq=1, held_until=time.monotonic() + seconds_left)


class Work:
    """Work that waits until it is stopped, and knows whether it was."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = False

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            self.stopped = True
            raise
        return "done"


async def test_work_that_nobody_stops_returns_what_it_returns() -> None:
    async def work() -> str:
        return "done"

    assert await Holding(held_run()).interruptible(work) == "done"


@pytest.mark.parametrize("cause", list(Cause))
async def test_an_interrupted_call_is_cancelled_and_its_task_goes_on(cause: Cause) -> None:
    holding, work = Holding(held_run()), Work()

    async def drive() -> str:
        with pytest.raises(SegmentInterrupted, match=str(cause)):
            await holding.interruptible(work)
        await asyncio.sleep(0)
        return "went on"

    task = asyncio.create_task(drive())
    await work.begun.wait()
    holding.interrupt(cause)

    assert await task == "went on"
    assert work.stopped
    assert holding.cause is cause
    assert task.cancelling() == 0


async def test_a_run_interrupted_before_it_begins_does_not_begin() -> None:
    holding, work = Holding(held_run()), Work()
    holding.interrupt(Cause.DRAINED)

    with pytest.raises(SegmentInterrupted):
        await holding.interruptible(work)
    assert not work.begun.is_set()


async def test_the_first_cause_stands() -> None:
    holding = Holding(held_run())
    holding.interrupt(Cause.LOST)
    holding.interrupt(Cause.DRAINED)
    assert holding.cause is Cause.LOST


def test_only_a_run_that_is_still_ours_may_be_handed_back() -> None:
    assert {cause for cause in Cause if cause.may_write} == {Cause.OVERDUE, Cause.DRAINED, Cause.TOO_LATE}


async def test_a_cancelled_task_stays_cancelled_also_together_with_an_interruption() -> None:
    holding, work = Holding(held_run()), Work()
    task = asyncio.create_task(holding.interruptible(work))
    await work.begun.wait()

    holding.interrupt(Cause.DRAINED)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_past_the_holders_own_limit_the_call_is_cancelled() -> None:
    holding, work = Holding(held_run(seconds_left=0.05)), Work()

    with pytest.raises(SegmentInterrupted):
        await holding.interruptible(work)

    assert holding.cause is Cause.OVERDUE
    assert work.stopped


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
async def test_past_the_runs_deadline_its_work_is_stopped_whatever_it_is(seconds: float) -> None:
    run = held_run()
    deadline_at = run.claim.claimed_at + timedelta(seconds=seconds)
    holding, work = Holding(replace(run, claim=replace(run.claim, deadline_at=deadline_at))), Work()

    with pytest.raises(SegmentInterrupted, match="its deadline has passed"):
        await holding.interruptible(work)

    assert holding.cause is Cause.TOO_LATE
    assert holding.seconds_to_deadline() <= 0
    assert work.begun.is_set() == work.stopped == (seconds > 0)


async def test_a_renewed_lease_moves_the_limit() -> None:
    run = held_run(seconds_left=0.05)
    holding, work = Holding(run), Work()
    task = asyncio.create_task(holding.interruptible(work))
    await work.begun.wait()
    run.held_until += LONG

    await asyncio.sleep(0.1)

    assert not work.stopped
    holding.interrupt(Cause.DRAINED)
    with pytest.raises(SegmentInterrupted):
        await task


async def test_what_the_work_raises_by_itself_passes_through() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Holding(held_run()).interruptible(work)


def test_a_cancelled_run_is_stopped_under_each_of_its_claims() -> None:
    held, job_id = Held(), uuid4()
    old, new = Holding(held_run(job_id, fence=1)), Holding(held_run(job_id, fence=2))
    other = Holding(held_run())
    for holding in (old, new, other):
        held.add(holding)

    held.on_cancelled(job_id)

    assert [holding.cause for holding in (old, new, other)] == [Cause.CANCELLED, Cause.CANCELLED, None]


def test_letting_a_claim_go_keeps_a_newer_one_of_the_same_run() -> None:
    held, job_id = Held(), uuid4()
    old, new = Holding(held_run(job_id, fence=1)), Holding(held_run(job_id, fence=2))
    held.add(old)
    held.add(new)

    held.let_go(old)

    assert held.runs() == [new.run]


def test_a_lost_claim_does_not_stop_a_newer_one_of_the_same_run() -> None:
    held, job_id = Held(), uuid4()
    old, new = Holding(held_run(job_id, fence=1)), Holding(held_run(job_id, fence=2))
    held.add(old)
    held.add(new)

    held.interrupt([old.run], Cause.LOST)

    assert (old.cause, new.cause) == (Cause.LOST, None)
    assert held.renewable() == [new.run]


def test_a_cancel_is_remembered_only_while_a_claim_is_under_way() -> None:
    held, job_id = Held(), uuid4()
    with held.claiming():
        held.on_cancelled(job_id)
        overtaken = Holding(held_run(job_id))
        held.add(overtaken)
    later = Holding(held_run(job_id, fence=2))
    held.add(later)

    assert (overtaken.cause, later.cause) == (Cause.CANCELLED, None)


def test_a_reserved_permit_is_taken_once_and_dropped_once() -> None:
    permits = Permits(lambda target: 1)
    [permit] = permits.reserve("tokenizer", 1)
    holding = Holding(held_run(), permit)

    assert holding.take_permit() is permit
    holding.drop_permit()
    assert permits.free("tokenizer") == 0
    permit.release()
    assert permits.free("tokenizer") == 1
