"""SIGTERM: calls get their grace, then every run goes back to the others, and nothing is counted against it."""

import time

import pytest

from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE

pytestmark = pytest.mark.embedded

GRACE_SECONDS = 6
STOP_SECONDS = 5


async def is_stopping(worker: WorkerProcess) -> None:
    """Wait until *worker* has taken a signal in."""

    async def not_ready() -> bool:
        return (await worker.health("/readyz"))[0] == 503

    await until(not_ready, lambda: worker.log)


@pytest.mark.spec(67)
async def test_sigterm_in_the_middle_of_a_call_releases_the_run_and_a_second_one_ends_the_grace(fleet: Fleet) -> None:
    await fleet.started("worker-a", "worker-b", drain_grace_seconds=GRACE_SECONDS, lease_seconds=60, max_attempts=1)
    with fleet.server.holding(EMBED) as held:
        [job_id] = await fleet.produce(1)
        await held.arrived()
        first = await fleet.owner_of(job_id)
        began = time.monotonic()
        first.terminate()
        assert await first.wait(GRACE_SECONDS + STOP_SECONDS) == 0
        assert time.monotonic() - began > GRACE_SECONDS
        assert await fleet.calls(EMBED, job_id)[0].was_cut()

        await held.arrived()
        second = await fleet.owner_of(job_id)
        third = fleet.start("worker-c")
        began = time.monotonic()
        second.terminate()
        await is_stopping(second)
        second.terminate()
        assert await second.wait(STOP_SECONDS) == 0
        assert time.monotonic() - began < GRACE_SECONDS
        assert await fleet.log(job_id) == EMBED_TEXT_LOG[:2]

        await held.arrived()
        assert await fleet.owner_of(job_id) is third
        held.release()
        await fleet.until_all([job_id], "COMPLETED")

    row = await fleet.row(job_id)
    assert (row["fence"], row["attempt"], row["lost_leases"], row["last_error"]) == (3, 0, 0, None)
    assert [len(fleet.calls(method, job_id)) for method in (TOKENIZE, EMBED)] == [1, 3]
    await fleet.until_told([job_id], EMBED_TEXT_LOG)
