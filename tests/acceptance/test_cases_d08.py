"""D08: SIGTERM in the middle of a step. Calls get their grace, the rest goes back, and no run is blamed."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from uuid import UUID

import pytest

from store.database import Database
from store.notify import Notifier
from store.submit import Submits
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.forked import Forked
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE
from tests.fixtures.grpc_server import Hold
from tests.store.samples import submission

pytestmark = [pytest.mark.embedded, pytest.mark.case("D08")]

RUNS = 6
GRACE_SECONDS = 5
STOP_SECONDS = 5
SETTINGS = {"max_attempts": 1, "lease_seconds": 60}
CLAIM_SECONDS = 1.5
"""Longer than a worker that still claims leaves a run lying that it is told of."""


async def all_in_a_call(fleet: Fleet, held: Hold) -> list[UUID]:
    """Ask for six runs, and wait until each is in its second call, with its request's offset behind it."""
    jobs = await fleet.produce(RUNS)
    for _ in jobs:
        await held.arrived()
    return jobs


async def told_to_stop(worker: Forked) -> None:
    """Send SIGTERM, and wait until the worker has taken it in."""
    worker.terminate()

    async def stopping() -> bool:
        return not await worker.is_ready()

    await until(stopping, lambda: worker.log)


async def queued_run(fleet: Fleet) -> UUID:
    """A due run that came in by another door, and of which every worker is told."""
    database = Database(fleet.database_url, pool_size=2)
    await database.open()
    notifier = Notifier(database)
    hash_of = "select definition_hash from definition"
    known = {"definition_hash": await fleet.one(hash_of), "steps_total": 2}
    submitted = await Submits(database, on_committed=notifier.notify).submit(submission(**known))
    await notifier.close()
    await database.close()
    return submitted.job_id


async def went_back(fleet: Fleet, jobs: Sequence[UUID], *, claims: int) -> bool:
    """Whether each of *jobs* is queued for its second call, and nothing is counted against it."""
    rows = [await fleet.row(job_id) for job_id in jobs]
    seen = {
        tuple(row[name] for name in ("status", "next_target", "lease_owner", "fence", "attempt", "lost_leases"))
        for row in rows
    }
    return seen == {("QUEUED", "embedder", None, claims, 0, 0)} and all(row["last_error"] is None for row in rows)


@pytest.mark.spec(67)
async def test_d08_with_a_grace_that_is_longer_than_the_calls_every_run_is_finished(fleet: Fleet) -> None:
    with closing(fleet.fork("first", drain_grace_seconds=60, **SETTINGS)) as worker:
        with fleet.server.holding(EMBED) as held:
            jobs = await all_in_a_call(fleet, held)
            await told_to_stop(worker)
            later = await queued_run(fleet)
            await asyncio.sleep(CLAIM_SECONDS)
            held.release()
            assert await worker.wait(STOP_SECONDS) == 0
        assert await fleet.statuses(jobs) == {"COMPLETED": RUNS}
        assert (await fleet.row(later))["fence"] == 0
        assert fleet.committed() == fleet.producer.ends()

    # What its producer was given had arrived, and was known to have when it ended: the next one sends nothing again.
    with closing(fleet.fork("second", **SETTINGS)):
        await fleet.until_all([later], "COMPLETED")
        told = await fleet.until_told([*jobs, later], EMBED_TEXT_LOG)
    assert len(told) == (RUNS + 1) * len(EMBED_TEXT_LOG)


@pytest.mark.spec(67)
async def test_d08_calls_that_outlast_their_grace_go_back_at_once_and_a_second_signal_ends_the_grace(
    fleet: Fleet,
) -> None:
    with fleet.server.holding(EMBED) as held:
        with closing(fleet.fork("first", drain_grace_seconds=GRACE_SECONDS, **SETTINGS)) as first:
            jobs = await all_in_a_call(fleet, held)
            began = time.monotonic()
            await told_to_stop(first)
            later = await queued_run(fleet)
            assert await first.wait(GRACE_SECONDS + STOP_SECONDS) == 0
            assert time.monotonic() - began > GRACE_SECONDS
            assert await went_back(fleet, jobs, claims=1)
            assert all([await fleet.calls(EMBED, job_id)[0].was_cut() for job_id in jobs])
            assert (await fleet.row(later))["fence"] == 0
            assert fleet.committed() == fleet.producer.ends()

        with closing(fleet.fork("second", drain_grace_seconds=60, **SETTINGS)) as second:
            for _ in [*jobs, later]:
                await held.arrived()
            await told_to_stop(second)
            second.terminate()
            assert await second.wait(STOP_SECONDS) == 0
            assert await went_back(fleet, jobs, claims=2)

        with closing(fleet.fork("third", **SETTINGS)):
            held.release()
            await fleet.until_all([*jobs, later], "COMPLETED")
            await fleet.until_told([*jobs, later], EMBED_TEXT_LOG)
    assert {len(fleet.calls(TOKENIZE, job_id)) for job_id in jobs} == {1}
    assert {len(fleet.calls(EMBED, job_id)) for job_id in jobs} == {3}
