"""A holder's moves: what each leaves in the row and in the log."""

from datetime import timedelta

import pytest

from schemas.errors import MoveRefused
from store.records import StoredCheckpoint
from tests.store.given import HOLDER_MOVES, STATUS_AFTER, Given, finished
from tests.store.samples import select


@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_a_move_leads_where_the_table_says_and_clears_the_lease(given: Given, move: str) -> None:
    run = await given.held()
    await HOLDER_MOVES[move](given.moves, run)
    row = await given.row(run.job_id)
    assert row["status"] == STATUS_AFTER[move]
    assert (row["lease_owner"] is None) == (move not in ("item", "checkpoint"))
    await given.log(run.job_id)


async def test_a_run_tells_its_steps_in_order_and_ends_with_its_outcome(given: Given) -> None:
    run = await given.held()
    await given.moves.checkpoint(run, finished(0, "tokenize"))
    await given.moves.checkpoint(run, StoredCheckpoint(1, "embed", skipped=True, response=None))
    await given.moves.complete(run, result={"vector": [1, 2]}, verdict="2 steps, output Reply")
    row = await given.row(run.job_id)
    assert (row["status"], row["result"], row["verdict"]) == ("COMPLETED", {"vector": [1, 2]}, "2 steps, output Reply")
    assert [(entry["step"], entry["skipped"], entry["fence"]) for entry in row["checkpoints"]] == [
        ("tokenize", False, 1),
        ("embed", True, 1),
    ]
    assert row["completed_at"] == row["updated_at"]
    assert await given.log(run.job_id) == [
        "ACCEPTED",
        "STEP_CHECKPOINT tokenize",
        "STEP_CHECKPOINT embed",
        "COMPLETED",
    ]


async def test_a_retry_backs_off_by_the_databases_clock_and_says_why(given: Given) -> None:
    run = await given.held()
    await given.moves.retry(run, step="embed", target="embedder", error="GRPC: UNAVAILABLE", delay_seconds=20)
    row = await given.row(run.job_id)
    assert (row["status"], row["next_target"], row["lease_owner"]) == ("QUEUED", "embedder", None)
    assert (row["attempt"], row["attempt_step"], row["last_error"]) == (1, "embed", "GRPC: UNAVAILABLE")
    assert row["run_after"] - row["last_error_at"] == timedelta(seconds=20)
    assert row["last_error_at"] == row["updated_at"]
    assert await given.log(run.job_id) == ["ACCEPTED"]
    assert given.woken.payloads[-1] == {"ready"}


async def test_tries_of_a_step_count_up_and_another_step_starts_anew(given: Given) -> None:
    run = await given.held()
    for tries in (1, 2):
        assert run.try_of("tokenize") == tries
        await given.moves.retry(run, step="tokenize", target="x", error="GRPC: UNAVAILABLE", delay_seconds=0)
        [run] = await given.leases("worker-a:1").claim({"x": 1})
    assert (run.try_of("tokenize"), run.try_of("embed")) == (3, 1)
    await given.moves.checkpoint(run, finished(0, "tokenize"))
    row = await given.row(run.job_id)
    assert (row["attempt"], row["attempt_step"], row["checkpoints"][0]["attempt"]) == (0, None, 3)
    await given.moves.retry(run, step="embed", target="x", error="GRPC: UNAVAILABLE", delay_seconds=0)
    [run] = await given.leases("worker-a:1").claim({"x": 1})
    await given.moves.give_up(run, step="embed", error="GRPC: UNAVAILABLE: gone")
    row = await given.row(run.job_id)
    assert (row["status"], row["attempt"], row["attempt_step"]) == ("DEAD", 2, "embed")
    query = "select attempt from event where job_id = %(id)s order by seq"
    assert [told["attempt"] for told in await select(given.sql, query, {"id": run.job_id})] == [0, 3, 2]


