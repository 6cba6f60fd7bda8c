"""Leases: who gets which run, for how long, and how it goes back."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from schemas.errors import LeaseLost, StoreUnavailable
from store.database import Database
from store.leases import Leases
from store.low_water import LowWater
from store.records import HeldRun, StoredCheckpoint
from tests.store.given import HOLDER_MOVES, Given, finished
from tests.store.samples import Sql, select, submission


async def due(sql: Sql, job_id: UUID, seconds: float) -> None:
    """Let a run be due since *seconds* ago, or from then on if they are negative."""
    query = b"update run set run_after = now() - %(s)s * interval '1 s' where job_id = %(id)s"
    await sql.execute(query, {"s": seconds, "id": job_id})


@pytest.mark.spec(76)
async def test_many_claimers_take_each_run_once_and_the_longest_due_first(given: Given) -> None:
    target = "crowded"
    job_ids = [await given.run(target=target) for _ in range(60)]
    claimers = [given.leases(f"worker-{n}:1") for n in range(5)]
    rounds: list[list[HeldRun]] = []
    while any(claims := await asyncio.gather(*(leases.claim({target: 4}) for leases in claimers))):
        rounds += claims
    taken_ids = [run.job_id for taken in rounds for run in taken]
    assert Counter(taken_ids) == Counter(job_ids)
    place = {job_id: n for n, job_id in enumerate(job_ids)}
    for taken in rounds:
        assert [place[run.job_id] for run in taken] == sorted(place[run.job_id] for run in taken)
    for n in range(0, len(rounds), len(claimers)):  # each round of claims took the longest due of what was left
        taken_now = {place[run.job_id] for taken in rounds[n : n + len(claimers)] for run in taken}
        left = {place[run.job_id] for taken in rounds[n + len(claimers) :] for run in taken}
        assert not left or max(taken_now) < min(left)


@pytest.mark.spec(77)
async def test_a_run_that_is_due_later_is_not_claimed(given: Given, sql: Sql) -> None:
    job_id = await given.run(target="later")
    await due(sql, job_id, -3600)
    leases = given.leases("worker-a:1")
    assert await leases.targets() == {"later": pytest.approx(3600, abs=60)}
    assert await leases.claim({"later": 5}) == []
    await due(sql, job_id, 1)
    assert await leases.targets() == {"later": pytest.approx(-1, abs=60)}
    assert [run.job_id for run in await leases.claim({"later": 5})] == [job_id]


async def test_a_claim_hands_out_all_that_a_worker_needs(given: Given) -> None:
    numbers = '{"big": 12345678901234567890123, "text": "ä"}'
    request = submission(target="tokenizer", input=numbers, business_key="order-7", trace_context="00-trace")
    await given.submits.submit(request)
    began = time.monotonic()
    [run] = await given.leases("worker-a:1", lease_seconds=100).claim({"tokenizer": 1})
    claim = run.claim
    assert (claim.job_id, claim.tenant_id, claim.workflow_name) == (request.job_id, "default", "embed-text")
    assert (claim.fence, claim.lease_owner, claim.seq, claim.lost_leases) == (1, "worker-a:1", 1, 0)
    assert (claim.attempt, claim.attempt_step, claim.max_attempts, claim.steps_total) == (0, None, 3, 3)
    assert (claim.definition_hash, claim.target) == (request.definition_hash, "tokenizer")
    assert (claim.input, claim.trace_context, claim.business_key) == (numbers, "00-trace", "order-7")
    assert (claim.checkpoints, claim.deadline_at, run.seq) == ((), None, 1)
    assert began + 90 <= run.held_until <= time.monotonic() + 90


async def test_a_resumed_run_comes_with_its_finished_steps_in_order(given: Given) -> None:
    run = await given.held()
    done = [
        StoredCheckpoint(0, "tokenize", skipped=False, response={"tokens": ["a"], "count": 2**53 + 1}),
        StoredCheckpoint(1, "embed", skipped=True, response=None),
    ]
    for checkpoint in done:
        await given.moves.checkpoint(run, checkpoint)
    taken = await given.reclaimed(run)
    assert list(taken.claim.checkpoints) == done
    assert (taken.claim.seq, taken.fence) == (3, 2)


async def test_a_claim_takes_no_more_of_a_target_than_it_was_told(given: Given) -> None:
    for target in ("slow", "slow", "slow", "fast", "fast", "foreign"):
        await given.run(target=target)
    taken = await given.leases("worker-a:1").claim({"slow": 2, "fast": 5, "idle": 5, "foreign": 0})
    assert Counter(run.claim.target for run in taken) == {"slow": 2, "fast": 2}


async def test_what_runs_wait_for_is_named_with_when_the_first_of_each_is_due(given: Given, sql: Sql) -> None:
    for target, ago in (("b", 20), ("a", -300), ("b", -10), ("c", 5000), ("a", -200)):
        await due(sql, await given.run(target=target), ago)
    targets = await given.leases("worker-a:1").targets()
    assert targets == {name: pytest.approx(in_, abs=60) for name, in_ in (("a", 200), ("b", -20), ("c", -5000))}


async def test_a_run_of_a_newer_definition_is_left_to_a_newer_worker(given: Given) -> None:
    job_id = await given.run(target="new", engine_level=2)
    assert await given.leases("old:1").claim({"new": 1}) == []
    assert [run.job_id for run in await given.leases("new:1", engine_level=2).claim({"new": 1})] == [job_id]


async def test_a_suspect_is_claimed_alone_and_only_when_asked_for(given: Given, sql: Sql) -> None:
    suspects = [await given.run(target="risky") for _ in range(2)]
    sound = [await given.run(target="risky") for _ in range(2)]
    await sql.execute(b"update run set lost_leases = 2 where job_id = any (%(ids)s)", {"ids": suspects})
    await sql.execute(b"update run set lost_leases = 1 where job_id = %(id)s", {"id": sound[0]})
    leases = given.leases("worker-a:1")
    assert list(await leases.targets()) == ["risky"]
    assert {run.job_id for run in await leases.claim({"risky": 9})} == set(sound)
    assert await leases.claim({"other": 9}, suspects=True) == []
    assert [run.job_id for run in await leases.claim({"risky": 9}, suspects=True)] == suspects[:1]
    assert list(await leases.targets()) == ["risky"]


async def test_a_renewal_keeps_a_lease_and_moves_the_holders_own_limit(given: Given, sql: Sql) -> None:
    runs = await given.many_held(3)
    await given.expire(*(run.job_id for run in runs))
    before = [run.held_until for run in runs]
    await asyncio.sleep(0.01)
    assert await given.leases("worker-a:1", lease_seconds=60).renew(runs[:2]) == []
    left = {
        row["job_id"]: row["left"]
        for row in await select(sql, "select job_id, extract(epoch from lease_until - now())::float as left from run")
    }
    assert [50 < left[run.job_id] <= 60 for run in runs] == [True, True, False]
    assert [run.held_until > limit for run, limit in zip(runs, before, strict=True)] == [False, False, False]
    assert runs[2].held_until == before[2]
    assert await given.leases("worker-a:1").renew(runs[:1]) == []
    assert runs[0].held_until > before[0]


async def test_a_renewal_names_the_claims_that_are_lost_and_renews_the_others(given: Given) -> None:
    runs = await given.many_held(3)
    await given.reclaimed(runs[0])
    await given.cancel(runs[1])
    leases = given.leases("worker-a:1")
    assert await leases.renew(runs) == runs[:2]
    stranger = given.leases("worker-c:1")
    assert await stranger.renew([runs[2]]) == [runs[2]]


async def test_a_claim_that_our_own_move_has_ended_is_not_reported_lost(given: Given) -> None:
    runs = await given.many_held(2)
    await given.moves.complete(runs[0], result={}, verdict="1 steps, output x")
    assert await given.leases("worker-a:1").renew(runs) == []


async def test_renewals_heal_by_themselves(given: Given, sql: Sql) -> None:
    run = await given.held()
    leases = given.leases("worker-a:1")
    await leases.renew([run])
    await sql.execute(
        b"select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        b" where datname = current_database() and pid <> pg_backend_pid()"
    )
    with pytest.raises(StoreUnavailable):
        await leases.renew([run])
    assert await leases.renew([run]) == []


@pytest.mark.spec(79)
@pytest.mark.parametrize("same_name", [False, True], ids=["another worker", "the same name, started again"])
@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_a_worker_that_lost_its_lease_changes_nothing_and_announces_nothing(
    given: Given, move: str, same_name: bool
) -> None:
    stale = await given.held()
    await given.expire(stale.job_id)
    await given.upkeep.sweep()
    await assert_powerless(given, stale, move)
    [live] = await given.leases("worker-a:1" if same_name else "worker-b:1").claim({stale.claim.target: 1})
    await assert_powerless(given, stale, move)
    await given.moves.complete(live, result={"winner": True}, verdict="1 steps, output x")
    await assert_powerless(given, stale, move)
    assert await given.log(stale.job_id) == ["ACCEPTED", "COMPLETED"]


async def assert_powerless(given: Given, stale: HeldRun, move: str) -> None:
    before = await given.everything(stale.job_id)
    with pytest.raises(LeaseLost, match="claim 1 no longer holds the lease"):
        await HOLDER_MOVES[move](given.moves, stale)
    stale.leaving = False
    assert await given.leases("worker-a:1").renew([stale]) == [stale]
    assert await given.everything(stale.job_id) == before


async def test_a_claim_is_told_apart_by_its_owner_too(given: Given) -> None:
    """A database put back to an earlier state counts fences anew."""
    run = await given.held(owner="worker-a:1")
    impostor = HeldRun(replace(run.claim, lease_owner="worker-a:2"), seq=run.seq, held_until=run.held_until)
    for move in HOLDER_MOVES.values():
        with pytest.raises(LeaseLost):
            await move(given.moves, impostor)
    await given.moves.checkpoint(run, finished())


async def test_every_way_out_hands_back_what_the_worker_holds(given: Given) -> None:
    mine = await given.many_held(3, owner="worker-a:1")
    await given.moves.checkpoint(mine[0], finished())
    theirs = await given.held(owner="worker-b:1")
    assert await given.leases("worker-a:1").release_all() == 3
    for run in mine:
        row = await given.row(run.job_id)
        assert (row["status"], row["next_target"], row["lost_leases"]) == ("QUEUED", run.claim.target, 0)
    assert await given.log(mine[0].job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize"]
    assert (await given.row(theirs.job_id))["status"] == "RUNNING"
    assert await given.leases("worker-a:1").release_all() == 0
    [again] = await given.leases("worker-b:1").claim({mine[0].claim.target: 1})
    assert again.seq == 2


async def test_what_is_held_is_not_handed_back_but_an_older_claim_of_the_same_run_is(given: Given) -> None:
    held, forgotten = await given.many_held(2, owner="worker-a:1")
    assert await given.leases("worker-a:1").release_unheld([held]) == 1
    assert (await given.row(held.job_id))["status"] == "RUNNING"
    [again] = await given.leases("worker-a:1").claim({forgotten.claim.target: 1})
    assert await given.leases("worker-a:1").release_unheld([held, forgotten]) == 1
    assert (await given.row(again.job_id))["status"] == "QUEUED"


async def test_a_claim_begins_where_the_last_one_took_and_looks_at_everything_soon_after_a_short_one(
    given: Given, sql: Sql, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("store.low_water.time.monotonic", lambda: now[0])
    target = f"target-{uuid4().hex}"
    old, *_ = [await given.run(target=target) for _ in range(5)]
    await due(sql, old, 60)
    held_back = await given.run(target="elsewhere")
    leases = Leases(database, owner="worker-a:1", lease_seconds=60, engine_level=1)
    assert len(await leases.claim({target: 1})) == 1
    assert len(await leases.claim({target: 1})) == 1  # moves the mark up

    await due(sql, held_back, 3600)
    query = b"update run set next_target = %(target)s where job_id = %(id)s"
    await sql.execute(query, {"target": target, "id": held_back})
    assert held_back not in [run.job_id for run in await leases.claim({target: 2})]
    assert [run.job_id for run in await leases.claim({target: 2})] != [held_back]
    now[0] += 1.5
    assert [run.job_id for run in await leases.claim({target: 2})] == [held_back]


def test_full_looks_that_are_slow_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("store.low_water.time.monotonic", lambda: now[0])
    water = LowWater()
    full_looks = []
    for _ in range(300):
        began = now[0]
        full = water.begin(["t"])["t"] == "-infinity"
        now[0] += 0.2 if full else 0.001
        water.end({"t": 5}, [{"target": "t", "run_after": datetime(2026, 11, 30, tzinfo=UTC)}])
        if full:
            full_looks.append(began)
        now[0] += 0.1
    gaps = {round(later - earlier) for earlier, later in pairwise(full_looks)}
    assert gaps == {4}
