"""How many runs wait, and for what: counted within bounds, and what holds intake back."""

import asyncio

import pytest

from schemas.errors import StoreUnavailable
from store.database import Database
from store.looks import Looks
from store.queries import Queries
from store.submit import IntakeBatch, Submits
from streams.kafka.backpressure import Backpressure
from streams.metrics import Metrics
from streams.watch import StoreWatch
from tests.fixtures.eventually import eventually
from tests.store.samples import GROUP, Sql, record, submission


async def test_the_count_comes_from_the_due_runs_and_names_what_they_wait_for(
    database: Database, submits: Submits, sql: Sql
) -> None:
    targets = ["a:1", "b:1", "b:1", "b:1", "c:1", "c:1"]
    requests = [record(submission(target=target), offset) for offset, target in enumerate(targets)]
    await submits.batch(IntakeBatch(GROUP, requests))
    metrics = Metrics()
    backpressure = Backpressure(6, metrics)
    now = [1000.0]
    looks = Looks(database, most_queued=6, clock=lambda: now[0])
    watch = StoreWatch(database, looks, Queries(database), backpressure, metrics, asyncio.Event())
    assert await watch.look() == 1
    now[0] += 1.1
    assert backpressure.reason == "6 or more due runs are queued: 3 for b:1, 2 for c:1, 1 for a:1"
    assert metrics.registry.get_sample_value("workflow_runs_queued_runs") == 6
    await sql.execute(b"update run set run_after = now() + interval '1 hour' where next_target = 'b:1'")
    assert await watch.look() == 10
    assert backpressure.reason is None
    assert metrics.registry.get_sample_value("workflow_runs_queued_runs") == 3


async def test_what_most_runs_wait_for_is_looked_for_within_bounds(database: Database, submits: Submits) -> None:
    requests = [record(submission(target=f"t{number % 8}:1"), number) for number in range(36)]
    await submits.batch(IntakeBatch(GROUP, requests))
    queries = Queries(database)
    assert await queries.queued_targets() == {"t0:1": 5, "t1:1": 5, "t2:1": 5, "t3:1": 5, "t4:1": 4}
    assert await queries.queued_targets(targets=2, limit=3) == {"t0:1": 3, "t1:1": 3}


async def test_the_watch_looks_at_once_when_the_connection_is_lost(database: Database) -> None:
    metrics, connection, looks = Metrics(), asyncio.Event(), Looks(database)
    watch = StoreWatch(database, looks, Queries(database), Backpressure(6, metrics), metrics, connection)
    watching = asyncio.create_task(watch.run())
    first = await looks.look(newest_seconds=60)
    await database.close()
    connection.set()
    await eventually(lambda: looks.away is not None)
    assert not watch.health().ready
    await database.open()
    await eventually(lambda: looks.away is None)
    watching.cancel()
    assert first.queued == 0


async def test_what_a_look_of_others_could_not_see_is_soon_looked_at_again(database: Database) -> None:
    """They may not look for long, and health would tell of an outage that is over."""
    metrics, looks = Metrics(), Looks(database)
    watch = StoreWatch(database, looks, Queries(database), Backpressure(6, metrics), metrics, asyncio.Event())
    watching = asyncio.create_task(watch.run())
    await looks.look(newest_seconds=60)
    await database.close()
    with pytest.raises(StoreUnavailable):
        await looks.look()
    assert not watch.health().ready
    await database.open()
    await eventually(lambda: looks.away is None)
    watching.cancel()
