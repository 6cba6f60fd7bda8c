"""The answer to a flush gets lost: whatever had happened, each move is made once and its mover is told the truth."""

import asyncio
import contextlib
import json
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest

from schemas.errors import StoreUnavailable
from store.committer import Committer
from store.database import CommitPoint, Connection, Database, passes
from store.moves import Moves
from store.records import HeldRun, ItemStatus
from tests.store.given import HOLDER_MOVES, Given, done_item, finished
from tests.store.samples import Sql, Woken, select, select_one, until_blocked

_NAME = "lanes"


class LaneDatabase(Database):
    """Opens connections that can be told from others, and cut."""

    def __init__(self, url: str) -> None:
        super().__init__(url, application_name=_NAME, statement_timeout_seconds=5)
        self.refusals = 0
        self._newest: Connection | None = None

    async def connect(self) -> Connection:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("connection refused")
        self._newest = await super().connect()
        return self._newest

    def cut(self) -> None:
        """Cut the newest connection on our side. Its backend learns of it only when it has something to say."""
        assert self._newest is not None
        with socket.socket(fileno=os.dup(self._newest.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)


class Lanes:
    """A committer of its own, and something to do at its next commit point."""

    def __init__(self, url: str) -> None:
        self.database = LaneDatabase(url)
        self.woken = Woken()
        self.committer = Committer(self.database, on_committed=self.woken, commit_point=self._pass)
        self.moves = Moves(self.committer)
        self.flushes = 0
        self._at: CommitPoint = passes

    def once(self, suffix: str, action: Callable[[], Awaitable[object]]) -> None:
        """Do *action* at the next commit point that ends in *suffix*."""

        async def act(point: str) -> None:
            if point.endswith(suffix):
                self._at = passes
                await action()

        self._at = act

    def always(self, action: CommitPoint) -> None:
        """Do *action* at every commit point from now on."""
        self._at = action

    async def make(self, move: str, run: HeldRun) -> None:
        await HOLDER_MOVES[move](self.moves, run)

    async def _pass(self, point: str) -> None:
        self.flushes += point.endswith(".before_commit")
        await self._at(point)


@pytest.fixture
async def lanes(database_url: str) -> AsyncIterator[Lanes]:
    lanes = Lanes(database_url)
    running = asyncio.create_task(lanes.committer.run())
    yield lanes
    await asyncio.wait_for(lanes.committer.close(), 20)
    await running


async def kill_lanes(sql: Sql) -> None:
    query = f"select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name = '{_NAME}'"
    assert await select_one(sql, query) > 0


@contextlib.asynccontextmanager
async def holding(given: Given, run: HeldRun) -> AsyncIterator[None]:
    """Another transaction holds the run's row for as long as the block lasts."""
    async with given.database.transaction() as other:
        await other.rows("moves/lock", {"moves": json.dumps([{"job_id": str(run.job_id)}])})
        yield


def waiting_for_a_lock(sql: Sql) -> Awaitable[int]:
    return select_one(
        sql, f"select count(*) from pg_stat_activity where application_name = '{_NAME}' and wait_event_type = 'Lock'"
    )


@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_a_move_whose_answer_is_lost_after_the_commit_is_found_and_not_made_again(
    given: Given, lanes: Lanes, move: str
) -> None:
    run = await given.held()
    made: list[object] = []

    async def lose_the_answer() -> None:
        made.append(await given.everything(run.job_id))
        await kill_lanes(given.sql)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    lanes.once(".after_commit", lose_the_answer)
    await lanes.make(move, run)
    assert await given.everything(run.job_id) == made[0]
    assert len(await given.log(run.job_id)) == run.seq
    assert len(lanes.woken.payloads) <= 1


@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_a_move_whose_connection_is_lost_before_the_commit_is_made_once(
    given: Given, lanes: Lanes, move: str
) -> None:
    run = await given.held()
    lanes.once(".before_commit", lambda: kill_lanes(given.sql))
    await lanes.make(move, run)
    assert len(await given.log(run.job_id)) == run.seq == (1 if move in ("item", "retry", "release") else 2)


@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_a_move_whose_server_process_is_killed_in_the_middle_is_made_once(
    given: Given, lanes: Lanes, move: str
) -> None:
    run = await given.held()
    async with holding(given, run):
        made = asyncio.create_task(lanes.make(move, run))
        await until_blocked(given.sql, made)
        await kill_lanes(given.sql)
    await made
    assert len(await given.log(run.job_id)) == run.seq


@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_the_look_waits_for_a_flush_that_is_still_in_flight(given: Given, lanes: Lanes, move: str) -> None:
    run = await given.held()
    async with holding(given, run):
        made = asyncio.create_task(lanes.make(move, run))
        await until_blocked(given.sql, made)
        lanes.database.cut()
        while await waiting_for_a_lock(given.sql) < 2:
            assert not made.done()
            await asyncio.sleep(0.005)
    await made
    assert lanes.flushes == 1
    assert len(await given.log(run.job_id)) == run.seq
    assert (await given.row(run.job_id))["attempt"] == (1 if move in ("retry", "fail", "give_up") else 0)


async def test_of_a_flush_of_many_kinds_each_move_is_made_once(given: Given, lanes: Lanes) -> None:
    runs = await given.many_held(2 * len(HOLDER_MOVES))

    async def lose_the_answer() -> None:
        await kill_lanes(given.sql)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    lanes.once(".after_commit", lose_the_answer)
    await asyncio.gather(*(lanes.make(move, run) for move, run in zip(2 * list(HOLDER_MOVES), runs, strict=True)))
    for run in runs:
        assert len(await given.log(run.job_id)) == run.seq


async def test_a_release_behind_items_is_known_though_leases_were_lost_before(given: Given, lanes: Lanes) -> None:
    """Items are progress: from then on the row says that no lease was lost."""
    run = await given.reclaimed(await given.held())
    assert run.claim.lost_leases == 1
    await lanes.make("item", run)

    async def lose_the_answer() -> None:
        await kill_lanes(given.sql)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    lanes.once(".after_commit", lose_the_answer)
    await lanes.make("release", run)
    assert (await given.row(run.job_id))["status"] == "QUEUED"


async def test_items_that_an_earlier_claim_tried_are_not_taken_for_kept_again(given: Given, lanes: Lanes) -> None:
    first = await given.held()
    tried = replace(done_item(), status=ItemStatus.QUEUED, attempt=1, response=None, error="GRPC: UNAVAILABLE")
    await lanes.moves.items(first, step="tokenize", items=[tried], new_items=2)
    run = await given.reclaimed(first)

    async def sweep_first() -> None:
        await kill_lanes(given.sql)
        await given.expire(run.job_id)
        assert (await given.upkeep.sweep()).expired == 1

    lanes.once(".before_commit", sweep_first)
    assert not await given.ignoring_a_lost_lease(lanes.make("item", run))
    assert (await given.row(run.job_id))["items_done"] == 0


async def test_a_retry_that_was_swept_instead_is_not_taken_for_made(given: Given, lanes: Lanes) -> None:
    """Both leave the run queued under the same claim; only the retry counts a failed try."""
    run = await given.held()
    await lanes.make("retry", run)
    await given.sql.execute(b"update run set run_after = now()")
    [run] = await given.leases("worker-a:1").claim({"x": 1})

    async def sweep_first() -> None:
        await kill_lanes(given.sql)
        await given.expire(run.job_id)
        assert (await given.upkeep.sweep()).expired == 1

    lanes.once(".before_commit", sweep_first)
    assert not await given.ignoring_a_lost_lease(lanes.make("retry", run))
    row = await given.row(run.job_id)
    assert (row["attempt"], row["attempt_step"], row["lost_leases"]) == (1, "tokenize", 1)


async def test_an_outage_is_waited_out_and_nothing_is_lost(given: Given, lanes: Lanes) -> None:
    runs = await given.many_held(5)
    lanes.database.refusals = 4
    await asyncio.gather(*(lanes.moves.checkpoint(run, finished()) for run in runs))
    for run in runs:
        assert await given.log(run.job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize"]


async def test_under_kills_and_lost_answers_every_run_ends_with_a_log_without_gap_or_double(
    given: Given, lanes: Lanes
) -> None:
    runs = await given.many_held(40)
    chance = random.Random(7)
    finished_all = asyncio.Event()

    async def lose_some(point: str) -> None:
        if point.endswith(".after_commit") and chance.random() < 0.1:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    async def live(run: HeldRun) -> None:
        for index in range(3):
            await lanes.moves.checkpoint(run, finished(index, f"step-{index}"))
        await lanes.moves.complete(run, result={}, verdict="3 steps, output x")

    async def kill() -> None:
        query = f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = '{_NAME}' limit 1"
        while not finished_all.is_set():
            await select(given.sql, query)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(finished_all.wait(), 0.05)

    lanes.always(lose_some)
    killer = asyncio.create_task(kill())
    await asyncio.gather(*(live(run) for run in runs))
    finished_all.set()
    await killer
    steps = [f"STEP_CHECKPOINT step-{index}" for index in range(3)]
    for run in runs:
        assert await given.log(run.job_id) == ["ACCEPTED", *steps, "COMPLETED"]
        assert [entry["step_index"] for entry in (await given.row(run.job_id))["checkpoints"]] == [0, 1, 2]
