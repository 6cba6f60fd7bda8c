"""What is committed is published: in order per job, at least once, each time with the same bytes."""

import asyncio
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest

from schemas.ids import key_of
from store.database import Database
from store.records import QueuedEvent
from store.relay_queue import RelayQueue
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.topics import Change, ChangeKind
from streams.relay.render import Renderer
from tests.fixtures.eventually import eventually
from tests.fixtures.kafka import Kafka, OnEmbedded
from tests.relay.bench import LEASE_SECONDS, RelayBench, first_arrivals, id_of
from tests.store.samples import connected, letter, select, select_one


@pytest.mark.spec(91)
async def test_an_event_has_the_id_of_its_outbox_row_and_the_key_of_its_job(bench: RelayBench) -> None:
    jobs = await bench.runs(3, business_key="order-7", labels={"a": "b"}, trace_context="00-4bf9-00f0-01")

    async with bench.relay():
        await bench.until_published()

    records = await bench.published(3)
    rows = {str(row["event_id"]): row for row in await bench.outbox()}
    assert len(records) == len(rows) == 3
    for record, event in zip(records, bench.decoded(records), strict=True):
        row = rows[event.event_id]
        assert record.key == row["kafka_key"].encode() == key_of(row["job_id"])
        assert (event.job_id, event.seq, event.tenant_id) == (str(row["job_id"]), 1, "default")
        assert (event.business_key, event.labels) == ("order-7", '{"a":"b"}')
        assert dict(record.headers)["traceparent"] == b"00-4bf9-00f0-01"
        assert id_of(record) == event.event_id
        assert row["status"] == "PUBLISHED"
        assert record.timestamp_ms == int(row["created_at"].timestamp() * 1000)
    assert {event.job_id for event in bench.decoded(records)} == {str(job) for job in jobs}


async def test_events_of_a_job_arrive_in_order_and_once_with_several_relays(bench: RelayBench) -> None:
    async with bench.relay("a:1"), bench.relay("b:1"), bench.relay("c:1"):
        jobs = await bench.runs(30)
        await bench.more_events(jobs, range(2, 12))
        await bench.until_published()

    records = await bench.published(30 * 11)
    assert len(records) == 30 * 11
    events = sorted(bench.decoded(records), key=lambda event: event.job_id)  # stable: each job's order stays
    assert {job: [event.seq for event in found] for job, found in groupby(events, lambda event: event.job_id)} == {
        str(job): list(range(1, 12)) for job in jobs
    }


@pytest.mark.spec(97)
async def test_a_crash_between_acknowledgement_and_mark_publishes_the_same_bytes_again(bench: RelayBench) -> None:
    [job] = await bench.runs(1)
    await bench.more_events([job], [2])
    reached = asyncio.Event()

    async def crashes(point: str) -> None:
        if point == "relay.before_mark":
            reached.set()
            await asyncio.Event().wait()

    async with bench.relay("a:1", commit_point=crashes) as doomed:
        await asyncio.wait_for(reached.wait(), 20)
        await doomed.crash()
    assert await bench.queued() == 2
    async with bench.relay("b:1"):
        await bench.until_published()

    records = await bench.published(3)
    repeated = [record for record in records if id_of(record) == id_of(records[0])]
    assert len(records) >= 3
    assert len(repeated) == 2
    first, second = repeated
    assert (first.key, first.value, first.headers) == (second.key, second.value, second.headers)
    assert first.timestamp_ms == second.timestamp_ms
    assert [event.seq for event in bench.decoded(first_arrivals(records))] == [1, 2]


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
        assert not running.relay.health().ready
        assert running.relay.health().alive
        await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox_of(other)})
        statuses = [row["status"] for row in await bench.outbox_of(blocked)]
        assert statuses == ["FAILED", "PENDING"]
        assert b"workflow_runs_relay_blocked_keys 1.0" in running.metrics.render()


async def test_a_broker_outage_delays_and_counts_nothing(bench: RelayBench) -> None:
    async with bench.relay(lease_seconds=10) as running:
        await bench.runs(2)
        await bench.until_published()
        with bench.kafka.outage():
            jobs = await bench.runs(20)
            await bench.more_events(jobs, [2])
            await asyncio.sleep(1)  # seconds of outage
            assert await bench.queued() == 40
        await bench.until_published()

    assert running.failures() == 0
    records = await bench.published(42)
    assert len(first_arrivals(records)) == 42


