"""Runs whose time has come: waits end, what is overdue fails, reminders are told, and each of it once."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from schemas.errors import LeaseLost, StoreUnavailable
from schemas.events import Status
from store.answers import AnswerOutcome
from store.control import CancelOutcome
from store.database import Database
from store.due import Due, Settled
from store.notify import READY, RELAY
from store.records import HeldRun
from tests.store.given import HOLDER_MOVES, Given, finished
from tests.store.samples import select, select_one, until_blocked

NOTHING = Settled(woken=0, overdue=0, reminded=0, more=False)


async def parked_for(
    given: Given, *, answer_within_ms: int | None = None, remind_after_ms: int | None = None
) -> HeldRun:
    run = await given.held()
    await given.moves.park(
        run,
        step="review",
        step_index=0,
        request={"text": "a"},
        resume_target="after",
        answer_within_ms=answer_within_ms,
        remind_after_ms=remind_after_ms,
    )
    return run


async def test_a_wait_holds_nothing_and_ends_at_its_time_and_not_before(given: Given) -> None:
    run = await given.asleep(after_ms=60_000)
    row = await given.row(run.job_id)
    assert (row["status"], row["outstanding_step"], row["composed_request"]) == ("WAITING", "pause", None)
    assert row["due_at"] - row["updated_at"] == timedelta(minutes=1)
    assert row["lease_owner"] is None
    assert await given.due.settle() == NOTHING

    await given.pass_time(run.job_id)
    given.woken.payloads.clear()
    assert await given.due.settle() == Settled(woken=1, overdue=0, reminded=0, more=False)
    assert given.woken.payloads == [{READY, RELAY}]
    row = await given.row(run.job_id)
    assert (row["status"], row["next_target"], row["due_at"], row["due_move"]) == ("QUEUED", "after", None, None)
    [kept] = row["checkpoints"]
    assert (kept["step_index"], kept["step"], kept["skipped"], kept["response"]) == (0, "pause", False, {})
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING pause", "STEP_CHECKPOINT pause"]
    assert await given.due.settle() == NOTHING
    [taken] = await given.leases("worker-b:1").claim({"after": 1})
    assert [entry.step for entry in taken.claim.checkpoints] == ["pause"]
    with pytest.raises(LeaseLost):
        await given.moves.checkpoint(run, finished())


async def test_a_wait_for_a_time_ends_then_by_the_databases_clock(given: Given) -> None:
    runs = await given.many_held(2)
    [now] = [await select_one(given.sql, "select now()")]
    for run, at in zip(runs, (now - timedelta(seconds=1), now + timedelta(hours=1)), strict=True):
        await given.moves.park_until(run, step="pause", resume_target="x", at=at)
    assert (await given.due.settle()).woken == 1
    assert [(await given.row(run.job_id))["status"] for run in runs] == ["QUEUED", "WAITING"]
    assert (await given.row(runs[1].job_id))["due_at"] == now + timedelta(hours=1)


async def test_the_event_of_a_wait_tells_what_is_waited_for(given: Given) -> None:
    first, second = await given.many_held(2)
    await given.moves.park_until(first, step="pause", resume_target="x", after_ms=5)
    await given.moves.park_until(second, step="pause", resume_target="x", at=datetime(2030, 1, 2, tzinfo=UTC))
    query = "select detail from event where type = 3 order by detail"
    assert [row["detail"] for row in await select(given.sql, query)] == [
        '{"forMs":5}',
        '{"until":"2030-01-02T00:00:00+00:00"}',
    ]


async def test_nobody_answers_a_wait(given: Given) -> None:
    run = await given.asleep()
    before = await given.everything(run.job_id)
    for told in (await given.answer(run, {}, step="pause"), await given.reject_answer(run, step="pause")):
        assert (told.outcome, told.status, told.outstanding_step) == (
            AnswerOutcome.WRONG_STATE,
            Status.WAITING,
            "pause",
        )
    assert await given.everything(run.job_id) == before


async def test_a_wait_can_be_cancelled(given: Given) -> None:
    run = await given.asleep()
    assert (await given.cancel(run)).outcome is CancelOutcome.APPLIED
    await given.pass_time(run.job_id)
    assert await given.due.settle() == NOTHING
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING pause", "CANCELLED"]


async def test_any_number_of_housekeepers_move_each_run_once(given: Given) -> None:
    asleep = [await given.asleep() for _ in range(10)]
    late = [await parked_for(given, answer_within_ms=1) for _ in range(10)]
    await given.pass_time(*(run.job_id for run in (*asleep, *late)))
    settled = await asyncio.gather(*(given.due.settle() for _ in range(4)))
    assert (sum(one.woken for one in settled), sum(one.overdue for one in settled)) == (10, 10)
    for run in asleep:
        assert len(await given.log(run.job_id)) == 3
    for run in late:
        assert (await given.log(run.job_id))[-1] == "FAILED review"


async def test_more_than_one_look_takes_are_moved_by_the_next_at_once(given: Given) -> None:
    runs = [await given.asleep() for _ in range(3)]
    await given.pass_time(*(run.job_id for run in runs))
    assert await given.due.settle(limit=2) == Settled(woken=2, overdue=0, reminded=0, more=True)
    assert await given.due.settle(limit=2) == Settled(woken=1, overdue=0, reminded=0, more=False)


async def test_a_run_that_is_not_answered_in_time_fails_and_says_so(given: Given) -> None:
    run = await parked_for(given, answer_within_ms=60_000)
    row = await given.row(run.job_id)
    assert row["due_at"] == row["answer_by"] == row["updated_at"] + timedelta(minutes=1)
    assert await given.due.settle() == NOTHING
    await given.pass_time(run.job_id)
    given.woken.payloads.clear()
    assert (await given.due.settle()).overdue == 1
    assert given.woken.payloads == [{RELAY}]
    failed = await given.row(run.job_id)
    answer_by = (row["answer_by"] - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    assert failed["error"].startswith(f"DEADLINE: review was not answered by {answer_by}")
    assert failed["error"].endswith("Z (answerWithinMs)")
    assert (failed["status"], failed["composed_request"], failed["answer_by"]) == ("FAILED", None, None)
    assert failed["completed_at"] == failed["updated_at"]
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review", "FAILED review"]
    assert (await given.answer(run, {})).outcome is AnswerOutcome.WRONG_STATE


async def test_an_answer_in_time_ends_all_waiting_for_it(given: Given) -> None:
    run = await parked_for(given, answer_within_ms=60_000, remind_after_ms=1_000)
    assert (await given.answer(run, {"approved": True})).outcome is AnswerOutcome.APPLIED
    row = await given.row(run.job_id)
    assert (row["due_at"], row["due_move"], row["answer_by"]) == (None, None, None)
    await given.pass_time(run.job_id)
    assert await given.due.settle() == NOTHING


async def test_a_reminder_is_one_more_waiting_event_and_leaves_the_time_to_answer_as_it_is(given: Given) -> None:
    run = await parked_for(given, answer_within_ms=90 * 60_000, remind_after_ms=30 * 60_000)
    before = await given.row(run.job_id)
    assert before["due_at"] == before["updated_at"] + timedelta(minutes=30)
    await given.pass_time(run.job_id)
    assert await given.due.settle() == Settled(woken=0, overdue=0, reminded=1, more=False)
    assert await given.due.settle() == NOTHING
    row = await given.row(run.job_id)
    assert (row["status"], row["outstanding_step"], row["composed_request"]) == ("WAITING", "review", {"text": "a"})
    assert row["due_at"] == row["answer_by"] == before["answer_by"] - timedelta(hours=1)
    query = "select detail from event where job_id = %(id)s and type = 3 order by seq"
    details = [row["detail"] for row in await select(given.sql, query, {"id": run.job_id})]
    assert details == ['{"request":{"text":"a"}}', '{"reminder":true}']
    assert await given.log(run.job_id) == ["ACCEPTED", "WAITING review", "WAITING review"]

    await given.pass_time(run.job_id)
    assert (await given.due.settle()).overdue == 1


async def test_a_reminder_without_a_time_to_answer_is_the_last_word(given: Given) -> None:
    run = await parked_for(given, remind_after_ms=1)
    await given.pass_time(run.job_id)
    assert (await given.due.settle()).reminded == 1
    assert (await given.row(run.job_id))["due_at"] is None
    assert (await given.answer(run, {})).outcome is AnswerOutcome.APPLIED


async def test_nobody_is_reminded_of_what_is_overdue(given: Given) -> None:
    run = await parked_for(given, answer_within_ms=2, remind_after_ms=1)
    await given.pass_time(run.job_id)
    assert await given.due.settle() == Settled(woken=0, overdue=1, reminded=0, more=False)


async def queued(given: Given) -> HeldRun:
    run = await given.held(run_deadline_ms=60_000)
    await given.moves.retry(run, step="embed", target="x", error="GRPC: UNAVAILABLE", delay_seconds=600)
    return run


async def waiting(given: Given) -> HeldRun:
    return await given.parked(run_deadline_ms=60_000)


async def sleeping(given: Given) -> HeldRun:
    return await given.asleep(run_deadline_ms=60_000)


@pytest.mark.parametrize(("state", "step"), [(queued, "embed"), (waiting, "review"), (sleeping, "pause")])
async def test_a_run_past_its_deadline_fails_wherever_it_rests(
    given: Given, state: Callable[[Given], Awaitable[HeldRun]], step: str
) -> None:
    run = await state(given)
    row = await given.row(run.job_id)
    assert row["deadline_at"] == row["created_at"] + timedelta(minutes=1)
    assert await given.due.settle() == NOTHING
    await given.pass_time(run.job_id)
    assert await given.due.settle() == Settled(woken=0, overdue=1, reminded=0, more=False)
    row = await given.row(run.job_id)
    assert (row["status"], row["next_target"], row["due_at"], row["due_move"]) == ("FAILED", None, None, None)
    assert row["error"].startswith("DEADLINE: the run was not done by ")
    assert row["error"].endswith("Z (runDeadlineMs)")
    assert (await given.log(run.job_id))[-1] == f"FAILED {step}"
    assert await given.due.settle() == NOTHING


async def test_a_run_in_hand_is_left_to_its_holder_until_its_lease_has_ended(given: Given) -> None:
    run = await given.held(run_deadline_ms=60_000)
    assert run.claim.deadline_at is not None
    other = await given.run(run_deadline_ms=120_000)
    await given.pass_time(run.job_id, other)
    assert await given.due.settle(limit=1) == Settled(woken=0, overdue=1, reminded=0, more=True), "it stands in no way"
    assert await given.due.settle(limit=1) == NOTHING
    await given.expire(run.job_id)
    assert (await given.upkeep.sweep()).expired == 1
    assert (await given.due.settle()).overdue == 1


@pytest.mark.parametrize("end", ["complete", "fail", "give_up", "cancel"])
async def test_a_settled_run_has_no_deadline_any_more(given: Given, end: str) -> None:
    run = await given.held(run_deadline_ms=60_000)
    if end == "cancel":
        await given.cancel(run)
    else:
        await HOLDER_MOVES[end](given.moves, run)
    await given.pass_time(run.job_id)
    settled = await given.everything(run.job_id)
    assert await given.due.settle() == NOTHING
    assert await given.everything(run.job_id) == settled


async def test_of_an_answer_and_the_end_of_its_time_exactly_one_decides(given: Given) -> None:
    answered, late = [await parked_for(given, answer_within_ms=1) for _ in range(2)]
    await given.pass_time(answered.job_id, late.job_id)
    now = {"now": None}
    async with given.database.transaction() as winner:
        locked = await winner.rows("moves/lock", {"moves": f'[{{"job_id": "{answered.job_id}"}}]'})
        assert locked == [{"locked": 1}]
        assert (await given.due.settle()).overdue == 1, "what somebody is answering is passed over"
    assert [(await given.row(run.job_id))["status"] for run in (answered, late)] == ["WAITING", "FAILED"]
    assert (await given.answer(answered, {})).outcome is AnswerOutcome.APPLIED
    assert await given.due.settle() == NOTHING

    third = await parked_for(given, answer_within_ms=1)
    await given.pass_time(third.job_id)
    async with given.database.transaction() as housekeeper:
        picked = await housekeeper.rows("due/pick", {"limit": 10, **now})
        assert picked == [{"job_id": third.job_id, "move": "overdue"}]
        answer = asyncio.create_task(given.answer(third, {}))
        await until_blocked(given.sql, answer)
        assert await housekeeper.rows("due/overdue", {"job_ids": [third.job_id], **now})
    assert ((await answer).outcome, (await answer).status) == (AnswerOutcome.WRONG_STATE, Status.FAILED)
    assert await given.log(third.job_id) == ["ACCEPTED", "WAITING review", "FAILED review"]


@pytest.mark.parametrize("move", ["wake", "remind", "overdue"])
async def test_a_move_looks_again_at_the_runs_it_is_given(given: Given, move: str) -> None:
    """Whatever was picked, only what is still so counts."""
    asleep, asked = await given.asleep(), await parked_for(given, answer_within_ms=60_000, remind_after_ms=50_000)
    claimed = await given.held(run_deadline_ms=60_000)
    for run in (asleep, asked, claimed):
        before = await given.everything(run.job_id)
        assert await given.database.rows(f"due/{move}", {"job_ids": [run.job_id], "now": None}) == []
        assert await given.everything(run.job_id) == before


@pytest.mark.parametrize("move", ["wake", "remind", "overdue"])
async def test_a_move_is_for_runs_that_wait_for_it_alone(given: Given, move: str) -> None:
    runs = {
        "wake": await given.asleep(),
        "remind": await parked_for(given, remind_after_ms=1),
        "overdue": await parked_for(given, answer_within_ms=1),
    }
    await given.pass_time(*(run.job_id for run in runs.values()))
    others = [run.job_id for kind, run in runs.items() if kind != move]
    before = [await given.everything(job_id) for job_id in others]
    assert await given.database.rows(f"due/{move}", {"job_ids": others, "now": None}) == []
    assert [await given.everything(job_id) for job_id in others] == before


async def test_a_deadline_that_passed_ends_no_run_that_is_held_or_settled(given: Given) -> None:
    held, settled = await given.many_held(2, run_deadline_ms=1)
    await given.moves.complete(settled, result={}, verdict="1 steps, output x")
    await given.pass_time(held.job_id, settled.job_id)
    for run in (held, settled):
        before = await given.everything(run.job_id)
        assert await given.database.rows("due/overdue", {"job_ids": [run.job_id], "now": None}) == []
        assert await given.everything(run.job_id) == before


@pytest.mark.spec(82)
@pytest.mark.parametrize("move", ["wake", "remind", "overdue"])
async def test_a_move_rolls_back_with_its_event(given: Given, move: str) -> None:
    run = await given.asleep() if move == "wake" else await parked_for(given, **{_TIME_OF[move]: 1})
    await given.pass_time(run.job_id)
    before = await given.everything(run.job_id)
    await given.sql.execute(
        b"create function refuse() returns trigger language plpgsql as"
        b" $$ begin raise exception 'refused' using errcode = 'insufficient_privilege'; end $$"
    )
    await given.sql.execute(
        b"create trigger refuse before insert on relay_queue for each row execute function refuse()"
    )
    with pytest.raises(StoreUnavailable, match="refused"):
        await given.due.settle()
    assert await given.everything(run.job_id) == before


_TIME_OF = {"remind": "remind_after_ms", "overdue": "answer_within_ms"}


async def test_each_move_of_a_look_passes_its_commit_points(given: Given, database: Database) -> None:
    points: list[str] = []

    async def note(point: str) -> None:
        points.append(point)

    runs = [await given.asleep(), await parked_for(given, answer_within_ms=1)]
    runs.append(await parked_for(given, remind_after_ms=1))
    await given.pass_time(*(run.job_id for run in runs))
    settled = await Due(database, on_committed=given.woken, commit_point=note).settle()
    assert settled == Settled(woken=1, overdue=1, reminded=1, more=False)
    moves = ("overdue", "wake", "remind")
    assert points == [f"{move}.{side}_commit" for side in ("before", "after") for move in moves]


async def test_times_of_a_held_run_are_the_databases(given: Given) -> None:
    run = await given.held(run_deadline_ms=60_000)
    now = run.database_time()
    assert now <= await select_one(given.sql, "select now()")
    assert run.claim.deadline_at is not None
    assert timedelta(seconds=40) < run.claim.deadline_at - now <= timedelta(minutes=1)


async def test_a_sweep_moves_on_what_is_due_and_says_when_to_look_next(given: Given) -> None:
    assert (await given.upkeep.sweep()).next_look_seconds == 20
    asleep = await given.asleep(after_ms=8_000)
    assert 0 < (await given.upkeep.sweep()).next_look_seconds < 9
    late = await given.run(run_deadline_ms=4_000)
    assert 0 < (await given.upkeep.sweep()).next_look_seconds < 5
    await given.pass_time(asleep.job_id, late)
    swept = await given.upkeep.sweep(limit=1)
    assert (swept.woken, swept.overdue, swept.next_look_seconds < 1) == (1, 1, True)
    assert (await given.upkeep.sweep()).next_look_seconds == 20
