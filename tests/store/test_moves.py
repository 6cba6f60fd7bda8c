"""A holder's moves: what each leaves in the row and in the log."""

import pytest

from store.records import StoredCheckpoint
from tests.store.given import HOLDER_MOVES, STATUS_AFTER, Given, finished


@pytest.mark.parametrize("move", HOLDER_MOVES)
async def test_a_move_leads_where_the_table_says_and_clears_the_lease(given: Given, move: str) -> None:
    run = await given.held()
    await HOLDER_MOVES[move](given.moves, run)
    row = await given.row(run.job_id)
    assert row["status"] == STATUS_AFTER[move]
    assert (row["lease_owner"] is None) == (move != "checkpoint")
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
