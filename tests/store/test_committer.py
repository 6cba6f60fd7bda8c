"""Flushes: how moves gather, and how each is answered by itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from schemas.errors import LeaseLost, MoveRefused, StoreUnavailable
from store import committer as committer_module
from store.committer import Committer
from store.database import Database, passes
from store.flush import Lane, PendingMove
from store.lifecycle import Move
from store.moves import Moves
from store.records import HeldRun
from tests.store.given import HOLDER_MOVES, Given, finished, worker
from tests.store.samples import Sql, Woken, select_one, until_blocked


class Flushes:
    """A committer whose flushes are counted, and held back at will."""

    def __init__(self, database: Database) -> None:
        self.kinds: list[str] = []
        self._started = asyncio.Semaphore(0)
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.committer = Committer(database, on_committed=Woken(), commit_point=self._pass)
        self.moves = Moves(self.committer)

    async def _pass(self, point: str) -> None:
        if point.endswith(".before_commit"):
            self.kinds.append(point.removesuffix(".before_commit"))
            self._started.release()
            await self.may_go.wait()

    async def next(self) -> None:
        """Wait until one more flush is under way."""
        await self._started.acquire()


@asynccontextmanager
async def running(committer: Committer) -> AsyncIterator[None]:
    task = asyncio.create_task(committer.run())
    try:
        yield
    finally:
        await asyncio.wait_for(committer.close(), 10)
        await task


@pytest.fixture
async def flushes(database: Database) -> AsyncIterator[Flushes]:
    flushes = Flushes(database)
    async with running(flushes.committer):
        yield flushes


async def outcomes(*moves: "asyncio.Task[None]") -> list[type[BaseException] | None]:
    """How each ended: None is made."""
    ended = await asyncio.gather(*moves, return_exceptions=True)
    return [type(one) if isinstance(one, BaseException) else None for one in ended]


def start(flushes: Flushes, move: str, run: HeldRun) -> "asyncio.Task[None]":
    async def make() -> None:
        await HOLDER_MOVES[move](flushes.moves, run)

    return asyncio.create_task(make())


async def test_a_lone_move_goes_at_once_and_those_that_come_meanwhile_leave_together(
    given: Given, flushes: Flushes
) -> None:
    runs = await given.many_held(20)
    flushes.may_go.clear()
    first = start(flushes, "checkpoint", runs[0])
    await flushes.next()
    others = [start(flushes, "checkpoint", run) for run in runs[1:]]
    await asyncio.sleep(0)
    flushes.may_go.set()
    assert await outcomes(first, *others) == [None] * 20
    assert flushes.kinds == ["checkpoint", "checkpoint"]


async def test_a_second_flush_opens_when_enough_waits_for_it(
    given: Given, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "_SECOND_LANE_MOVES", 3)
    monkeypatch.setattr(committer_module, "_SLOW_FLUSH_SECONDS", 60)
    runs = await given.many_held(4)
    flushes.may_go.clear()
    moves = [start(flushes, "checkpoint", runs[0])]
    await flushes.next()
    moves += [start(flushes, "checkpoint", run) for run in runs[1:]]
    await flushes.next()
    flushes.may_go.set()
    assert await outcomes(*moves) == [None] * 4


async def test_a_second_flush_opens_when_the_first_one_is_slow(
    given: Given, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "_SLOW_FLUSH_SECONDS", 0.02)
    stuck, free = await given.many_held(2)
    async with given.database.transaction() as other:
        await other.rows("moves/lock", {"moves": f'[{{"job_id": "{stuck.job_id}"}}]'})
        waits = start(flushes, "checkpoint", stuck)
        await until_blocked(given.sql, waits)
        assert await outcomes(start(flushes, "checkpoint", free)) == [None]
        assert not waits.done()
    assert await outcomes(waits) == [None]


async def test_moves_of_one_run_are_in_one_flush_at_a_time_and_keep_their_order(given: Given, flushes: Flushes) -> None:
    run = await given.held()
    twin = HeldRun(run.claim, seq=run.seq, held_until=run.held_until)
    settles = [start(flushes, "complete", run), start(flushes, "fail", twin)]
    assert await outcomes(*settles) == [None, LeaseLost]
    assert flushes.kinds == ["complete", "fail"]
    assert await given.log(run.job_id) == ["ACCEPTED", "COMPLETED"]


async def test_a_flush_is_bounded_in_moves_and_bytes(
    given: Given, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await given.many_held(7)
    monkeypatch.setattr(committer_module, "_FLUSH_ROWS", 3)
    flushes.may_go.clear()
    first = start(flushes, "checkpoint", runs[0])
    await flushes.next()
    moves = [start(flushes, "checkpoint", run) for run in runs[1:]]
    await asyncio.sleep(0)
    flushes.may_go.set()
    assert await outcomes(first, *moves) == [None] * 7
    assert len(flushes.kinds) == 3

    monkeypatch.setattr(committer_module, "_FLUSH_BYTES", 1)
    for run in runs:
        run.leaving = False
    assert await outcomes(*(start(flushes, "release", run) for run in runs)) == [None] * 7
    assert flushes.kinds[3:] == ["release"] * 7


async def test_a_move_that_cannot_be_stored_fails_alone(given: Given, flushes: Flushes) -> None:
    runs = await given.many_held(20)
    responses = [{"text": "a\0b" if n == 7 else "fine"} for n in range(20)]
    moves = [
        asyncio.create_task(flushes.moves.checkpoint(run, finished(response=response)))
        for run, response in zip(runs, responses, strict=True)
    ]
    assert await outcomes(*moves) == [MoveRefused if n == 7 else None for n in range(20)]
    assert await given.log(runs[7].job_id) == ["ACCEPTED"]
    await flushes.moves.fail(runs[7], step="tokenize", error="WORKFLOW: the response cannot be stored")
    assert await given.log(runs[7].job_id) == ["ACCEPTED", "FAILED tokenize"]


async def test_in_a_flush_of_many_kinds_a_refused_and_a_stale_move_leave_the_others_alone(
    given: Given, flushes: Flushes
) -> None:
    runs = await given.many_held(9)
    kinds = ["checkpoint", "complete", "park", "retry", "release", "fail", "give_up", "checkpoint", "complete"]
    taken = await given.reclaimed(runs[5])
    moves = [start(flushes, kind, run) for kind, run in zip(kinds[:-1], runs[:-1], strict=True)]
    bad = asyncio.create_task(flushes.moves.complete(runs[8], result={"text": "\0"}, verdict="1 steps, output x"))
    assert await outcomes(*moves, bad) == [None] * 5 + [LeaseLost] + [None] * 2 + [MoveRefused]
    for run in runs:
        await given.ignoring_a_lost_lease(flushes.moves.checkpoint(run, finished(5, "later")))
        if run is not runs[5]:
            await given.log(run.job_id)
    await flushes.moves.checkpoint(taken, finished())


async def test_of_two_ends_of_one_claim_that_wait_together_the_first_one_stands(given: Given, flushes: Flushes) -> None:
    run = await given.held()
    twin = HeldRun(run.claim, seq=run.seq, held_until=run.held_until, history=run.history)
    flushes.may_go.clear()
    ends = [start(flushes, "complete", run), start(flushes, "fail", twin)]
    await flushes.next()
    flushes.may_go.set()
    assert await outcomes(*ends) == [None, LeaseLost]
    assert await given.log(run.job_id) == ["ACCEPTED", "COMPLETED"]


async def test_to_stop_waiting_stops_no_move_and_the_next_one_knows_of_it(given: Given, flushes: Flushes) -> None:
    run = await given.held()
    flushes.may_go.clear()
    checkpoint = start(flushes, "checkpoint", run)
    await flushes.next()
    checkpoint.cancel()
    assert await outcomes(checkpoint) == [asyncio.CancelledError]
    release = start(flushes, "release", run)
    flushes.may_go.set()
    assert await outcomes(release) == [None]
    assert await given.log(run.job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize"]
    [again] = await given.leases("worker-b:1").claim({"x": 1})
    assert again.seq == 2


async def test_a_close_commits_what_waits_and_refuses_what_comes_later(given: Given, database: Database) -> None:
    flushes = Flushes(database)
    runs = await given.many_held(3)
    async with running(flushes.committer):
        flushes.may_go.clear()
        moves = [start(flushes, "checkpoint", runs[0])]
        await flushes.next()
        moves.append(start(flushes, "checkpoint", runs[1]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(flushes.committer.close())
        await asyncio.sleep(0)
        assert await outcomes(start(flushes, "checkpoint", runs[2])) == [StoreUnavailable]
        flushes.may_go.set()
        assert await outcomes(*moves) == [None, None]
        await closing


async def test_a_committer_that_is_stopped_leaves_nobody_waiting(given: Given, database: Database) -> None:
    flushes = Flushes(database)
    runs = await given.many_held(2)
    task = asyncio.create_task(flushes.committer.run())
    flushes.may_go.clear()
    moves = [start(flushes, "checkpoint", runs[0])]
    await flushes.next()
    moves.append(start(flushes, "checkpoint", runs[1]))
    await asyncio.sleep(0)
    task.cancel()
    assert await outcomes(*moves) == [StoreUnavailable, StoreUnavailable]
    assert await outcomes(task) == [asyncio.CancelledError]


async def test_a_lane_that_dies_of_a_bug_is_seen(given: Given, database: Database) -> None:
    def broken(payloads: Collection[str]) -> None:
        raise ZeroDivisionError

    committer = Committer(database, on_committed=broken)
    task = asyncio.create_task(committer.run())
    run = await given.held()
    with pytest.raises(StoreUnavailable):
        await Moves(committer).checkpoint(run, finished())
    with pytest.raises(ExceptionGroup):
        await task


async def test_a_store_that_cannot_write_rolls_back_and_says_so_until_it_can(
    given: Given, flushes: Flushes, sql: Sql
) -> None:
    runs = await given.many_held(3)
    await sql.execute(b"alter table checkpoint rename to mislaid")
    refused = await outcomes(*(start(flushes, "checkpoint", run) for run in runs))
    await sql.execute(b"alter table mislaid rename to checkpoint")
    assert refused == [StoreUnavailable] * 3
    assert await outcomes(*(start(flushes, "checkpoint", run) for run in runs)) == [None] * 3
    assert await given.log(runs[0].job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize"]


async def test_a_place_in_the_log_that_somebody_else_took_ends_the_claim(given: Given, flushes: Flushes) -> None:
    run = await given.held()
    run.seq = 0
    assert await outcomes(start(flushes, "checkpoint", run)) == [LeaseLost]
    assert await given.log(run.job_id) == ["ACCEPTED"]


async def test_a_flush_of_many_kinds_waits_for_its_first_run_before_it_takes_the_others(given: Given, sql: Sql) -> None:
    """Two flushes, each holding what the other waits for, would wait for ever: so all runs are locked in one order."""
    low, high = sorted(await given.many_held(2), key=lambda run: run.job_id)
    async with lane(given.database) as one:
        async with given.database.transaction() as other:
            await other.rows("moves/lock", {"moves": json.dumps([{"job_id": str(low.job_id)}])})
            flush = asyncio.create_task(one.flush([pending("retry", high), pending("release", low)]))
            await until_blocked(sql, flush)
            query = "select count(*) from (select from run where job_id = %(id)s for update nowait) mine"
            assert await select_one(sql, query, {"id": high.job_id}) == 1
        assert await flush == {low.job_id, high.job_id}


async def test_flushes_over_the_same_runs_in_opposite_order_never_wait_in_a_circle(given: Given) -> None:
    async with lane(given.database) as one, lane(given.database) as other:
        for _ in range(12):
            runs = await given.many_held(10)
            moves = [pending(("retry", "release")[n % 2], run) for n, run in enumerate(runs)]
            made = await asyncio.gather(one.flush(moves), other.flush(moves[::-1]))
            assert sorted(map(len, made)) == [0, 10]


@asynccontextmanager
async def lane(database: Database) -> AsyncIterator[Lane]:
    lane = Lane(database, passes)
    try:
        yield lane
    finally:
        await lane.drop()


def pending(move: str, run: HeldRun) -> PendingMove:
    """A move without an event, as `Moves` prepares it."""
    row = {"job_id": str(run.job_id), "fence": run.fence, "lease_owner": worker(run), "seq": run.seq, "target": "x"}
    return PendingMove.of(
        Move(move), run.job_id, {**row, "attempt": 1, "delay_seconds": 0, "error": "e", "lost_leases": 0}, frozenset()
    )
