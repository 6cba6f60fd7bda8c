"""Postgres goes away and comes back: work waits, nothing is lost or counted, nobody restarts anything."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest

from streams.dev.postgres import EmbeddedPostgres
from tests.driver.stories import EMBED
from tests.outages.stand import KAFKA_SECONDS, STORE_SECONDS, Stand

pytestmark = pytest.mark.asyncio(loop_scope="package")


@contextmanager
def stopped(stand: Stand) -> Iterator[None]:
    stand.postgres.stop()
    yield
    stand.postgres.start()


@contextmanager
def killed(stand: Stand) -> Iterator[None]:
    stand.postgres.kill()
    yield
    stand.postgres.start()


@contextmanager
def read_only(stand: Stand) -> Iterator[None]:
    """As after a failover that left the worker's connections on a server which takes no writes."""
    _alter(stand.postgres, "SET default_transaction_read_only = on")
    yield
    _alter(stand.postgres, "RESET default_transaction_read_only")


@contextmanager
def refused(stand: Stand) -> Iterator[None]:
    with stand.refused(stand.to_postgres):
        yield


@contextmanager
def black_hole(stand: Stand) -> Iterator[None]:
    with stand.black_hole(stand.to_postgres):
        yield


def _alter(postgres: EmbeddedPostgres, change: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM {change}".encode())
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("outage", [stopped, killed, read_only, refused, black_hole])
async def test_work_goes_on_by_itself_once_postgres_is_back(
    stand: Stand, outage: Callable[[Stand], AbstractContextManager[None]]
) -> None:
    worker = await stand.worker()
    async with stand.watching(worker) as watch:
        with stand.fleet.server.holding(EMBED) as held:
            underway = await stand.fleet.produce(3)
            for _ in underway:
                await held.arrived()
            with outage(stand):
                held.release()
                meanwhile = await stand.fleet.produce(20)
                await watch.until_troubled("intake", *(["store"] if outage is read_only else []))
        await stand.until_finished([*underway, *meanwhile], runs=STORE_SECONDS, events=KAFKA_SECONDS)
        await watch.until_ready(seconds=STORE_SECONDS)
    await stand.counted_nothing([*underway, *meanwhile])
    await stand.fleet.until_read_up()


async def test_a_restart_of_postgres_that_nobody_notices_costs_nothing(stand: Stand) -> None:
    worker = await stand.worker()
    async with stand.watching(worker):
        jobs = await stand.fleet.produce(10)
        for _ in range(3):
            stand.postgres.restart()
            jobs += await stand.fleet.produce(5)
        await stand.until_finished(jobs, runs=STORE_SECONDS, events=KAFKA_SECONDS)
