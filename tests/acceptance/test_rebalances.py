"""Workers join and leave under load: each request is one run, told once, whoever reads it, and however often."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from tests.acceptance.fleet import WORKFLOW, Fleet
from tests.acceptance.offsets_watch import watched_offsets
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.producer import Request
from tests.acceptance.waiting import until
from tests.driver.stories import embed_only

EMBED_ONLY_LOG = ["ACCEPTED", "STEP_CHECKPOINT embed", "COMPLETED"]
# Inserts that take their time keep the load up while workers come and go.
SLOW_INSERTS = """
    create function take_a_while() returns trigger language plpgsql as
      $$ begin perform pg_sleep(0.005); return new; end $$;
    create trigger slow before insert on run for each row execute function take_a_while();
"""
SETTINGS = {"batch_records": 40, "permits_per_target": 32}


@pytest.mark.case("D03")
async def test_d03_two_thousand_requests_survive_workers_that_join_and_leave(fleet: Fleet) -> None:
    await fleet.store(embed_only())
    await fleet.execute(SLOW_INSERTS)
    first = fleet.start("worker-1", **SETTINGS)
    async with watched_offsets(fleet) as watch:
        sent = [Request(uuid4(), WORKFLOW, {"text": f"text {number}"}) for number in range(20)]
        await fleet.send(sent)
        jobs = [*(request.job_id for request in sent), *await fleet.produce(680)]
        await rows(fleet, 300)
        second = fleet.start("worker-2", **SETTINGS)
        jobs += await fleet.produce(500)
        await second.ready()
        jobs += await fleet.produce(400)
        await stored(second)
        await rows(fleet, 900)
        first.terminate()
        jobs += await fleet.produce(400)
        await rows(fleet, 1_400)
        second.kill()
        heirs = [fleet.start(f"worker-{number}", **SETTINGS) for number in (3, 4)]
        await fleet.until_read_up()
        assert await first.wait(15) == 0

    assert len(jobs) == 2_000
    assert watch.ahead_of_rows(fleet.produced) == set()
    assert watch.rewound() == []
    assert [heir.running for heir in heirs] == [True, True]
    await each_ran_once(fleet, jobs)
    await the_same_again_changes_nothing_and_other_content_is_recorded(fleet, sent)


async def rows(fleet: Fleet, number: int) -> None:
    """Wait until there are that many runs."""
    seen = 0

    async def enough() -> bool:
        nonlocal seen
        seen = int(await fleet.one("select count(*) from run"))
        return seen >= number

    await until(enough, lambda: f"{seen} of {number} rows")


async def stored(worker: WorkerProcess) -> None:
    """Wait until *worker* has made runs itself."""

    async def some() -> bool:
        return await worker.count("requests_total") > 0

    await until(some, lambda: worker.log)


async def each_ran_once(fleet: Fleet, jobs: Collection[UUID]) -> None:
    await fleet.until_all(jobs, "COMPLETED")
    assert await fleet.one("select count(*) from run") == len(jobs)
    assert await fleet.one("select count(*) from event where type = 1") == len(jobs)
    await fleet.until_told(jobs, EMBED_ONLY_LOG)


async def the_same_again_changes_nothing_and_other_content_is_recorded(fleet: Fleet, sent: Sequence[Request]) -> None:
    jobs = [request.job_id for request in sent]
    before = [await fleet.row(job_id) for job_id in jobs]
    await fleet.send([*sent, replace(sent[0], input={"text": "something else"})])
    await fleet.until_read_up()
    assert [await fleet.row(job_id) for job_id in jobs] == before
    [letter] = await fleet.rows("select code, reason from dead_letter")
    assert letter["code"] == "conflict"
    assert str(jobs[0]) in letter["reason"]
