"""The table of moves against the statements, which repeat it in their WHERE: every move from every status."""

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from schemas.events import ANNOUNCES, STATUS_AFTER, EventType, Status
from store.lifecycle import MOVES, TERMINAL, Move
from store.records import HeldRun
from tests.store.given import HOLDER_MOVES, Given, worker
from tests.store.samples import select, submission

REACH: dict[Status, str | None] = {
    Status.QUEUED: "release",
    Status.RUNNING: None,
    Status.WAITING: "park",
    Status.COMPLETED: "complete",
    Status.FAILED: "fail",
    Status.DEAD: "give_up",
    Status.CANCELLED: "cancel",
}


async def submit_again(given: Given, run: HeldRun) -> None:
    await given.submits.submit(submission(run.job_id))


async def refuse_again(given: Given, run: HeldRun) -> None:
    await given.submits.submit(submission(run.job_id, error="WORKFLOW: unknown", target=None))


async def claim(given: Given, run: HeldRun) -> None:
    await given.leases("worker-b:1").claim({"x": 1, "after": 1, run.claim.target: 1})


async def renew(given: Given, run: HeldRun) -> None:
    run.leaving = False
    await given.leases(worker(run)).renew([run])


async def expire(given: Given, run: HeldRun) -> None:
    await given.sql.execute(b"update run set lease_until = now() - interval '1 s' where status = 'RUNNING'")
    await given.upkeep.sweep()


async def answer(given: Given, run: HeldRun) -> None:
    await given.answer(run, {})


async def reject_answer(given: Given, run: HeldRun) -> None:
    await given.reject_answer(run)


async def cancel(given: Given, run: HeldRun) -> None:
    await given.cancel(run)


async def settle_due(given: Given, run: HeldRun) -> None:
    await given.due.settle()


def comes_due(move: str) -> bytes:
    text = f"update run set due_at = now() - interval '1 s', due_move = '{move}' where status = 'WAITING'"
    return text.encode()


BEFORE: dict[Move, bytes] = {
    Move.WAKE: comes_due("wake"),
    Move.REMIND: comes_due("remind"),
    Move.OVERDUE: b"update run set deadline_at = now() - interval '1 s'",
}
"""What must be so for housekeeping to make the move at all."""


Try = Callable[[Given, HeldRun], Awaitable[None]]

TRIES: dict[Move, Try] = {
    Move.SUBMIT: submit_again,
    Move.REFUSE: refuse_again,
    Move.CLAIM: claim,
    Move.RENEW: renew,
    Move.EXPIRE: expire,
    Move.ANSWER: answer,
    Move.REJECT_ANSWER: reject_answer,
    Move.CANCEL: cancel,
    Move.WAKE: settle_due,
    Move.REMIND: settle_due,
    Move.OVERDUE: settle_due,
}


async def attempt(given: Given, move: Move, run: HeldRun) -> None:
    if move in TRIES:
        await TRIES[move](given, run)
    else:
        await given.ignoring_a_lost_lease(HOLDER_MOVES[move](given.moves, run))


async def arrive(given: Given, status: Status) -> HeldRun:
    run = await given.held()
    move = REACH[status]
    if move is not None:
        await attempt(given, Move(move), run)
    assert (await given.row(run.job_id))["status"] == status
    return run


@pytest.mark.parametrize("move", MOVES)
async def test_a_move_is_made_from_its_sources_alone_and_announces_what_the_table_says(
    given: Given, move: Move
) -> None:
    arrow = MOVES[move]
    for status in Status:
        run = await arrive(given, status)
        if move in BEFORE:
            await given.sql.execute(BEFORE[move])
        before = await given.everything(run.job_id)
        told_before = await told(given, run)

        await attempt(given, move, run)

        after = (await given.row(run.job_id))["status"]
        if status in arrow.sources:
            assert after in arrow.leads_to, f"{move} from {status}"
            announced = arrow.leads_to[Status(after)]
            assert (await told(given, run))[len(told_before) :] == ([announced] if announced else [])
        else:
            assert await given.everything(run.job_id) == before, f"{move} from {status}"
        await given.log(run.job_id)


async def told(given: Given, run: HeldRun) -> list[EventType]:
    query = "select type from event where job_id = %(id)s order by seq"
    return [EventType(row["type"]) for row in await select(given.sql, query, {"id": run.job_id})]


async def test_a_move_never_lets_the_version_time_of_a_row_stand_still_or_go_back(given: Given) -> None:
    run = await given.held()
    times = [(await given.row(run.job_id))["updated_at"]]
    ahead = b"update run set updated_at = now() + interval '1 hour'"  # the clock was set back since
    await given.sql.execute(ahead)
    for step in (
        lambda: given.moves.park(run, step="review", step_index=0, request={}, resume_target="x"),
        lambda: answer(given, run),
        lambda: given.leases("worker-b:1").claim({"x": 1}),
        lambda: cancel(given, run),
    ):
        await step()
        times.append((await given.row(run.job_id))["updated_at"])
    assert all(earlier < later for earlier, later in pairwise(times))


def test_what_a_move_announces_agrees_with_the_contract() -> None:
    assert {move.value for move in MOVES} <= set(ANNOUNCES)
    assert set(MOVES) == set(Move)
    for arrow in MOVES.values():
        for status, announced in arrow.leads_to.items():
            assert announced is None or status in STATUS_AFTER[announced]


def test_a_settled_run_is_where_no_move_starts() -> None:
    assert {Status.COMPLETED, Status.FAILED, Status.DEAD, Status.CANCELLED} == TERMINAL
