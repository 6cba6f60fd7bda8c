"""One look for all of a process: what it finds, how often it is taken, and what an outage makes of it."""

import asyncio

import pytest
from psycopg.conninfo import conninfo_to_dict

from schemas.errors import StoreUnavailable
from store.database import Database
from store.looks import COUNT_SECONDS, Look, Looks
from store.submit import IntakeBatch, Submits
from tests.store.given import Given
from tests.store.samples import GROUP, Sql, letter, record, submission


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_an_empty_store_has_nothing_to_look_after(database: Database) -> None:
    look = await Looks(database).look()
    assert look == Look(
        look.at, expires_in=None, comes_due_in=None, is_due=False, queued=0, held_letters=0, ready_letters=0
    )


async def test_a_look_tells_when_the_next_lease_ends(given: Given, database: Database, sql: Sql) -> None:
    first, _ = await given.many_held(2)
    assert (await Looks(database).look()).expires_in == pytest.approx(300, abs=60)
    await given.expire(first.job_id)
    assert (await Looks(database).look()).expires_in == pytest.approx(-1, abs=0.9)


async def test_a_look_tells_when_something_happens_by_itself_to_a_run_that_nobody_holds(
    given: Given, database: Database
) -> None:
    held = await given.held(run_deadline_ms=1_000)
    assert (await Looks(database).look()).comes_due_in is None
    await given.run(run_deadline_ms=3_600_000)
    assert (await Looks(database).look()).comes_due_in == pytest.approx(3_600, abs=60)
    await given.moves.park_until(held, step="pause", resume_target="x", after_ms=1_800_000)
    await given.pass_time(held.job_id, hours=-1)
    assert (await Looks(database).look()).comes_due_in == pytest.approx(3_600, abs=60)
    await given.pass_time(held.job_id, hours=2)
    assert ((await Looks(database).look()).comes_due_in or 0) < 0


@pytest.mark.parametrize("lost_leases", [0, 2], ids=["sound", "suspect"])
async def test_a_run_is_told_of_once_it_is_due(given: Given, database: Database, sql: Sql, lost_leases: int) -> None:
    await given.run(target="a")
    await given.run(target="b")
    later = "update run set lost_leases = %s, run_after = now() + interval '1 h'"
    await sql.execute(later.encode(), [lost_leases])
    assert not (await Looks(database).look()).is_due
    await sql.execute(b"update run set run_after = now() where next_target = 'b'")
    assert (await Looks(database).look()).is_due


async def test_only_due_runs_count_as_queued_and_only_up_to_the_limit(
    database: Database, submits: Submits, sql: Sql
) -> None:
    await submits.batch(IntakeBatch(GROUP, [record(submission()) for _ in range(5)]))
    await submits.submit(submission(error="WORKFLOW: no", target=None))
    await sql.execute(
        b"update run set run_after = now() + interval '1 h' where job_id = (select max(job_id::text)::uuid from run"
        b" where status = 'QUEUED')"
    )
    assert [(await Looks(database, most_queued=most).look()).queued for most in (100, 3)] == [4, 3]


async def test_open_letters_are_counted_by_their_state(database: Database, submits: Submits) -> None:
    letters = [letter(0, held_seconds=600.0), letter(1), letter(2)]
    await submits.batch(IntakeBatch(GROUP, letters=letters))
    look = await Looks(database).look()
    assert (look.held_letters, look.ready_letters) == (1, 2)


async def test_who_can_do_with_an_older_look_gets_it_and_those_who_ask_at_once_get_one(database: Database) -> None:
    clock = Clock()
    looks = Looks(database, clock=clock)
    first, same = await asyncio.gather(looks.look(), looks.look())
    assert same is first
    clock.now += 5
    assert await looks.look(newest_seconds=5) is first
    assert await looks.look(newest_seconds=4.9) is not first


async def test_low_counts_are_taken_now_and_then_and_high_ones_each_time(given: Given, database: Database) -> None:
    clock = Clock()
    looks = Looks(database, most_queued=4, clock=clock)
    assert (await looks.look()).queued == 0
    for _ in range(3):
        await given.run()
    clock.now += COUNT_SECONDS - 1
    look = await looks.look()
    assert (look.queued, look.is_due) == (0, True)
    clock.now += 1
    assert (await looks.look()).queued == 3
    await given.run()
    clock.now += 1
    assert (await looks.look()).queued == 4


async def test_a_server_that_takes_no_writes_is_away_until_it_takes_some(
    database: Database, database_url: str, sql: Sql
) -> None:
    looks = Looks(database)
    read_only = f"alter database {conninfo_to_dict(database_url)['dbname']} set default_transaction_read_only = %s"
    await sql.execute((read_only % "on").encode())
    with pytest.raises(StoreUnavailable, match="read-only"):
        await looks.look()
    assert looks.away == "the server takes no writes: it is read-only"
    await sql.execute((read_only % "off").encode())
    await end_connections(sql)
    assert await looks.look()
    assert looks.away is None


async def end_connections(sql: Sql) -> None:
    """End every connection to this database but that of the test."""
    await sql.execute(
        b"select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        b" where datname = current_database() and pid <> pg_backend_pid()"
    )
