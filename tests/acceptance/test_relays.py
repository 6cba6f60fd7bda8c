"""A relay may die at any moment: what it had sent comes again with the same bytes, and nothing is left out."""

from collections import defaultdict

import pytest

from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.reader import Told, first_arrivals
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, VECTOR
from tests.fixtures.grpc_server import Answer
from tests.store.samples import connected


@pytest.mark.spec(97)
async def test_relays_killed_between_acknowledgement_and_mark_publish_again_with_the_same_ids_and_bytes(
    fleet: Fleet,
) -> None:
    [driver] = await fleet.started("driver", roles="intake,runs")
    jobs = await fleet.produce(10)
    await fleet.until_all(jobs, "COMPLETED")
    async with connected(fleet.database_url) as lock, lock.transaction():
        # Whatever is acknowledged now cannot be marked.
        await lock.execute("lock table relay_queue in share mode")
        relay = fleet.start("relay-1", roles="relay")
        await until(lambda: cannot_mark(fleet), lambda: relay.log)
        await more_events(fleet, 1)
        await gone(fleet, relay)
    sent = {record.event.event_id for record in fleet.reader.told()}
    assert await fleet.one("select count(*) from relay_queue") == len(jobs) * len(EMBED_TEXT_LOG)

    # From here on events flow while relays die.
    fleet.server.script(EMBED, Answer(VECTOR.payload, delay_seconds=0.2))
    relays = [fleet.start(f"relay-{number}", roles="relay") for number in (2, 3)]
    for number in (4, 5):
        jobs += await fleet.produce(120)
        await more_events(fleet, 100)
        await gone(fleet, relays.pop(0))
        relays.append(fleet.start(f"relay-{number}", roles="relay"))
    await fleet.until_all(jobs, "COMPLETED")
    told = await fleet.until_told(jobs, EMBED_TEXT_LOG)

    copies: defaultdict[str, list[Told]] = defaultdict(list)
    for record in told:
        copies[record.event.event_id].append(record)
    assert {len({record.content for record in same}) for same in copies.values()} == {1}
    assert all(len(copies[event_id]) > 1 for event_id in sent)
    await until_marked(fleet)
    assert driver.running


async def cannot_mark(fleet: Fleet) -> bool:
    """Whether a relay waits for the lock on the queue."""
    waiting = "select count(*) from pg_locks where relation = 'relay_queue'::regclass and not granted"
    return bool(await fleet.one(waiting))


async def gone(fleet: Fleet, relay: WorkerProcess) -> None:
    """Kill a relay, end its connections as a lost machine's would end, and let its leases be over."""
    relay.kill()
    await fleet.execute(
        f"""
        select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock';
        update shard set lease_until = now() where lease_owner like '{relay.name}/%';
        update relay_worker set live_until = now() where owner like '{relay.name}/%';
        """
    )


async def more_events(fleet: Fleet, more: int) -> None:
    """Wait until the reader has *more* distinct events than now."""
    wanted = len(first_arrivals(fleet.reader.told())) + more
    await until(
        lambda: len(first_arrivals(fleet.reader.told())) >= wanted,
        lambda: f"{len(first_arrivals(fleet.reader.told()))} of {wanted} events",
    )


async def until_marked(fleet: Fleet) -> None:
    """Wait until nothing is left to publish."""
    left = -1

    async def empty() -> bool:
        nonlocal left
        left = int(await fleet.one("select count(*) from relay_queue"))
        return left == 0

    await until(empty, lambda: f"{left} rows are left")
