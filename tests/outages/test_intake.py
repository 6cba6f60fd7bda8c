"""A store that refuses the rows of intake: no offset moves past a request, and nothing needs to be restarted."""

import asyncio
from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import conninfo

from streams.dev.postgres import EmbeddedPostgres
from tests.acceptance.fleet import WORKFLOW
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.producer import Request
from tests.acceptance.waiting import until
from tests.outages.stand import Stand

pytestmark = pytest.mark.asyncio(loop_scope="package")

HEALED_SECONDS = 30.0
ROLE = "workflow_runs_worker"
ALL = "SELECT, INSERT, UPDATE, DELETE"


def execute(postgres: EmbeddedPostgres, *statements: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def as_role(outage_postgres: EmbeddedPostgres) -> str:
    """The URL of a role which owns nothing and may do what a worker must."""
    execute(
        outage_postgres,
        f"DO $$ BEGIN CREATE ROLE {ROLE} LOGIN PASSWORD 'a secret'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        f"GRANT USAGE ON SCHEMA workflow_runs TO {ROLE}",
        f"GRANT {ALL} ON ALL TABLES IN SCHEMA workflow_runs TO {ROLE}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA workflow_runs TO {ROLE}",
    )
    return conninfo.make_conninfo(outage_postgres.url(), user=ROLE, password="a secret")


def revoke(stand: Stand) -> None:
    execute(stand.postgres, f"REVOKE INSERT ON workflow_runs.run FROM {ROLE}")


def grant(stand: Stand) -> None:
    execute(stand.postgres, f"GRANT INSERT ON workflow_runs.run TO {ROLE}")


def stop(stand: Stand) -> None:
    stand.postgres.stop()


def start(stand: Stand) -> None:
    stand.postgres.start()


@pytest.mark.case("D01")
@pytest.mark.parametrize(("begin", "end"), [(revoke, grant), (stop, start)], ids=["INSERT revoked", "Postgres stopped"])
@pytest.mark.parametrize("killed", [False, True], ids=["the same worker", "another worker"])
async def test_d01_no_offset_moves_past_a_request_that_is_not_stored(
    stand: Stand, as_role: str, begin: Callable[[Stand], None], end: Callable[[Stand], None], killed: bool
) -> None:
    shared = await stand.worker()
    shared.pause()  # else it would read the requests
    fleet = stand.fleet
    worker = stand.start("worker-d", database_url=as_role, roles="intake")
    try:
        await worker.ready()
        before = await produced_to_one_partition(stand, 3)
        await fleet.until_stored(before)
        await fleet.until_read_up()
        committed = await asyncio.to_thread(fleet.committed)
        begin(stand)
        try:
            meanwhile = await produced_to_one_partition(stand, 3)
            await until_held(worker)
            assert "intake holds its partitions" in worker.log
            if killed:
                worker.kill()
                worker = stand.start("worker-e", database_url=as_role, roles="intake")
                await asyncio.sleep(2)  # seconds of the fault with another worker in the group
            assert await asyncio.to_thread(fleet.committed) == committed
        finally:
            end(stand)
        await fleet.until_stored(meanwhile, seconds=HEALED_SECONDS)
        await fleet.until_read_up(seconds=HEALED_SECONDS)
        rows = await fleet.rows(
            "select job_id from run where job_id = any (%(jobs)s) order by created_at", jobs=meanwhile
        )
        assert [row["job_id"] for row in rows] == meanwhile
    finally:
        worker.kill()
        shared.resume()
        await shared.ready()


async def produced_to_one_partition(stand: Stand, count: int) -> list[UUID]:
    jobs = [uuid4() for _ in range(count)]
    for job_id in jobs:
        stand.fleet.producer.put(Request(job_id, WORKFLOW, {"text": "a"}), partition=0)
    await asyncio.to_thread(stand.fleet.producer.flush)
    return jobs


async def until_held(worker: WorkerProcess) -> None:
    """Wait until *worker* says that intake waits for the store; it is alive all the same."""

    async def held() -> bool:
        _, said = await worker.health("/readyz")
        return any(one["name"] == "intake" and not one["ready"] for one in said["services"])

    await until(held, lambda: "intake says nothing of the fault")
    assert (await worker.health("/healthz"))[0] == 200
