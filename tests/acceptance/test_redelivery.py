"""Offsets go only after rows: a crash between the two, or anywhere else, loses nothing and doubles nothing."""

import asyncio
from itertools import count

import pytest

from tests.acceptance.commands import intake_command
from tests.acceptance.fleet import PARTITIONS, Fleet
from tests.acceptance.offsets_watch import watched_offsets
from tests.acceptance.waiting import until
from tests.store.samples import connected

ROLES = "intake,relay"
# It looks every ten seconds whether it was told of something, and without being told once a minute.
NOTICED_SECONDS = 25.0


@pytest.mark.spec(100)
async def test_a_crash_after_the_rows_and_before_their_offsets_adds_no_row_and_no_event(fleet: Fleet) -> None:
    [victim] = await fleet.started("worker-a", roles=ROLES)
    jobs = await fleet.produce(40)
    await fleet.until_read_up()
    committed = fleet.committed()
    async with connected(fleet.database_url) as lock, lock.transaction():
        await lock.execute("lock table run in share mode")
        jobs += await fleet.produce(40)
        await until(lambda: intake_waits(fleet), lambda: "no batch is at the lock")
        fleet.kafka.stop()
    # Now the rows can be committed, and their offsets cannot.
    await until(lambda: has_more_rows(fleet, 40), lambda: "no row")
    victim.kill()
    fleet.kafka.start()
    assert fleet.committed() == committed

    [heir] = await fleet.started("worker-b", roles=ROLES)
    await fleet.until_read_up()
    assert await heir.count("requests_total", outcome="existing") >= 1
    assert await fleet.one("select count(*) from run") == len(jobs)
    assert await fleet.one("select count(*) from event") == len(jobs)
    await fleet.until_told(jobs, ["ACCEPTED"])


async def test_a_worker_that_reads_on_notices_soon_that_an_operator_set_it_back(fleet: Fleet) -> None:
    [worker] = await fleet.started("worker", roles=ROLES)
    jobs = await fleet.produce(40)
    await fleet.until_read_up()
    for partition in range(PARTITIONS):
        await intake_command(fleet, "seek", fleet.topics.requests.name, str(partition), "beginning")

    async def all_again() -> bool:
        return await worker.count("requests_total", outcome="existing") == len(jobs)

    await until(all_again, lambda: "it does not notice", seconds=NOTICED_SECONDS)
    await fleet.until_read_up()
    assert await fleet.one("select count(*) from run") == len(jobs)


async def intake_waits(fleet: Fleet) -> bool:
    """Whether a batch waits for the lock on the runs."""
    return bool(await fleet.one("select count(*) from pg_locks where relation = 'run'::regclass and not granted"))


async def has_more_rows(fleet: Fleet, than: int) -> bool:
    return bool(await fleet.one("select count(*) from run") > than)


async def test_workers_killed_again_and_again_under_load_lose_no_request_and_double_none(fleet: Fleet) -> None:
    names = (f"worker-{number}" for number in count(1))
    workers = await fleet.started(next(names), next(names), roles=ROLES)
    async with watched_offsets(fleet) as watch:
        enough = asyncio.Event()
        producing = asyncio.create_task(keep_producing(fleet, enough))
        for _ in range(3):
            await more_rows(fleet, 60)
            victim = workers.pop(0)
            victim.kill()
            workers.append(fleet.start(next(names), roles=ROLES))
        await workers[-1].ready()
        await more_rows(fleet, 60)
        enough.set()
        await producing
        await fleet.until_read_up()

    jobs = [job_id for job_id in fleet.produced.values() if job_id is not None]
    assert len(jobs) >= 300
    assert watch.ahead_of_rows(fleet.produced) == set()
    assert await fleet.one("select count(*) from run") == len(jobs)
    assert await fleet.one("select count(*) from event") == len(jobs)
    await fleet.until_told(jobs, ["ACCEPTED"])


async def keep_producing(fleet: Fleet, enough: asyncio.Event) -> None:
    """Ask for a few runs again and again until *enough* is set."""
    while not enough.is_set():
        await fleet.produce(8)
        await asyncio.sleep(0.1)


async def more_rows(fleet: Fleet, more: int) -> None:
    """Wait until there are *more* rows than now."""
    begin = await fleet.one("select count(*) from run")

    await until(lambda: has_more_rows(fleet, begin + more), lambda: f"no {more} rows more than {begin}")
