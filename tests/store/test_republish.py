"""Events are sent again from the log: what is queued, in which order, and what it leaves alone."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import NotFound
from store.database import Database
from store.notify import RELAY
from store.republish import Progress, Republish
from store.submit import Submits
from tests.store.samples import Sql, Woken, connected, select, select_one, until_blocked
from tests.store.test_relay_operations import a_run, fail


@pytest.fixture
def republish(database: Database, woken: Woken) -> Republish:
    return Republish(database, actor="cli:me", on_committed=woken, runs_per_page=2)


async def the_end(progress: AsyncIterator[Progress]) -> Progress:
    return [told async for told in progress][-1]


async def published(sql: Sql) -> None:
    """Everything is out."""
    await sql.execute(b"delete from relay_queue")


async def queued(sql: Sql, job_id: UUID) -> list[tuple[Any, ...]]:
    rows = await select(
        sql, "select seq, attempts, last_error from relay_queue where job_id = %(job)s order by id", {"job": job_id}
    )
    return [tuple(row.values()) for row in rows]


async def a_time(sql: Sql) -> datetime:
    found: datetime = await select_one(sql, "select clock_timestamp()")
    return found


async def test_all_runs_are_gone_through_and_what_is_old_stays_as_it_is(
    republish: Republish, submits: Submits, sql: Sql, woken: Woken
) -> None:
    old = await a_run(submits, sql, events=2)
    half = await a_run(submits, sql)
    await sql.execute(b"update event set occurred_at = now() - interval '1 hour'")
    since = await a_time(sql)
    await sql.execute(
        b"insert into event (job_id, seq, event_id, attempt, type, status, step) "
        b"values (%(job)s, 2, new_event_id(), 1, 2, 'RUNNING', 'embed')",
        {"job": half},
    )
    new = [await a_run(submits, sql, events=3) for _ in range(4)]
    await published(sql)

    done = await the_end(republish.all_since(since, reason="the sink lost them"))

    assert done == Progress(6, 5, 13)
    assert await queued(sql, old) == []
    assert await queued(sql, half) == [(2, 0, None)]
    for job_id in new:
        assert await queued(sql, job_id) == [(1, 0, None), (2, 0, None), (3, 0, None)]
    assert woken.payloads[-1] == {RELAY}
    [entry] = await select(sql, "select actor, verb, job_id, reason, detail from audit")
    assert (entry["actor"], entry["verb"], entry["reason"]) == ("cli:me", "relay republish", "the sink lost them")
    assert datetime.fromisoformat(entry["detail"]["sinceTime"]) == since


async def test_of_one_run_all_from_a_number_on_are_queued(republish: Republish, submits: Submits, sql: Sql) -> None:
    job_id, other = [await a_run(submits, sql, events=4) for _ in range(2)]
    await published(sql)

    assert await republish.of_run(job_id, since_seq=3) == Progress(1, 1, 2)

    assert await queued(sql, job_id) == [(3, 0, None), (4, 0, None)]
    assert await queued(sql, other) == []
    assert await republish.of_run(job_id, since_seq=9) == Progress(1, 0, 0)


async def test_what_still_waits_keeps_its_place_in_the_run_and_its_tries(
    republish: Republish, submits: Submits, sql: Sql
) -> None:
    job_id = await a_run(submits, sql, events=5)
    await sql.execute(b"delete from relay_queue where seq <= 2")
    await fail(sql, job_id, 3, 10)

    assert await republish.of_run(job_id, since_seq=2) == Progress(1, 1, 4)

    assert await queued(sql, job_id) == [
        (2, 0, None),
        (3, 10, "too-large: no"),
        (4, 0, None),
        (5, 0, None),
    ]


async def test_events_whose_times_stand_out_of_order_go_out_by_number(
    republish: Republish, submits: Submits, sql: Sql
) -> None:
    job_id = await a_run(submits, sql, events=3)
    since = await a_time(sql)
    await sql.execute(b"update event set occurred_at = now() + interval '1 hour' where seq = 2")
    await published(sql)

    await republish.of_run(job_id, since_time=since)

    assert [row[0] for row in await queued(sql, job_id)] == [2, 3]


async def test_a_new_event_comes_behind_those_that_are_sent_again(
    republish: Republish, submits: Submits, sql: Sql, database_url: str
) -> None:
    """While a move holds the run, republishing waits: what it queues then has the move's event in it."""
    job_id = await a_run(submits, sql)
    await published(sql)
    async with connected(database_url) as mover:
        async with mover.transaction():
            await mover.execute(b"select from run where job_id = %(job)s for no key update", {"job": job_id})
            again = asyncio.create_task(republish._queue([job_id], datetime.fromisoformat("2020-01-01T00:00Z"), 1))
            await until_blocked(sql, again)
            await mover.execute(
                b"insert into event (job_id, seq, event_id, attempt, type, status, step) "
                b"values (%(job)s, 2, new_event_id(), 1, 2, 'RUNNING', 'embed')",
                {"job": job_id},
            )
            await mover.execute(
                b"insert into relay_queue (shard, job_id, seq) select shard, job_id, 2 from run", {"job": job_id}
            )
        assert await again == (1, 2)

    assert [row[0] for row in await queued(sql, job_id)] == [1, 2]


async def test_new_events_are_not_kept_waiting_behind_everything(
    database: Database, submits: Submits, sql: Sql, woken: Woken
) -> None:
    """The next page is queued only when the relays have nearly done with what there is."""
    for _ in range(6):
        await a_run(submits, sql, events=2)
    await published(sql)
    progress = Republish(database, actor="me", on_committed=woken, runs_per_page=2, most_queued=3).all_since(
        await a_time(sql) - timedelta(hours=1)
    )

    assert await anext(progress) == Progress(2, 2, 4)
    assert await anext(progress) == Progress(2, 2, 4, waiting=True)
    assert await anext(progress) == Progress(2, 2, 4, waiting=True)
    assert await select_one(sql, "select count(*) from relay_queue") == 4
    await published(sql)
    assert await anext(progress) == Progress(4, 4, 8)


async def test_a_run_that_is_not_there_is_told_so(republish: Republish, sql: Sql) -> None:
    with pytest.raises(NotFound):
        await republish.of_run(uuid4())
    assert await select(sql, "select * from audit") == []
