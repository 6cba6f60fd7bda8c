"""A database that was put back to an earlier state: noticed at once, and nothing is written under what it took away."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from schemas.errors import LeaseLost, StoreUnavailable
from store.answers import Answers
from store.committer import Committer
from store.control import Control
from store.database import Database
from store.history import History, Place, is_other_history
from store.leases import Leases
from store.moves import Moves
from store.submit import Submits
from store.upkeep import Upkeep
from streams.dev.postgres import EmbeddedPostgres
from tests.fixtures.base_copy import BaseCopy
from tests.store.given import LEASE_SECONDS, TARGET, Given, finished
from tests.store.samples import Woken, connected, select_one


@pytest.mark.parametrize(
    ("newest", "now", "changed"),
    [
        (None, Place(1, 500), False),
        (Place(1, 500), Place(1, 500), False),
        (Place(1, 500), Place(1, 501), False),
        (Place(1, 500), Place(1, 499), True),
        (Place(1, 500), Place(2, 900), True),
        (Place(3, 500), Place(2, 900), True),
    ],
)
def test_another_timeline_or_a_place_further_back_is_another_history(
    newest: Place | None, now: Place, changed: bool
) -> None:
    assert is_other_history(newest, now) is changed


def test_everybody_is_told_once_per_change_and_the_place_after_it_is_what_counts_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history, told = History(), list[int]()
    history.on_changed(lambda: told.append(history.changes))
    for position in (500, 700, 300, 400, 350):
        history.see(Place(1, position))
    assert told == [1, 2]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "it stood at timeline 1, 0/2BC and stands at timeline 1, 0/12C" in caplog.text


@pytest.fixture
def base_copy(own_postgres: EmbeddedPostgres) -> Iterator[BaseCopy]:
    with BaseCopy(own_postgres) as copy:
        yield copy


@pytest.fixture
async def own(own_postgres: EmbeddedPostgres) -> AsyncIterator[Given]:
    """The store's parts on a server of this test alone."""
    database, woken = Database(own_postgres.url(), pool_size=4), Woken()
    await database.open()
    committer = Committer(database, on_committed=woken)
    running = asyncio.create_task(committer.run())
    async with connected(own_postgres.url()) as sql:
        given = Given(
            database=database,
            submits=Submits(database, on_committed=woken),
            moves=Moves(committer),
            answers=Answers(database, on_committed=woken),
            control=Control(database, on_committed=woken),
            upkeep=Upkeep(database, lease_seconds=LEASE_SECONDS, max_lost_leases=3, on_committed=woken),
            woken=woken,
            sql=sql,
        )
        yield given
    await given.close()
    running.cancel()
    await asyncio.wait([running])
    await database.close()


async def until_back(database: Database) -> None:
    """Ask until the server answers again."""
    for _ in range(200):
        try:
            await database.ping()
        except StoreUnavailable:
            await asyncio.sleep(0.02)
        else:
            return
    raise AssertionError("the server does not answer")


async def test_a_restart_and_a_crash_are_not_another_history(own: Given, own_postgres: EmbeddedPostgres) -> None:
    run = await own.held()
    for again in (own_postgres.restart, own_postgres.kill, own_postgres.start):
        again()
    await until_back(own.database)
    await own.moves.checkpoint(run, finished())
    assert own.database.history.changes == 0


async def test_a_claim_that_the_database_still_knows_is_void_after_it_was_put_back(
    own: Given, own_postgres: EmbeddedPostgres, base_copy: BaseCopy
) -> None:
    """The claim is in the copy, the checkpoint after it is not: written on, the log would have a gap."""
    run = await own.held()
    base_copy.take()
    await until_back(own.database)
    await own.moves.checkpoint(run, finished())
    await own.upkeep.sweep()  # as a worker does each second
    base_copy.put_back()

    with pytest.raises(LeaseLost):
        await own.moves.checkpoint(run, finished(1, "embed"))
    assert own.database.history.changes == 1
    async with connected(own_postgres.url()) as own.sql:
        assert await own.log(run.job_id) == ["ACCEPTED"]
        assert (await own.row(run.job_id))["status"] == "RUNNING"
        assert await own.leases("worker-a:1").renew([run]) == [run]
        assert await own.leases("worker-a:1").release_unheld([run]) == 1
        [again] = await own.leases("worker-a:1").claim({run.claim.target: 1})
        await own.moves.checkpoint(again, finished())
        await own.moves.complete(again, result={}, verdict="1 steps, output x")
        assert await own.log(run.job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "COMPLETED"]


async def test_moves_that_wait_out_the_outage_are_not_written_to_what_was_put_back(
    own: Given, own_postgres: EmbeddedPostgres, base_copy: BaseCopy
) -> None:
    runs = await own.many_held(5)
    base_copy.take()
    await until_back(own.database)
    await asyncio.gather(*(own.moves.checkpoint(run, finished()) for run in runs))
    await own.upkeep.sweep()
    own_postgres.kill()
    waiting = [asyncio.create_task(own.moves.complete(run, result={}, verdict="v")) for run in runs]
    await asyncio.sleep(0)
    base_copy.put_back()
    assert all(isinstance(answer, LeaseLost) for answer in await asyncio.gather(*waiting, return_exceptions=True))
    async with connected(own_postgres.url()) as sql:
        assert await select_one(sql, "select count(*) from event where seq > 1") == 0


async def test_what_was_under_way_is_unavailable_and_only_what_comes_later_reaches_the_changed_database(
    own: Given, base_copy: BaseCopy
) -> None:
    await own.run()
    base_copy.take()
    await until_back(own.database)
    await own.run()
    await own.upkeep.sweep()
    told: list[int] = []
    own.database.history.on_changed(lambda: told.append(own.database.history.changes))
    base_copy.put_back()
    leases = own.leases("worker-a:1")
    with pytest.raises(StoreUnavailable, match="put back"):
        await _until_claimed(leases)
    assert told == [1]
    assert len(await leases.claim({TARGET: 10})) == 1


async def _until_claimed(leases: Leases) -> None:
    while True:
        try:
            assert await leases.claim({TARGET: 10}) == []
        except StoreUnavailable as error:
            if "put back" in str(error):
                raise
            await asyncio.sleep(0.02)
