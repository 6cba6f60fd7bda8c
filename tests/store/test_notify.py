"""Wake-ups: here at once, elsewhere in one statement, and missed ones made up for."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import psycopg
import pytest

from store.database import Database
from store.notify import READY, RELAY, Listener, Notifier, cancelled
from tests.store.samples import Sql, select_one

SOON_SECONDS = 5


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Listener]:
    """A listener that is connected."""
    listener = Listener(url)
    connected = listener.subscribe("probe")
    task = asyncio.create_task(listener.run())
    try:
        await soon(connected)
        yield listener
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert not listener.connected


async def soon(*events: asyncio.Event) -> None:
    """Wait until all are set, and clear them."""
    async with asyncio.timeout(SOON_SECONDS):
        for event in events:
            await event.wait()
            event.clear()


async def notify(sql: Sql, payloads: Iterable[str]) -> None:
    for payload in payloads:
        await sql.execute(b"select pg_notify('workflow_runs', %(payload)s)", {"payload": payload})


async def test_a_wake_up_from_elsewhere_reaches_whoever_asked_for_its_kind(database_url: str, sql: Sql) -> None:
    async with listening(database_url) as listener:
        assert listener.connected
        ready, also_ready, relay = (listener.subscribe(kind) for kind in (READY, READY, RELAY))
        await notify(sql, [READY])
        await soon(ready, also_ready)
        assert not relay.is_set()


async def test_a_cancel_elsewhere_names_the_run(database_url: str, sql: Sql) -> None:
    heard: list[UUID] = []
    job_id = uuid4()
    async with listening(database_url) as listener:
        listener.on_cancelled(heard.append)
        ready = listener.subscribe(READY)
        await notify(sql, ["cancelled:nonsense", "", "what nobody knows", cancelled(job_id), READY])
        await soon(ready)
    assert heard == [job_id]


async def test_a_listener_that_is_cut_off_wakes_everybody_and_once_more_when_it_is_back(
    database_url: str, sql: Sql
) -> None:
    async with listening(database_url) as listener:
        ready, relay = listener.subscribe(READY), listener.subscribe(RELAY)
        query = (
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where datname = current_database() and application_name = 'workflow-runs listen'"
        )
        assert await select_one(sql, query) == 1
        await soon(ready, relay)
        assert not listener.connected
        await soon(ready, relay)
        assert listener.connected
        await notify(sql, [READY])
        await soon(ready)


async def test_a_commit_here_wakes_this_process_at_once_and_the_others_soon(
    database_url: str, database: Database
) -> None:
    here = Listener(database_url)
    mine = here.subscribe(READY)
    async with listening(database_url) as elsewhere:
        theirs = elsewhere.subscribe(READY)
        notifier = Notifier(database, here)
        notifier.notify({READY, RELAY})
        assert mine.is_set()
        await notifier.close()
        await soon(theirs)


async def test_wake_ups_that_gather_are_sent_together_and_none_is_left_behind(database_url: str) -> None:
    sent: list[object] = []

    class Counting(Database):
        async def rows(self, statement: str, params: Mapping[str, object]) -> list[dict[str, object]]:
            sent.append(params)
            return []

    notifier = Notifier(Counting(database_url))
    for _ in range(100):
        notifier.notify({READY})
    notifier.notify([RELAY])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    notifier.notify([RELAY])
    await notifier.close()
    assert sent == [{"payloads": [READY, RELAY]}, {"payloads": [RELAY]}]


async def test_a_wake_up_that_cannot_be_sent_costs_nothing_but_itself(database_url: str) -> None:
    closed = Database(database_url)
    notifier = Notifier(closed)
    notifier.notify([READY])
    await notifier.close()
    notifier.notify([READY])
    await notifier.close()


async def test_a_wake_up_is_small_whatever_it_is_about(sql: Sql) -> None:
    """Postgres refuses payloads of 8,000 bytes; ours name a run at most."""
    assert len(cancelled(uuid4())) < 100
    with pytest.raises(psycopg.Error):
        await notify(sql, ["x" * 8000])
