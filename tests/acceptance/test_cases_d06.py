"""D06: a run that kills its worker every time."""

from contextlib import closing
from uuid import UUID

import pytest

from tests.acceptance.fleet import Fleet
from tests.driver.stories import EMBED, embed_only, tokenize_thrice

MOST_LOST = 3


@pytest.mark.case("D06")
async def test_d06_a_run_whose_claims_kill_their_workers_is_dead_after_three_and_the_others_go_on(fleet: Fleet) -> None:
    await fleet.store(embed_only(), "killer")
    await fleet.store(tokenize_thrice(), "harmless")
    driving = {"roles": "runs", "lease_seconds": 3, "max_attempts": 3, "max_lost_leases": MOST_LOST}
    with closing(fleet.fork("around", roles="intake,relay,web")) as around, fleet.server.holding(EMBED) as held:
        [killer] = await fleet.produce(1, workflow="killer")
        others = await fleet.produce(3, workflow="harmless")
        await fleet.until_stored([killer, *others])
        for _ in range(MOST_LOST):
            with closing(fleet.fork("driver", **driving)) as victim:
                await held.arrived()
                victim.kill()
        with closing(fleet.fork("driver", **driving)):
            await fleet.until_all([killer], "DEAD")
            later = {"workflowName": "harmless", "input": {"text": "later"}}
            others.append(UUID((await around.call("submit-workflow", later))["jobId"]))
            await fleet.until_all(others, "COMPLETED")
            await fleet.until_told([killer], ["ACCEPTED", "DEAD"])

    row = await fleet.row(killer)
    assert (row["lost_leases"], row["fence"], row["attempt"]) == (MOST_LOST, MOST_LOST, 0)
    assert row["error"].startswith(f"lease expired {MOST_LOST} times in a row, last held by driver/")
    assert await fleet.log(killer) == ["ACCEPTED", "DEAD"]
    assert len(fleet.calls(EMBED, killer)) == MOST_LOST