async def test_a_broker_that_is_gone_shows_in_health(pausable: RelayBench) -> None:
    async with pausable.relay(lease_seconds=10) as running:
        await pausable.runs(1)
        await pausable.until_published()
        await eventually(lambda: running.relay.health().ready)
        assert isinstance(pausable.kafka, OnEmbedded)
        pausable.kafka._broker.kill()
        await eventually(lambda: "Kafka: " in running.relay.health().detail)
        assert not running.relay.health().ready
        assert running.relay.health().alive
        await running.crash()


async def test_what_the_producer_was_made_to_forget_is_sent_again(pausable: RelayBench) -> None:
    async with pausable.relay(lease_seconds=10) as running:
        await pausable.runs(1)
        await pausable.until_published()
        with pausable.kafka.outage():
            await pausable.runs(5)
            await eventually(lambda: len(running.producer._outstanding) == 5)
            running.producer.purge()
            await eventually(lambda: not running.producer._outstanding)
            assert await pausable.queued() == 5
        await pausable.until_published()

    assert running.failures() == 0
    assert len(first_arrivals(await pausable.published(6))) == 6


async def test_a_registry_outage_delays_counts_nothing_and_asks_seldom(bench: RelayBench) -> None:
    await bench.runs(50)
    bench.registry.fail_next(2)
    before = len(bench.registry.requests())

    async with bench.relay() as running:
        await eventually(lambda: "503" in running.relay.health().detail)
        assert not running.relay.health().ready
        await bench.until_published()
        await eventually(lambda: running.relay.health().ready)

    assert running.failures() == 0
    assert len(bench.registry.requests()) - before <= 5


async def test_a_schema_that_nobody_registered_is_waited_for(unregistered: RelayBench) -> None:
    await unregistered.runs(1)
    await unregistered.letters(letter(1, topic=unregistered.topics.requests.name))

    async with unregistered.relay() as running:
        await eventually(lambda: "is not registered" in running.relay.health().detail)
        # Letters need no schema.
        await unregistered.published(1, f"{unregistered.name}.requests.dlq")
        assert await unregistered.queued() == 1
        await unregistered.register()
        await unregistered.until_published()


async def test_a_dead_letter_arrives_byte_for_byte(bench: RelayBench) -> None:
    source = bench.topics.requests.name
    original = letter(7, topic=source, key=None, value=b"\x00\xff", headers=(("a", b"1"), ("a", None)))
    await bench.letters(original, letter(8, topic=source, value=None))

    async with bench.relay():
        await bench.until_published()

    first, second = sorted(await bench.published(2, f"{source}.dlq"), key=lambda record: record.value or b"")[::-1]
    assert (first.key, first.value, first.timestamp_ms) == (None, b"\x00\xff", original.identity.timestamp_ms)
    assert dict(first.headers)["__connect.errors.offset"] == b"7"
    assert dict(first.headers)["a"] == b""
    assert second.value is None
    assert await select(bench.sql, "select distinct state from dead_letter") == [{"state": "SENT"}]


async def test_a_relay_that_lost_its_shards_drops_what_is_theirs(pausable: RelayBench) -> None:
    async with pausable.relay("a:1") as running:
        await eventually(lambda: len(running.relay._shards.held) == 16)
        with pausable.kafka.outage():
            jobs = await pausable.runs(5)
            await pausable.more_events(jobs, [2, 3])
            await eventually(lambda: bool(running.producer._outstanding))
            await pausable.sql.execute(
                b"update shard set lease_owner = 'b:1', lease_until = now() + interval '3 seconds'"
            )
            await eventually(lambda: not running.relay._shards.held)
            await eventually(lambda: not running.producer._outstanding)
        # The thief never publishes: when its leases end, the first relay takes the shards again.
        await pausable.until_published()

    events = pausable.decoded(first_arrivals(await pausable.published(15)))
    for job in jobs:
        assert [event.seq for event in events if event.job_id == str(job)] == [1, 2, 3]


async def test_the_shards_of_a_relay_that_is_gone_are_taken_when_its_leases_end(bench: RelayBench) -> None:
    await bench.sql.execute(b"update shard set lease_owner = 'gone:1', lease_until = now() + interval '1 second'")
    await bench.runs(4)

    async with bench.relay("b:1"):
        await bench.until_published(seconds=1 + LEASE_SECONDS)


