"""D12: clocks that disagree. One worker is ten minutes ahead, one is behind, one lives in another time zone."""

import asyncio
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import grpc
import pytest

from tests.acceptance.fleet import Fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.reader import Told
from tests.acceptance.waiting import WAIT_SECONDS
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, embed_only, tokenize_thrice
from tests.fixtures.grpc_server import Answer
from tests.outages.stand import submit

OFF_SECONDS = 600
ZONE = "<-03>3"  # what America/Sao_Paulo is, without a need for the system's zone files
LEASE_SECONDS = 30
BASE_SECONDS = 2
STEADY, FLAKY = 54, 6
STEP_SECONDS = 2
PICKUP_SECONDS = 5
"""Far more than a due run waits for a worker, and far less than the clocks are off."""

AWAY = Answer(status=grpc.StatusCode.UNAVAILABLE)
STEADY_LOG = ["ACCEPTED", "STEP_CHECKPOINT embed", "COMPLETED"]
FLAKY_LOG = ["ACCEPTED", *(f"STEP_CHECKPOINT tokenize{number}" for number in range(3)), "COMPLETED"]
_IN_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

# The clock is read for each row: `now()` is older than what the statement sees.
_PUT_OFF = """
select job_id, status, attempt, run_after, clock_timestamp() as now,
       extract(epoch from run_after - last_error_at)::float as delay
  from run join run_outcome using (job_id)
 where job_id = any (%(jobs)s) and last_error_at is not null
"""
_BACKWARDS = """
select job_id from workflow_run
 where created_at > updated_at or completed_at not between created_at and updated_at or started_at < created_at
 union all
select job_id from (select job_id, occurred_at < lag(occurred_at) over (partition by job_id order by seq) as back
                      from event) told where back
"""
_LATEST_PICKUP = """
select max(checkpoint.created_at - run.run_after) from checkpoint join run using (job_id)
 where run.job_id = any (%(jobs)s) and checkpoint.step_index = 0
"""


@pytest.mark.case("D12")
async def test_d12_workers_whose_clocks_disagree_keep_the_databases_time(fleet: Fleet) -> None:
    fleet.server.script(EMBED, Answer(VECTOR.payload, delay_seconds=STEP_SECONDS))
    fleet.server.script(TOKENIZE, *[AWAY] * (2 * FLAKY), TOKENS)
    workers = await workers_that_disagree(fleet)
    began = await fleet.one("select now()")

    steady = await fleet.produce(STEADY, workflow="steady")
    flaky = [
        await submit(worker, "flaky", {"text": "a"}) for worker in itertools.islice(itertools.cycle(workers), FLAKY)
    ]
    delays = await backoffs(fleet, flaky)
    await fleet.until_all([*steady, *flaky], "COMPLETED")
    told = await fleet.until_told(steady, STEADY_LOG) + await fleet.until_told(flaky, FLAKY_LOG)
    ended = await fleet.one("select now()")

    assert await fleet.rows("select job_id from run where lost_leases > 0") == []
    for failures, found in delays.items():
        floor = BASE_SECONDS * 2 ** (failures - 1)
        assert len(found) == FLAKY
        assert floor <= min(found) <= max(found) <= floor * 1.1
    assert timedelta(0) <= await fleet.one(_LATEST_PICKUP, jobs=flaky) < timedelta(seconds=PICKUP_SECONDS)
    assert await fleet.rows(_BACKWARDS) == []
    assert_told_by(told, began, ended)
    for worker in workers:
        await assert_shown_in_utc(worker, flaky, began, ended)


async def workers_that_disagree(fleet: Fleet) -> list[WorkerProcess]:
    """Three workers, ready, each of which really has the clock that it was given."""
    await fleet.store(embed_only(), "steady")
    await fleet.store(tokenize_thrice(), "flaky")
    settings = {"lease_seconds": LEASE_SECONDS, "backoff_base_seconds": BASE_SECONDS}
    workers = [
        fleet.start_by_clock("ahead", OFF_SECONDS, "", **settings),
        fleet.start_by_clock("behind", -OFF_SECONDS, "", **settings),
        fleet.start_by_clock("elsewhere", 0, ZONE, **settings),
    ]
    for worker, off_seconds in zip(workers, (OFF_SECONDS, -OFF_SECONDS, -3 * 3_600), strict=True):
        await worker.ready()
        written = datetime.strptime(worker.log.splitlines()[-1][:8], "%H:%M:%S")  # noqa: DTZ007  # of no zone, and of any
        right = datetime.now(UTC) + timedelta(seconds=off_seconds)
        apart = (written - right.replace(tzinfo=None)).total_seconds() % 86_400
        assert min(apart, 86_400 - apart) < OFF_SECONDS / 2, f"{worker.name} has another clock: {worker.log}"
    return workers


async def backoffs(fleet: Fleet, jobs: Collection[UUID]) -> dict[int, list[float]]:
    """Watch *jobs* until all have failed twice and been taken up again: each one's delay after so many failures."""
    delays: dict[int, dict[UUID, float]] = {1: {}, 2: {}}
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            rows = await fleet.rows(_PUT_OFF, jobs=list(jobs))
            for row in rows:
                if row["status"] == "QUEUED" and row["attempt"] in delays:
                    delays[row["attempt"]][row["job_id"]] = row["delay"]
                elif row["status"] == "RUNNING":
                    assert row["run_after"] <= row["now"], "taken up too early"
            if [row["status"] for row in rows] == ["COMPLETED"] * len(jobs):
                return {failures: list(found.values()) for failures, found in delays.items()}
            await asyncio.sleep(0.05)


def assert_told_by(told: Sequence[Told], began: datetime, ended: datetime) -> None:
    """Events tell the database's time, in UTC; only their ids show whose clock they were made by."""
    off = set()
    for record in told:
        at = record.event.occurred_at.ToDatetime(tzinfo=UTC)
        assert began <= at <= ended
        assert record.timestamp_ms == int(at.timestamp() * 1_000)
        ce_time = (dict(record.headers)["ce_time"] or b"").decode()
        assert _IN_UTC.fullmatch(ce_time)
        assert datetime.fromisoformat(ce_time) == at
        made_at = datetime.fromtimestamp((UUID(record.event.event_id).int >> 80) / 1_000, UTC)
        off.add(round((made_at - at).total_seconds() / OFF_SECONDS))
    assert off == {-1, 0, 1}, "not every worker took part"


async def assert_shown_in_utc(worker: WorkerProcess, jobs: Sequence[UUID], began: datetime, ended: datetime) -> None:
    """A worker lists *jobs* by when the database made them, and shows all of their times in UTC."""
    listed = (await worker.call("list-jobs", {"workflowName": "flaky"}))["jobs"]
    assert [job["jobId"] for job in listed] == [str(job_id) for job_id in reversed(jobs)]
    got = [(await worker.call("get-job", {"jobId": str(job_id)}))["job"] for job_id in jobs]
    for job in [*listed, *got]:
        times = list(times_of(job))
        assert len(times) >= 4
        for text in times:
            assert _IN_UTC.fullmatch(text), text
            assert began <= datetime.fromisoformat(text) <= ended


def times_of(job: Any) -> Iterator[str]:
    """Every time that an answer tells, at any depth."""
    if isinstance(job, list):
        for entry in job:
            yield from times_of(entry)
    elif isinstance(job, dict):
        for name, value in job.items():
            if name.endswith(("At", "After", "Until")):
                yield value
            else:
                yield from times_of(value)
