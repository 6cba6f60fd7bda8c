"""A worker is killed right before and right after each commit: the next one goes on, and nothing is lost or doubled."""

from contextlib import closing
from uuid import uuid4

import pytest

from store.leases import Leases
from streams.parts.commit_points import COMMIT_POINTS
from tests.acceptance.bench import Bench
from tests.acceptance.ways_to_moves import WAYS
from tests.driver.stories import EMBED, embed_text
from tests.store.samples import select, select_one

pytestmark = pytest.mark.embedded

_TERMINAL = ("COMPLETED", "FAILED", "DEAD", "CANCELLED")
_SIDES = ("before_commit", "after_commit")


def test_every_commit_point_is_one_of_those_below() -> None:
    moves = {*WAYS, "transactional", "submit", "answer", "cancel", "intake"}
    relay = {"relay.acknowledged", "relay.before_mark", "relay.after_mark"}
    assert {f"{move}.{side}" for move in moves for side in _SIDES} | relay | {"intake.before_offset"} == set(
        COMMIT_POINTS
    )


@pytest.mark.spec(61)
@pytest.mark.parametrize("side", _SIDES)
@pytest.mark.parametrize("move", WAYS)
async def test_a_worker_killed_at_a_move_repeats_the_step_in_hand_at_most(bench: Bench, move: str, side: str) -> None:
    way = WAYS[move]
    for method, answers in way.scripts.items():
        bench.server.script(method, *answers)
    job_id = await bench.run(dict(way.document), max_attempts=way.max_attempts)
    if move == "expire":
        await Leases(bench.database, owner="gone:1", lease_seconds=30, engine_level=1).claim({"tokenizer": 1})
        await bench.let_leases_run_out()
    with closing(bench.worker(stop_at=f"{move}.{side}", drain_grace_seconds=0)) as victim:
        if move == "release":
            with bench.server.holding(EMBED) as hold:
                await hold.arrived()
                victim.terminate()
                await victim.was_killed()
        await victim.was_killed()

    await bench.let_leases_run_out()
    with closing(bench.worker()) as heir:
        if move == "park":
            await bench.until_status(job_id, heir, "WAITING")
            await heir.ready()
            answer = {"jobId": str(job_id), "stepName": "review", "response": {"approved": True}}
            assert (await heir.call("complete-step", answer))["ok"]
        await bench.until_status(job_id, heir, *_TERMINAL)
    assert await bench.ledger(job_id) == list(way.log)
    assert bench.calls() == (way.calls if side == "before_commit" else way.calls_after)


@pytest.mark.spec(66)
async def test_a_run_whose_claims_kill_their_workers_is_dead_at_the_ceiling_and_takes_no_other_down(
    bench: Bench,
) -> None:
    job_id = await bench.run(embed_text())
    # A suspect is claimed by itself, after a look for others.
    for passage in (1, 1, 2):
        with closing(bench.worker(stop_at=f"claim.after_commit:{passage}")) as victim:
            await victim.was_killed()
        await bench.let_leases_run_out()
    with closing(bench.worker()) as heir:
        await bench.until_status(job_id, heir, *_TERMINAL)
        assert await bench.ledger(job_id) == ["ACCEPTED", "DEAD"]
        other = await bench.run(embed_text())
        await bench.until_status(other, heir, "COMPLETED")
    [row] = await select(bench.sql, "select lost_leases, error from workflow_run where status = 'DEAD'")
    assert row["lost_leases"] == 3
    assert row["error"].startswith("lease expired 3 times in a row, last held by worker/")


@pytest.mark.parametrize("side", _SIDES)
async def test_an_answer_whose_worker_is_killed_is_taken_once(bench: Bench, side: str) -> None:
    job_id = await bench.parked()
    answer = {"jobId": str(job_id), "stepName": "review", "response": {"approved": True}}
    with closing(bench.worker(stop_at=f"answer.{side}", roles="web")) as victim:
        await victim.ready()
        assert await victim.call("complete-step", answer) is None
        await victim.was_killed()
    assert await bench.status(job_id) == ("WAITING" if side == "before_commit" else "QUEUED")

    with closing(bench.worker()) as heir:
        await heir.ready()
        again = await heir.call("complete-step", answer)
        assert (again["ok"], again.get("alreadyDone", False)) == (True, side == "after_commit")
        await bench.until_status(job_id, heir, *_TERMINAL)
    assert await bench.ledger(job_id) == list(WAYS["park"].log)
    assert bench.calls() == (0, 1)


@pytest.mark.parametrize("side", _SIDES)
async def test_a_cancel_whose_worker_is_killed_is_made_once(bench: Bench, side: str) -> None:
    job_id = await bench.run(embed_text(), target="nowhere")
    cancel = {"jobId": str(job_id), "reason": "no longer needed"}
    with closing(bench.worker(stop_at=f"cancel.{side}", roles="web")) as victim:
        await victim.ready()
        assert await victim.call("cancel-job", cancel) is None
        await victim.was_killed()
    assert await bench.status(job_id) == ("QUEUED" if side == "before_commit" else "CANCELLED")

    with closing(bench.worker(roles="web")) as heir:
        await heir.ready()
        await heir.call("cancel-job", cancel)
    assert await bench.ledger(job_id) == ["ACCEPTED", "CANCELLED"]


@pytest.mark.parametrize("side", _SIDES)
async def test_a_submit_whose_worker_is_killed_makes_one_run(bench: Bench, side: str) -> None:
    await bench.store(embed_text())
    job_id = uuid4()
    request = {"workflowName": "embed-text", "input": {"text": "a"}, "jobId": str(job_id)}
    with closing(bench.worker(stop_at=f"submit.{side}", roles="web")) as victim:
        await victim.ready()
        assert await victim.call("submit-workflow", request) is None
        await victim.was_killed()
    assert await select_one(bench.sql, "select count(*) from run") == (side == "after_commit")

    with closing(bench.worker()) as heir:
        await heir.ready()
        again = await heir.call("submit-workflow", request)
        assert (again["ok"], again["created"]) == (True, side == "before_commit")
        await bench.until_status(job_id, heir, *_TERMINAL)
    assert await bench.ledger(job_id) == list(WAYS["complete"].log)
    assert bench.calls() == (1, 1)
