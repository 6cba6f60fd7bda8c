"""Relays as processes: one that dies is followed in time, a late one disturbs nobody, and a stuck one is freed."""

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from uuid import UUID

import pytest

from store.control import Control
from store.database import Database
from store.notify import Notifier
from store.submit import Submits
from tests.acceptance.commands import relay_command
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.reader import Told, first_arrivals
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, VECTOR
from tests.fixtures.grpc_server import Answer
from tests.store.samples import submission

TAKEOVER_SECONDS = 12.0
SHARDS = 16


@pytest.mark.embedded
async def test_the_shards_of_a_killed_relay_are_served_within_twelve_seconds(fleet: Fleet) -> None:
    doomed, heir = await fleet.started("relay-a", "relay-b", roles="relay")
    await until_held(fleet, {doomed.name: 8, heir.name: 8})

    doomed.kill()
    killed_at = time.monotonic()
    jobs = await in_every_shard(fleet)
    await fleet.until_told(jobs, ["ACCEPTED"], seconds=TAKEOVER_SECONDS)

    assert time.monotonic() - killed_at <= TAKEOVER_SECONDS
    await until_held(fleet, {heir.name: SHARDS})


async def test_a_relay_that_wakes_up_late_leaves_no_event_out_of_order_and_repeats_none_differently(
    fleet: Fleet,
) -> None:
    """Frozen in the middle of its work until the other relay has its shards, and let go while that one works."""
    fleet.server.script(EMBED, Answer(VECTOR.payload, delay_seconds=0.1))
    await fleet.started("driver", roles="intake,runs")
    relays = await fleet.started("relay-a", "relay-b", roles="relay")
    shared = {relay.name: 8 for relay in relays}
    await until_held(fleet, shared)
    jobs: list[UUID] = []
    for frozen, other in (relays, relays[::-1]):
        jobs += await fleet.produce(150)
        await more_events(fleet, 40)
        frozen.pause()
        await until_held(fleet, {other.name: SHARDS})
        jobs += await fleet.produce(150)
        await more_events(fleet, 40)
        frozen.resume()
        await until_held(fleet, shared)
    await fleet.until_all(jobs, "COMPLETED")

    told = await fleet.until_told(jobs, EMBED_TEXT_LOG)

    copies: defaultdict[str, list[Told]] = defaultdict(list)
    for record in told:
        copies[record.event.event_id].append(record)
    assert {len({record.content for record in same}) for same in copies.values()} == {1}
    assert await fleet.one("select count(*) from relay_queue where attempts > 0") == 0
    for relay in relays:
        await relay.ready()


@pytest.mark.embedded
async def test_an_event_that_no_topic_takes_blocks_its_run_alone_until_it_is_skipped(fleet: Fleet) -> None:
    narrow_the_events_topic(fleet, 3_000)
    database = Database(fleet.database_url, pool_size=2)
    await database.open()
    notifier = Notifier(database)
    submits, control = Submits(database, on_committed=notifier.notify), Control(database, on_committed=notifier.notify)
    large = submission()
    await submits.submit(large)
    await control.cancel(tenant_id="default", job_id=large.job_id, reason="x" * 300_000)
    await fleet.execute(f"update relay_queue set attempts = 9 where job_id = '{large.job_id}' and seq = 2")

    relay = fleet.start("relay-a", roles="relay")
    await until(lambda: blocked(relay), lambda: relay.log)
    others = [(await submits.submit(submission())).job_id for _ in range(50)]
    await fleet.until_told(others, ["ACCEPTED"], seconds=5)

    listed = await relay_command(fleet.database_url, "list")
    assert [(row["status"], row["jobId"], row["seq"]) for row in listed["failing"]] == [
        ("FAILED", str(large.job_id), 2)
    ]
    assert "too-large" in listed["failing"][0]["lastError"]
    shown = await relay_command(fleet.database_url, "show", str(large.job_id))
    assert [event["status"] for event in shown["events"]] == ["PUBLISHED", "FAILED"]
    assert shown["error"] == "x" * 300_000
    await relay_command(fleet.database_url, "skip", str(large.job_id), "--seq", "2", "--reason", "no topic takes it")

    told = await fleet.until_told([large.job_id], ["ACCEPTED", "CANCELLED"], seconds=5)
    reduced = first_arrivals(told)[-1].event
    assert reduced.detail == '{"skipped":"no topic takes it"}'
    assert reduced.error.endswith("[cut, 4000 characters]")
    await until(lambda: well(relay), lambda: relay.log)
    assert await fleet.one("select reason from audit") == "no topic takes it"
    await database.close()


def narrow_the_events_topic(fleet: Fleet, max_message_bytes: int) -> None:
    """Have the relays that start from now on believe that the events topic takes no more."""
    file = fleet.folder / "topics.yaml"
    topics = json.loads(file.read_text())
    topics[fleet.topics.events.name]["config"] = {"max.message.bytes": max_message_bytes}
    file.write_text(json.dumps(topics))


async def in_every_shard(fleet: Fleet) -> list[UUID]:
    """Submit a run in each shard; their ids end with its number."""
    database = Database(fleet.database_url, pool_size=2)
    await database.open()
    notifier = Notifier(database)
    submits = Submits(database, on_committed=notifier.notify)
    ids = [UUID(bytes=submission().job_id.bytes[:15] + bytes([shard])) for shard in range(SHARDS)]
    jobs = [(await submits.submit(submission(job_id))).job_id for job_id in ids]
    await notifier.close()
    await database.close()
    return jobs


async def until_held(fleet: Fleet, wanted: Mapping[str, int]) -> None:
    """Wait until each relay of these names holds that many shards, and nobody else any."""
    held: dict[str, int] = {}

    async def so() -> bool:
        nonlocal held
        rows = await fleet.rows(
            "select split_part(lease_owner, '/', 1) as owner, count(*) from shard where lease_until > now() group by 1"
        )
        held = {row["owner"]: row["count"] for row in rows}
        return held == wanted

    await until(so, lambda: held, seconds=40)


async def more_events(fleet: Fleet, more: int) -> None:
    """Wait until the reader has *more* records than now."""
    wanted = len(fleet.reader.told()) + more
    await until(lambda: len(fleet.reader.told()) >= wanted, lambda: f"{len(fleet.reader.told())} of {wanted} records")


async def blocked(relay: WorkerProcess) -> bool:
    """Whether its health says so, as its metrics do; it can work all the same."""
    answers = [await relay.health(path) for path in ("/readyz", "/healthz")]
    said = [(status, told["status"], "1 blocked keys" in json.dumps(told)) for status, told in answers if status]
    return said == [(200, "degraded", True)] * 2 and await relay.count("relay_blocked_keys") == 1


async def well(relay: WorkerProcess) -> bool:
    status, told = await relay.health("/readyz")
    return status == 200 and told["status"] == "ok"
