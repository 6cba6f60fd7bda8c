"""A fleet with nothing to do is nearly silent, and wakes up at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

from store.statements import sql, statement_names
from streams.settings import load_settings
from streams.worker import Worker
from tests.acceptance.fleet import WORKFLOW, Fleet
from tests.acceptance.waiting import until

pytestmark = pytest.mark.embedded

WORKERS = 10
# Longer than an idle worker goes without a look.
WATCHED_SECONDS = 20.5
MOST_QUERIES = 3 * WATCHED_SECONDS
# As long as the relays take to agree on who has which shards.
SETTLED_SECONDS = 3.0


async def test_ten_idle_workers_together_stay_under_three_queries_a_second_and_begin_at_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted_statements(monkeypatch)
    async with workers_here(fleet, WORKERS) as workers:
        await until(lambda: all(is_ready(worker) for worker in workers), lambda: [w.health() for w in workers])
        await asyncio.sleep(SETTLED_SECONDS)
        asked.clear()
        await asyncio.sleep(WATCHED_SECONDS)
        seen = asked.copy()

        job_id = await submitted(workers[0])
        await fleet.until_all([job_id], "COMPLETED", seconds=5)
    assert sum(seen.values()) < MOST_QUERIES, seen


def counted_statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts every statement that this process sends from now on, by name."""
    names = {sql(name): name for name in statement_names()}
    asked: Counter[str] = Counter()
    execute = psycopg.AsyncConnection.execute

    async def counted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        asked[names.get(query, "another")] += 1
        return await execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
    return asked


@asynccontextmanager
async def workers_here(fleet: Fleet, count: int) -> AsyncIterator[list[Worker]]:
    """Whole workers but for intake, whose clients would keep this one process busy; and with leases as by default."""
    settings = {"roles": "runs,relay,web", "lease_seconds": 300}
    workers = [Worker(load_settings(**fleet.settings(f"worker-{number}", **settings))) for number in range(count)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)


def is_ready(worker: Worker) -> bool:
    return all(service.ready for service in worker.health())


async def submitted(worker: Worker) -> UUID:
    """Ask a worker for a run."""
    assert worker._store is not None
    answer = await worker._store.verbs("test").call(
        "submit-workflow", {"workflowName": WORKFLOW, "input": {"text": "wake up"}}
    )
    return UUID(str(answer["jobId"]))
