"""Pruning goes by itself: nearly silent while there is nothing, at once while there is more, and through outages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from store.database import Database
from store.prune import Prune
from streams.dev.postgres import EmbeddedPostgres
from streams.driver.pruning import Pruning
from streams.metrics import Metrics
from streams.settings import load_settings
from streams.worker import Worker
from tests.driver.world import until
from tests.store.samples import Sql, connected, select_one

OLD_RUNS = b"""
    with job as (select gen_random_uuid() as job_id from generate_series(1, 20))
    insert into run (job_id, status, completed_at, shard, engine_level, max_attempts, steps_total,
                     fingerprint, tenant_id, workflow_name)
    select job_id, 'COMPLETED', now() - interval '8 d', 0, 1, 3, 3, 'f', 'default', 'embed-text' from job"""


@asynccontextmanager
async def pruning(url: str, *, idle_seconds: float) -> AsyncIterator[Metrics]:
    database = Database(url, pool_size=2)
    await database.open()
    prune = Prune(
        database, prune_after_seconds=7 * 86_400, remember_seconds=30 * 86_400, settle_seconds=0, batch_runs=3
    )
    metrics = Metrics()
    running = asyncio.create_task(Pruning(prune=prune, metrics=metrics, idle_seconds=idle_seconds).run())
    try:
        yield metrics
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await database.close()


async def runs(sql: Sql) -> int:
    return int(await select_one(sql, "select count(*) from run"))


async def test_many_runs_are_pruned_without_a_pause_and_counted(database_url: str) -> None:
    async with connected(database_url) as sql:
        await sql.execute(OLD_RUNS)
        async with pruning(database_url, idle_seconds=0.2) as metrics:
            await until(lambda: metrics.registry.get_sample_value("workflow_runs_runs_pruned_total") == 20)
        assert await runs(sql) == 0
        assert await select_one(sql, "select count(*) from pruned_run") == 20


async def test_an_idle_database_is_left_alone(database_url: str) -> None:
    async with pruning(database_url, idle_seconds=60), connected(database_url) as sql:
        await asyncio.sleep(0.5)
        await sql.execute(OLD_RUNS)
        await asyncio.sleep(0.5)
        assert await runs(sql) == 20


async def test_an_outage_is_waited_out(own_postgres: EmbeddedPostgres) -> None:
    async with pruning(own_postgres.url(), idle_seconds=0.2) as metrics:
        own_postgres.stop()
        await asyncio.sleep(0.6)
        own_postgres.start()
        async with connected(own_postgres.url()) as sql:
            await sql.execute(OLD_RUNS)
            await until(lambda: metrics.registry.get_sample_value("workflow_runs_runs_pruned_total") == 20)


async def test_a_worker_with_the_role_prunes_by_its_settings(database_url: str) -> None:
    settings = load_settings(database_url=database_url, roles="runs", health_bind="", prune_after_seconds=9 * 86_400)
    async with connected(database_url) as sql:
        await sql.execute(OLD_RUNS)
        await sql.execute(b"""update run set completed_at = now() - interval '10 d'
                               where job_id in (select job_id from run order by job_id limit 5)""")
        worker = Worker(settings)
        running = asyncio.create_task(worker.run())

        async def remembered() -> int:
            return int(await select_one(sql, "select count(*) from pruned_run"))

        for _ in range(1_000):
            if await remembered():
                break
            await asyncio.sleep(0.02)
        assert await remembered() == 5
        worker.stop()
        assert await running == 0