async def test_shards_are_shared_out_without_publishing_twice(bench: RelayBench) -> None:
    async with bench.relay("a:1") as first:
        await eventually(lambda: len(first.relay._shards.held) == 16)
        jobs = await bench.runs(20)
        async with bench.relay("b:1") as second:
            for seq in range(2, 40):
                await bench.more_events(jobs, [seq])
                await asyncio.sleep(0.02)
            held = (first.relay._shards, second.relay._shards)
            await eventually(lambda: [len(shards.held) for shards in held] == [8, 8])
            await bench.until_published()

    assert len(await bench.published(20 * 39)) == 20 * 39


async def test_a_stopped_relay_has_let_everything_land_and_gives_its_shards_back(bench: RelayBench) -> None:
    async with bench.relay("a:1", lease_seconds=60):
        jobs = await bench.runs(10)
        await bench.more_events(jobs, range(2, 6))
    free = await select_one(bench.sql, "select count(*) from shard where lease_owner is null")
    assert free == 16
    assert await select(bench.sql, "select * from relay_worker") == []

    async with bench.relay("b:1"):
        await bench.until_published()
    assert len(await bench.published(50)) == 50


async def test_a_key_found_blocked_stays_so_until_somebody_frees_it(bench: RelayBench) -> None:
    [job] = await bench.runs(1)
    await bench.sql.execute(b"update relay_queue set attempts = 10")

    async with bench.relay() as running:
        await eventually(lambda: not running.relay.health().ready)
        assert await bench.queued() == 1
        await bench.sql.execute(b"update relay_queue set attempts = 0, next_try_at = null")
        await bench.until_published()
    assert [row["job_id"] for row in await bench.outbox()] == [job]


async def test_many_blocked_keys_starve_nobody(bench: RelayBench) -> None:
    in_one_shard = [UUID(int=number << 8) for number in range(1, 402)]
    *blocked, last = [(await bench.runs(1, job_id=job_id))[0] for job_id in in_one_shard]
    await bench.sql.execute(b"update relay_queue set attempts = 10 where job_id = any (%(jobs)s)", {"jobs": blocked})

    # With leases this long nothing but the relay itself would make it look again in time.
    async with bench.relay(lease_seconds=60):
        await asyncio.wait_for(bench.until_queued_at_most(400), 5)

    assert [row["status"] for row in await bench.outbox_of(last)] == ["PUBLISHED"]


async def test_what_a_newer_release_wrote_is_left_to_a_newer_relay(bench: RelayBench) -> None:
    newer, ours = await bench.runs(2)
    await bench.sql.execute(b"update event set contract_version = 2 where job_id = %(job)s", {"job": newer})

    async with bench.relay() as running:
        await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox_of(ours)})
        [waiting] = await bench.outbox_of(newer)
        assert (waiting["status"], waiting["attempts"]) == ("PENDING", 0)
        assert running.relay.health().ready


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


async def test_an_outage_of_the_store_is_waited_out(
    kafka: Kafka, registry: RegistryServer, own_postgres: EmbeddedPostgres
) -> None:
    async with connected(own_postgres.url()) as sql:
        bench = RelayBench(kafka, registry, own_postgres.url(), sql)
        await bench.prepare()
        async with bench.relay() as running:
            await bench.runs(3)
            await bench.until_published()
            own_postgres.stop()
            await eventually(lambda: "store" in running.relay.health().detail)
            assert running.relay.health().alive
            own_postgres.start()
            async with connected(own_postgres.url()) as anew:
                bench.sql = anew
                jobs = await bench.runs(3)
                await bench.until_published()
        await bench.close()

    records = await bench.published(6)
    assert {record.key for record in records} >= {key_of(job) for job in jobs}
    assert len(records) == 6


async def test_an_idle_relay_is_nearly_silent(bench: RelayBench) -> None:
    database = Database(bench.url, pool_size=2)
    await database.open()
    queue = _Counting(database)
    await bench.runs(1)
    async with bench.relay(queue=queue, lease_seconds=6):
        await bench.until_published()
        await asyncio.sleep(0.5)  # seconds for what the publishing itself still asks
        queue.statements.clear()
        await asyncio.sleep(4)  # seconds of idleness
        assert queue.statements.count("lease_shards") <= 2
        assert set(queue.statements) <= {"lease_shards"}
    await database.close()


class _Counting(RelayQueue):
    """A queue that remembers what it was asked."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.statements: list[str] = []

    async def _rows(self, statement: str, **params: object) -> list[dict[str, Any]]:
        self.statements.append(statement)
        return await super()._rows(statement, **params)
