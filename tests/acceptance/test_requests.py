"""From a request record to the last event, on real processes."""

import pytest

from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.driver.stories import EMBED, TOKENIZE

pytestmark = pytest.mark.embedded


@pytest.mark.spec(58, 91)
async def test_framed_and_plain_requests_become_finished_runs_whose_events_arrive_in_order(fleet: Fleet) -> None:
    await fleet.started("worker-a", "worker-b")
    framed = await fleet.produce(10)
    plain = await fleet.produce(10, format="json")
    jobs = [*framed, *plain]

    await fleet.until_all(jobs, "COMPLETED")
    told = await fleet.until_told(jobs, EMBED_TEXT_LOG)

    assert len(told) == len(jobs) * len(EMBED_TEXT_LOG)
    assert await fleet.one("select count(*) from run") == len(jobs)
    for job_id in jobs:
        row = await fleet.row(job_id)
        assert (row["result"], row["attempt"], row["lost_leases"]) == ({**row["input"], "vector": [1.0]}, 0, 0)
        assert [len(fleet.calls(method, job_id)) for method in (TOKENIZE, EMBED)] == [1, 1]
    await fleet.until_read_up()
