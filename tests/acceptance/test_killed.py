"""A worker that is killed loses nothing, and repeats only what it had not finished."""

import pytest

from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.driver.stories import EMBED, TOKENIZE

pytestmark = pytest.mark.embedded


@pytest.mark.spec(61)
async def test_a_worker_killed_in_a_step_is_taken_over_and_finished_steps_are_not_called_again(fleet: Fleet) -> None:
    await fleet.started("worker-a", "worker-b")
    with fleet.server.holding(EMBED) as held:
        jobs = await fleet.produce(6)
        for _ in jobs:
            await held.arrived()
        owners = {job_id: await fleet.owner_of(job_id) for job_id in jobs}
        victim = owners[jobs[0]]
        orphans = [job_id for job_id, owner in owners.items() if owner is victim]
        victim.kill()
        for _ in orphans:
            await held.arrived()
        held.release()
        await fleet.until_all(jobs, "COMPLETED")

    for job_id in jobs:
        claims = 2 if job_id in orphans else 1
        assert [len(fleet.calls(method, job_id)) for method in (TOKENIZE, EMBED)] == [1, claims]
        row = await fleet.row(job_id)
        assert (row["fence"], row["attempt"]) == (claims, 0)
        assert [checkpoint["fence"] for checkpoint in row["checkpoints"]] == [1, claims]
    # Its partitions and its relay shards have a new owner too: nothing that comes later is left lying.
    later = await fleet.produce(24)
    await fleet.until_all(later, "COMPLETED")
    await fleet.until_told([*jobs, *later], EMBED_TEXT_LOG)
    await fleet.until_read_up()
