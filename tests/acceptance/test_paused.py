"""A worker that comes back after its lease: it was overtaken, and nothing of what it still does counts."""

import grpc
import pytest

from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, VECTOR, embed_text
from tests.fixtures.grpc_server import Answer

DECIDE = "/text.v1.Desk/Decide"
DECIDED_LOG = ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT decide", "COMPLETED"]


def decided_text() -> dict[str, object]:
    """As `embed_text`, with another service in its second step."""
    tokenize = embed_text()["steps"][0]
    decide = {"name": "decide", "target": "desk", "method": DECIDE[1:], "rules": ["text = input.text"]}
    output = {"type": "text.v1.Text", "rules": ["text = input.text"]}
    return {**embed_text(steps=[tokenize, decide]), "name": "decided-text", "output": output}


@pytest.mark.case("D05")
@pytest.mark.spec(79)
@pytest.mark.parametrize("second", ["worker-b", "worker-a"], ids=["another-worker-id", "the-same-worker-id"])
async def test_d05_a_worker_that_comes_back_after_its_lease_changes_and_announces_nothing(
    fleet: Fleet, second: str
) -> None:
    fleet.server.script(EMBED, Answer(status=grpc.StatusCode.INTERNAL, details="comes too late"), VECTOR)
    fleet.server.script(DECIDE, Answer())
    await fleet.store(decided_text(), "decided-text")
    [stale] = await fleet.started("worker-a")
    with fleet.server.holding(EMBED) as quick, fleet.server.holding(DECIDE) as slow:
        overtaken = await fleet.produce(2)
        [underway] = await fleet.produce(1, workflow="decided-text")
        for hold in (quick, quick, slow):
            await hold.arrived()
        stale.pause()
        [live] = await fleet.started(second)
        for hold in (quick, quick, slow):
            await hold.arrived()

        quick.release()
        await fleet.until_all(overtaken, "COMPLETED")
        finished = [await fleet.row(job_id) for job_id in overtaken]
        stale.resume()
        lost = 0.0

        async def all_lost() -> bool:
            nonlocal lost
            lost = await stale.count("leases_lost_total")
            return lost == 3

        await until(all_lost, lambda: f"{lost} lost leases")
        assert await fleet.owner_of(underway) is live
        slow.release()
        await fleet.until_all([underway], "COMPLETED")

    assert [await fleet.row(job_id) for job_id in overtaken] == finished
    for job_id in (*overtaken, underway):
        row = await fleet.row(job_id)
        assert (row["fence"], row["attempt"], row["lost_leases"], row["error"]) == (2, 0, 0, None)
        assert "lease expired" in row["last_error"]
        assert [checkpoint["fence"] for checkpoint in row["checkpoints"]] == [1, 2]
    await fleet.until_told(overtaken, EMBED_TEXT_LOG)
    await fleet.until_told([underway], DECIDED_LOG)
    dropped = [line for line in stale.log.splitlines() if "no longer holds the lease" in line]
    assert sorted(line.rpartition("job_id=")[2] for line in dropped) == sorted(map(str, (*overtaken, underway)))
    assert (await stale.count("leases_lost_total"), await live.count("leases_lost_total")) == (3, 0)
    await stale.ready()
