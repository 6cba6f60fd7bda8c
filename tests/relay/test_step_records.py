"""What steps send to topics of others: the stored bytes behind one frame, in order, before the event of their step."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.framing import unframe
from schemas.headers import record_headers
from schemas.registered import SchemaText
from store.committer import Committer
from store.leases import Leases
from store.moves import Moves
from store.notify import Notifier
from store.records import StoredCheckpoint
from store.relay_operations import RelayOperations
from store.republish import Republish
from store.step_records import StepRecord
from streams.kafka.registry import SchemaRegistry
from tests.fixtures.eventually import eventually
from tests.kafka.reading import Read
from tests.relay.bench import RelayBench, id_of
from tests.store.samples import select, select_one

ORDERS = 'syntax = "proto3"; package acme.v1; message Note {} message Order { string text = 1; }'
VALUE = b"\n\x05hello"
HEADERS = '[["ce_id", "{id}"], ["job-id", "j"], ["step-name", "tell"]]'


@pytest.fixture
async def orders(bench: RelayBench) -> str:
    """A topic of somebody else, with a registered schema."""
    topic = bench.kafka.create_topic(bench.kafka.unique("orders"))
    await register(bench, topic)
    return topic


async def register(bench: RelayBench, topic: str, text: str = ORDERS) -> int:
    client = SchemaRegistry(bench.registry.url)
    try:
        return await client.register(f"{topic}-value", SchemaText(1, "PROTOBUF", text))
    finally:
        await client.close()


async def tell(bench: RelayBench, job: UUID, seq: int, topic: str, *, value: bytes = VALUE, **changes: str) -> None:
    """Let a step of the run send a record with its event."""
    await bench.sql.execute(
        b"""
        with job as (select job_id, shard from run where job_id = %(job)s),
        logged as (
          insert into event (job_id, seq, event_id, attempt, type, status, step)
          select job_id, %(seq)s, new_event_id(), 1, 2, 'RUNNING', 'tell' from job),
        kept as (
          insert into record (job_id, seq, step_index, topic, type, key, value, headers)
          select job_id, %(seq)s, 0, %(topic)s, %(type)s, 'key', %(value)s, %(headers)s::jsonb from job)
        insert into relay_queue (shard, job_id, seq, kind)
        select shard, job_id, %(seq)s, kind from job, unnest(array['record', 'event']) as kind
        """,
        {
            "job": job,
            "seq": seq,
            "topic": topic,
            "type": changes.get("type", "acme.v1.Order"),
            "value": value,
            "headers": HEADERS.format(id=f"{job}-{seq}"),
        },
    )
    await bench.sql.execute(b"notify workflow_runs, 'relay'")


def operations(bench: RelayBench) -> RelayOperations:
    return RelayOperations(bench.database, actor="me", on_committed=Notifier(bench.database).notify)


def contents(record: Read) -> tuple[Any, ...]:
    return record.key, record.value, tuple(record.headers), record.timestamp_ms


async def test_a_record_is_the_stored_bytes_framed_by_its_topics_schema(bench: RelayBench, orders: str) -> None:
    [job] = await bench.runs(1)
    large = b"\n\x80\x80\x08" + b"x" * 131_072
    await tell(bench, job, 2, orders)
    await tell(bench, job, 3, orders, value=large)
    async with bench.relay():
        await bench.until_published()

    first, second = await bench.published(2, orders)
    frame = unframe(first.value or b"")
    assert (frame.payload, frame.indexes) == (VALUE, (1,))
    assert unframe(second.value or b"").payload == large
    assert first.key == b"key"
    assert first.headers == [("ce_id", f"{job}-2".encode()), ("job-id", b"j"), ("step-name", b"tell")]
    [_, row, _] = await bench.outbox_of(job)
    assert first.timestamp_ms == int(row["created_at"].timestamp() * 1000)
    assert [event.seq for event in bench.decoded(await bench.published(3))] == [1, 2, 3]


async def test_what_a_worker_stores_with_a_step_is_what_consumers_get(bench: RelayBench, orders: str) -> None:
    [job] = await bench.runs(1)
    headers = record_headers(job_id=job, tenant_id="default", step="tell", message_type="acme.v1.Order")
    record = StepRecord(0, orders, "acme.v1.Order", b"order-7", VALUE, headers)
    committer = Committer(bench.database, on_committed=Notifier(bench.database).notify)
    committing = asyncio.create_task(committer.run())
    leases = Leases(bench.database, owner="worker:1", lease_seconds=60, engine_level=1)
    [held] = await leases.claim({"tokenizer": 1})
    await Moves(committer).checkpoint(held, StoredCheckpoint(0, "tell", False, {"text": "hello"}), record=record)
    await committer.close()
    await committing
    async with bench.relay():
        await bench.until_published()

    [sent] = await bench.published(1, orders)
    assert (sent.key, unframe(sent.value or b"").payload) == (b"order-7", VALUE)
    assert sent.headers == [(name, text.encode()) for name, text in headers]
    assert [event.step for event in bench.decoded(await bench.published(2))] == ["", "tell"]


async def test_records_of_a_job_arrive_in_order_with_several_relays(bench: RelayBench, orders: str) -> None:
    async with bench.relay("a:1"), bench.relay("b:1"):
        jobs = await bench.runs(10)
        for seq in range(2, 7):
            for job in jobs:
                await tell(bench, job, seq, orders)
        await bench.until_published()
    records = await bench.published(50, orders)
    for job in jobs:
        assert [id_of(r) for r in records if id_of(r).startswith(str(job))] == [f"{job}-{seq}" for seq in range(2, 7)]


async def test_a_record_is_sent_again_with_the_same_bytes_after_a_crash_and_under_a_newer_schema(
    bench: RelayBench, orders: str
) -> None:
    first, later = await bench.runs(2)
    reached = asyncio.Event()

    async def crashes(point: str) -> None:
        if point == "relay.before_mark":
            reached.set()
            await asyncio.Event().wait()

    await bench.sql.execute(b"delete from relay_queue")
    await tell(bench, first, 2, orders)
    async with bench.relay("a:1", commit_point=crashes) as doomed:
        await asyncio.wait_for(reached.wait(), 20)
        await doomed.crash()
    newer = await register(bench, orders, ORDERS.replace("message Note {}", "message Other {} message Note {}"))
    async with bench.relay("b:1"):
        await bench.until_published()
        await bench.sql.execute(b"update run set definition_hash = '\\x02' where job_id = %(id)s", {"id": later})
        await tell(bench, later, 2, orders)
        await bench.until_published()

    *again, other = await bench.published(3, orders)
    assert [id_of(record) for record in again] == [f"{first}-2"] * 2
    assert contents(again[0]) == contents(again[1])
    assert unframe(again[0].value or b"").schema_id != newer
    frame = unframe(other.value or b"")
    assert (frame.schema_id, frame.indexes, frame.payload) == (newer, (2,), VALUE)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("unregistered", "unknown-schema"),
        ("another", "no-such-message"),
        ("ours", "own-topic"),
        pytest.param("unknown", "UNKNOWN_TOPIC", marks=pytest.mark.apache),
    ],
)
async def test_a_record_that_cannot_be_sent_waits_with_its_run_and_nobody_else(
    bench: RelayBench, orders: str, fault: str, words: str
) -> None:
    stuck, other = await bench.runs(2)
    topic = bench.events_topic if fault == "ours" else orders
    if fault == "unregistered":
        topic = bench.kafka.create_topic(bench.kafka.unique("unregistered"))
    elif fault == "unknown":
        topic = bench.kafka.unique("nowhere")
        await register(bench, topic)
    await tell(bench, stuck, 2, topic, type="acme.v1.Gone" if fault == "another" else "acme.v1.Order")
    await tell(bench, other, 2, orders)
    async with bench.relay(topic_metadata_propagation_max_ms=200) as running:
        await eventually(lambda: running.failures("record") >= 1)
        await asyncio.wait_for(bench.until_queued_at_most(2), 20)
        [failing] = (await operations(bench).failing()).rows
        assert (failing.kind, failing.job_id, failing.seq) == ("record", stuck, 2)
        assert words in (failing.last_error or "")
        assert [row["status"] for row in await bench.outbox_of(stuck)] == ["PUBLISHED", "PENDING"]
        assert len(await bench.published(1, orders)) == 1
        if fault == "unregistered":
            await register(bench, topic)
            await asyncio.sleep(1)  # as long as an unknown subject is remembered
            assert await operations(bench).resend(stuck) == [2]
            await bench.until_published()
            assert len(await bench.published(1, topic)) == 1


async def test_a_record_that_was_given_up_is_not_sent_and_its_run_goes_on(bench: RelayBench, orders: str) -> None:
    [job] = await bench.runs(1)
    await tell(bench, job, 2, bench.events_topic)
    await tell(bench, job, 3, orders)
    await bench.sql.execute(b"update relay_queue set attempts = 10 where kind = 'record' and seq = 2")
    async with bench.relay() as running:
        await eventually(lambda: "1 blocked keys" in running.relay.health().detail)
        await operations(bench).skip(job, 2, reason="nobody reads it")
        await bench.until_published()

    events = bench.decoded(await bench.published(3))
    assert [(event.seq, event.HasField("detail")) for event in events] == [(1, False), (2, False), (3, False)]
    assert [id_of(record) for record in await bench.published(1, orders)] == [f"{job}-3"]
    assert await select_one(bench.sql, "select skip_reason from record where seq = 2") == "nobody reads it"
    assert await select_one(bench.sql, "select detail ->> 'kind' from audit where verb = 'relay skip'") == "record"


async def test_events_sent_anew_ask_and_tell_nobody_twice(bench: RelayBench, orders: str) -> None:
    out, waits = await bench.runs(2)
    await tell(bench, out, 2, orders)
    async with bench.relay():
        await bench.until_published()
    await tell(bench, waits, 2, orders)
    republish = Republish(bench.database, actor="me", on_committed=Notifier(bench.database).notify)
    async for _ in republish.all_since(datetime(2020, 1, 1, tzinfo=UTC)):
        pass
    query = "select kind, seq from relay_queue where job_id = %(id)s order by id"
    for job, expected in ((out, ["event", "event"]), (waits, ["event", "record", "event"])):
        assert [row["kind"] for row in await select(bench.sql, query, {"id": job})] == expected
    async with bench.relay():
        await bench.until_published()
    assert [id_of(record) for record in await bench.published(2, orders)] == [f"{out}-2", f"{waits}-2"]
    assert len(await bench.published(7)) == 7