async def test_a_failure_of_the_workflow_itself_is_of_no_step_and_counts_none(given: Given) -> None:
    run = await given.held()
    await given.moves.fail(run, step=None, error="WORKFLOW: the definition does not parse")
    row = await given.row(run.job_id)
    assert (row["attempt"], row["attempt_step"], row["error"]) == (0, None, "WORKFLOW: the definition does not parse")
    assert await given.log(run.job_id) == ["ACCEPTED", "FAILED"]


async def test_a_workflow_that_is_retried_as_a_whole_counts_its_tries(given: Given) -> None:
    run = await given.held()
    await given.moves.retry(run, step=None, target="x", error="DEADLINE: spent", delay_seconds=0)
    [run] = await given.leases("worker-a:1").claim({"x": 1})
    assert (run.try_of(None), run.try_of("tokenize")) == (2, 1)


async def test_a_release_keeps_the_runs_place_and_counts_nothing(given: Given) -> None:
    run = await given.held()
    before = await given.row(run.job_id)
    await given.moves.release(run, target="embedder")
    row = await given.row(run.job_id)
    assert (row["next_target"], row["run_after"], row["attempt"]) == ("embedder", before["run_after"], 0)
    assert given.woken.payloads[-1] == {"ready"}
    [run] = await given.leases("worker-a:1").claim({"embedder": 1})
    await given.moves.release(run, target="embedder", delay_seconds=300)
    row = await given.row(run.job_id)
    assert row["run_after"] - row["updated_at"] == timedelta(seconds=300)
    assert await given.leases("worker-a:1").claim({"embedder": 1}) == []


async def test_an_error_of_any_length_is_whole_in_the_row_and_cut_in_the_event(given: Given) -> None:
    run = await given.held()
    error = "VALIDATION: \0" + "ä" * 10_000
    await given.moves.fail(run, step="tokenize", error=error)
    assert (await given.row(run.job_id))["error"] == error.replace("\0", "\N{REPLACEMENT CHARACTER}")
    [told] = await select(given.sql, "select error from event where job_id = %(id)s and type = 5", {"id": run.job_id})
    assert len(told["error"]) == 4000


async def test_an_error_without_a_word_still_ends_the_run(given: Given) -> None:
    run = await given.held()
    await given.moves.fail(run, step="tokenize", error="")
    assert (await given.row(run.job_id))["error"] == "no reason was given"


async def test_an_event_that_could_never_be_published_is_refused_before_anything_is_written(given: Given) -> None:
    run = await given.held()
    before = await given.everything(run.job_id)
    with pytest.raises(MoveRefused, match="verdict has 501 characters"):
        await given.moves.complete(run, result={}, verdict="x" * 501)
    with pytest.raises(MoveRefused, match="step has 201 characters"):
        await given.moves.checkpoint(run, finished(step="s" * 201))
    assert await given.everything(run.job_id) == before
    await given.moves.complete(run, result={}, verdict="x" * 500)


@pytest.mark.parametrize("result", [float("nan"), float("inf"), {"text": "\0"}, {"text": "\ud800"}])
async def test_a_result_that_cannot_be_stored_is_refused_and_the_claim_stands(given: Given, result: object) -> None:
    run = await given.held()
    with pytest.raises(MoveRefused):
        await given.moves.complete(run, result={"value": result}, verdict="1 steps, output x")
    assert not run.leaving
    await given.moves.fail(run, step=None, error="WORKFLOW: its result cannot be stored")


@pytest.mark.parametrize("delay_seconds", [-1.0, float("nan"), float("inf"), 1e12])
async def test_a_delay_beyond_all_bounds_is_refused(given: Given, delay_seconds: float) -> None:
    run = await given.held()
    with pytest.raises(MoveRefused, match="delay"):
        await given.moves.retry(run, step="x", target="x", error="e", delay_seconds=delay_seconds)
    await given.moves.release(run, target="x")


async def test_numbers_of_a_response_keep_all_their_digits(given: Given) -> None:
    run = await given.held()
    response = {"id": 2**63 - 1, "big": 10**40, "half": 0.1}
    await given.moves.checkpoint(run, finished(response=response))
    taken = await given.reclaimed(run)
    assert taken.claim.checkpoints[0].response == response
