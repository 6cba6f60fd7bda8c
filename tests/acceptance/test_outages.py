"""Postgres and Kafka go away and come back: nobody restarts anything, and every run finishes."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from streams.dev.postgres import EmbeddedPostgres
from tests.acceptance.fleet import EMBED_TEXT_LOG, LEASE_SECONDS, WORKFLOW, Fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, VECTOR
from tests.fixtures.grpc_server import Answer


async def test_outages_of_postgres_and_of_kafka_under_load_heal_by_themselves(
    outage_fleet: Fleet, own_postgres: EmbeddedPostgres
) -> None:
    fleet = outage_fleet
    fleet.server.script(EMBED, Answer(VECTOR.payload, delay_seconds=0.3))
    workers = await fleet.started("worker-a", "worker-b")
    async with always_alive(workers):
        jobs = await fleet.produce(40)
        await some_call(fleet)
        own_postgres.stop()
        await all_become(workers, 503, {"store", "runs", "relay"})
        jobs += await fleet.produce(20)
        await asyncio.sleep(1.5 * LEASE_SECONDS)  # so long that every lease runs out
        own_postgres.start()
        await all_become(workers, 200)
        await fleet.until_all(jobs, "COMPLETED")

        fleet.kafka.stop()
        later = [await submitted(workers[0]) for _ in range(10)]
        await fleet.until_all(later, "COMPLETED")
        await all_become(workers, 503, {"intake", "relay"})
        fleet.kafka.start()
        jobs += [*later, *await fleet.produce(20)]
        await fleet.until_all(jobs, "COMPLETED")
        await fleet.until_told(jobs, EMBED_TEXT_LOG)
        await fleet.until_read_up()
        await all_become(workers, 200)

    assert await fleet.one("select count(*) from run") == len(jobs)
    assert await fleet.one("select count(*) from run where attempt <> 0 or lost_leases <> 0") == 0


async def some_call(fleet: Fleet) -> None:
    """Wait until a step is being worked on."""
    await until(lambda: bool(fleet.server.calls(EMBED)), lambda: "no call")


async def submitted(worker: WorkerProcess) -> UUID:
    """Ask a worker for a run over HTTP."""
    call = {"workflowName": WORKFLOW, "input": {"text": "asked over HTTP"}}
    request = urllib.request.Request(
        f"{worker.url}/verbs/submit-workflow", json.dumps(call).encode(), {"Content-Type": "application/json"}
    )

    def post() -> UUID:
        with urllib.request.urlopen(request, timeout=10) as response:
            return UUID(json.load(response)["jobId"])

    return await asyncio.to_thread(post)


async def all_become(workers: Sequence[WorkerProcess], status: int, failing: AbstractSet[str] = frozenset()) -> None:
    """Wait until `/readyz` of every worker answers *status* and names these services among those that cannot work."""
    for worker in workers:
        await becomes(worker, status, failing)


async def becomes(worker: WorkerProcess, status: int, failing: AbstractSet[str]) -> None:
    seen: Any = None

    async def so() -> bool:
        nonlocal seen
        answered, seen = await worker.health("/readyz")
        return answered == status and failing <= {
            service["name"] for service in seen["services"] if not service["ready"]
        }

    await until(so, lambda: f"{worker.name} does not become {status} for {failing}: {seen}")


@asynccontextmanager
async def always_alive(workers: Sequence[WorkerProcess]) -> AsyncIterator[None]:
    """Ask each worker all along: it must answer 200 at `/healthz` every time, and be the process it was."""
    pids = [worker.pid for worker in workers]
    answers: list[tuple[str, int]] = []

    async def ask() -> None:
        while True:
            answers.extend([(worker.name, (await worker.health("/healthz"))[0]) for worker in workers])
            await asyncio.sleep(0.2)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait({asking})
    assert {status for _, status in answers} == {200}, answers
    assert len(answers) > 20
    assert [worker.pid for worker in workers if worker.running] == pids
