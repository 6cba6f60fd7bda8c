"""A record that fails by itself waits with the later ones of its key, and holds up nobody else."""

import asyncio
from uuid import UUID

import pytest

from store.records import QueuedEvent
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.topics import Change, ChangeKind
from streams.relay.render import Renderer
from tests.fixtures.eventually import eventually
from tests.relay.bench import RelayBench, id_of


@pytest.mark.spec(94)
async def test_a_record_that_fails_is_counted_and_published_later_with_the_same_id(bench: RelayBench) -> None:
    await bench.runs(1)
    [before] = await bench.outbox()
    async with bench.relay(topics=bench.topics_with(max_message_bytes=100)) as narrow:
        await eventually(lambda: narrow.failures() >= 1)
    [failed] = await bench.outbox()

    assert (failed["status"], failed["event_id"]) == ("PENDING", before["event_id"])
    assert failed["attempts"] >= 1
    assert "too-large" in failed["last_error"]

    async with bench.relay():
        await bench.until_published()
    [record] = await bench.published(1)
    assert id_of(record) == str(before["event_id"])


@pytest.mark.spec(96)
async def test_later_events_of_a_job_never_overtake_one_that_fails(bench: RelayBench) -> None:
    """Two relays, and a first event that is too large until it is made smaller."""
    narrow = bench.topics_with(max_message_bytes=2_000)
    large, *others = await bench.runs(6)
    detail = "update event set detail = %(detail)s where job_id = %(job)s and seq = 1"
    await bench.sql.execute(detail.encode(), {"job": large, "detail": '"' + "x" * 4_000 + '"'})
    await bench.more_events([large, *others], [2, 3])

    async with bench.relay("a:1", topics=narrow) as one, bench.relay("b:1", topics=narrow) as two:
        await eventually(lambda: one.failures() + two.failures() >= 2)
        await asyncio.wait_for(bench.until_queued_at_most(3), 20)
        assert [row["status"] for row in await bench.outbox_of(large)] == ["PENDING"] * 3
        assert [row["attempts"] for row in await bench.outbox_of(large)][1:] == [0, 0]
        await bench.sql.execute(detail.encode(), {"job": large, "detail": None})
        await bench.until_published()

    events = bench.decoded(await bench.published(18))
    for job in (large, *others):
        assert [event.seq for event in events if event.job_id == str(job)] == [1, 2, 3]


@pytest.mark.apache
async def test_a_record_that_the_broker_refuses_waits_with_its_job_and_nobody_else(bench: RelayBench) -> None:
    large, *others = await bench.runs(6)
    await bench.sql.execute(
        b"update event set detail = to_jsonb(repeat('x', 4000))::text where job_id = %(job)s", {"job": large}
    )
    await bench.more_events([large, *others], [2])
    await _set_on_broker(bench, 2_000)

    async with bench.relay() as running:
        await eventually(lambda: running.failures() >= 2)
        rows = {(row["job_id"], row["seq"]): row for row in await bench.outbox()}
        assert {rows[job, seq]["status"] for job in others for seq in (1, 2)} == {"PUBLISHED"}
        assert {rows[job, seq]["attempts"] for job in others for seq in (1, 2)} == {0}
        assert (rows[large, 1]["status"], rows[large, 2]["attempts"]) == ("PENDING", 0)
        assert "MSG_SIZE_TOO_LARGE" in rows[large, 1]["last_error"]
        await _set_on_broker(bench, 100_000)
        await bench.until_published()

    events = [event for event in bench.decoded(await bench.published(12)) if event.job_id == str(large)]
    assert [event.seq for event in events] == [1, 2]


async def _set_on_broker(bench: RelayBench, max_message_bytes: int) -> None:
    admin = TopicAdmin(bench.kafka.bootstrap, KafkaSecurity())
    config = {"max.message.bytes": str(max_message_bytes)}
    await admin._do(Change(bench.events_topic, ChangeKind.SET_CONFIG, config=config))


async def test_the_tenth_failure_blocks_a_key_visibly_and_nothing_else(bench: RelayBench) -> None:
    blocked, other = await bench.runs(2)
    await bench.more_events([blocked, other], [2])
    await bench.sql.execute(
        b"update event set detail = to_jsonb(repeat('x', 4000))::text where job_id = %(job)s and seq = 1",
        {"job": blocked},
    )
    await bench.sql.execute(b"update relay_queue set attempts = 9 where job_id = %(job)s and seq = 1", {"job": blocked})

    async with bench.relay(topics=bench.topics_with(max_message_bytes=2_000)) as running:
        await eventually(lambda: "1 blocked keys" in running.relay.health().detail)
        health = running.relay.health()
        assert (health.alive, health.ready, health.degraded) == (True, True, True)
        await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox_of(other)})
        statuses = [row["status"] for row in await bench.outbox_of(blocked)]
        assert statuses == ["FAILED", "PENDING"]
        assert b"workflow_runs_relay_blocked_keys 1.0" in running.metrics.render()


async def test_a_key_found_blocked_stays_so_until_somebody_frees_it(bench: RelayBench) -> None:
    [job] = await bench.runs(1)
    await bench.sql.execute(b"update relay_queue set attempts = 10")

    async with bench.relay() as running:
        await eventually(lambda: running.relay.health().degraded)
        assert await bench.queued() == 1
        await bench.sql.execute(b"update relay_queue set attempts = 0, next_try_at = null")
        await bench.until_published()
        assert not running.relay.health().degraded
    assert [row["job_id"] for row in await bench.outbox()] == [job]


async def test_many_blocked_keys_starve_nobody(bench: RelayBench) -> None:
    in_one_shard = [UUID(int=number << 8) for number in range(1, 402)]
    *blocked, last = [(await bench.runs(1, job_id=job_id))[0] for job_id in in_one_shard]
    await bench.sql.execute(b"update relay_queue set attempts = 10 where job_id = any (%(jobs)s)", {"jobs": blocked})

    # With leases this long nothing but the relay itself would make it look again in time.
    async with bench.relay(lease_seconds=60):
        await asyncio.wait_for(bench.until_queued_at_most(400), 5)

    assert [row["status"] for row in await bench.outbox_of(last)] == ["PUBLISHED"]


async def test_one_row_that_breaks_our_code_stops_nobody_else(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, ours = await bench.runs(2)
    renders = Renderer.event

    async def breaks(self: Renderer, row: QueuedEvent) -> OutgoingRecord:
        if row.job_id == broken:
            raise ZeroDivisionError
        return await renders(self, row)

    monkeypatch.setattr(Renderer, "event", breaks)
    async with bench.relay():
        await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox_of(ours)})

    [failed] = await bench.outbox_of(broken)
    assert "ZeroDivisionError" in failed["last_error"]
