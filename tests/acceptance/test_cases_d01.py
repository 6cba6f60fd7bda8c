"""D01: rows that cannot be inserted hold the offset."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import UUID, uuid4

import pytest

from streams.dev.postgres import EmbeddedPostgres
from tests.acceptance.fleet import WORKFLOW, Fleet
from tests.acceptance.forked import Forked
from tests.acceptance.processes import count_of, health_of
from tests.acceptance.producer import Request
from tests.acceptance.waiting import until
from tests.fixtures.least_rights import least_rights

READ_BEFORE = 40
KILLED_AFTER_SECONDS = 1.0
# The case has 20 s: this is how long the fault lasts once it is seen, and several tries of the refused batch.
FAULT_SECONDS = 2.0
HEALED_SECONDS = 30.0


@asynccontextmanager
async def insert_revoked(fleet: Fleet, role: str, postgres: EmbeddedPostgres) -> AsyncIterator[None]:
    await fleet.execute(f"revoke insert on run from {role}")
    yield
    await fleet.execute(f"grant insert on run to {role}")


@asynccontextmanager
async def postgres_stopped(fleet: Fleet, role: str, postgres: EmbeddedPostgres) -> AsyncIterator[None]:
    await asyncio.to_thread(postgres.stop)
    yield
    await asyncio.to_thread(postgres.start)


Fault = Callable[[Fleet, str, EmbeddedPostgres], AbstractAsyncContextManager[None]]


@pytest.mark.case("D01")
@pytest.mark.parametrize("killed", [False, True], ids=["the worker lives", "the worker is killed"])
@pytest.mark.parametrize("fault", [insert_revoked, postgres_stopped])
async def test_d01_the_offset_stays_while_rows_cannot_be_inserted_and_then_each_request_is_a_row(
    outage_fleet: Fleet, own_postgres: EmbeddedPostgres, fault: Fault, killed: bool
) -> None:
    fleet = outage_fleet
    late = [uuid4() for _ in range(3)]
    async with least_rights(fleet.database_url) as (role, workers_url), ending() as workers:
        workers.append(fleet.fork("worker-a", database_url=workers_url))
        await send(fleet, [uuid4() for _ in range(READ_BEFORE)])
        await until_committed(fleet, READ_BEFORE)

        async with fault(fleet, role, own_postgres):
            await send(fleet, late)
            if killed:
                await asyncio.sleep(KILLED_AFTER_SECONDS)
                workers[0].kill()
                workers.append(fleet.fork("worker-b", database_url=workers_url))
            if fault is insert_revoked or not killed:  # one that starts without a store waits for it, and reads nothing
                await is_visible(workers[-1])
            await asyncio.sleep(FAULT_SECONDS)
            assert fleet.committed()[0] == READ_BEFORE

        await until_committed(fleet, READ_BEFORE + 3)
        rows = await fleet.rows("select job_id from run where job_id = any (%(late)s) order by created_at", late=late)
        assert [row["job_id"] for row in rows] == late
        assert await fleet.one("select count(*) from run") == READ_BEFORE + 3
        assert await fleet.one("select count(*) from dead_letter") == 0
        assert workers[-1].process.is_alive()


@asynccontextmanager
async def ending() -> AsyncIterator[list[Forked]]:
    """Workers that end with the block."""
    workers: list[Forked] = []
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


async def send(fleet: Fleet, jobs: list[UUID]) -> None:
    """Ask for *jobs* on one partition, in this order."""
    for job_id in jobs:
        fleet.producer.put(Request(job_id, WORKFLOW, {"text": "one by one"}), partition=0)
    await asyncio.to_thread(fleet.producer.flush)


async def until_committed(fleet: Fleet, offset: int) -> None:
    seen: dict[int, int] = {}

    async def committed() -> bool:
        nonlocal seen
        seen = await asyncio.to_thread(fleet.committed)
        return seen.get(0) == offset

    await until(committed, lambda: f"committed {seen}", seconds=HEALED_SECONDS)


async def is_visible(worker: Forked) -> None:
    """Wait until health, metric and log of *worker* say that intake holds its partitions, and why."""

    async def visible() -> bool:
        status, said = await health_of(worker.health_url, "/readyz")
        if status != 503 or "intake holds " not in worker.log:
            return False
        [intake] = [one for one in said["services"] if one["name"] == "intake"]
        return not intake["ready"] and not await count_of(worker.health_url, "service_ready", service="intake")

    await until(visible, lambda: worker.log)
