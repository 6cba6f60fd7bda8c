"""What is committed is published: in order per job, at least once, each time with the same bytes."""

import asyncio
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest

from schemas.ids import key_of
from store.database import Database
from store.relay_queue import RelayQueue
from tests.relay.bench import RelayBench, first_arrivals, id_of
from tests.store.samples import connected, letter, select


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


async def test_an_event_that_becomes_visible_late_is_not_overtaken_by_a_later_one_of_its_job(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id was given out long before, and the relay has begun to read behind it."""
    monkeypatch.setattr("streams.relay.marks.ASK_SECONDS", 0.0)
    late, *others = [(await bench.runs(1, job_id=UUID(int=number << 8)))[0] for number in range(1, 5)]  # in one shard
    more = b"""
        with logged as (
          insert into event (job_id, seq, event_id, attempt, type, status, step)
          values (%(job)s, %(seq)s, new_event_id(), 1, 2, 'RUNNING', 'step'))
        insert into relay_queue (shard, job_id, seq) select shard, job_id, %(seq)s from run where job_id = %(job)s"""
    async with bench.relay(lease_seconds=60), connected(bench.url) as slow:
        await bench.until_published()
        async with slow.transaction():
            await slow.execute(more, {"job": late, "seq": 2})
            for seq in range(2, 6):
                await bench.more_events(others, [seq])
                await bench.until_queued_at_most(0)
        await bench.sql.execute(more, {"job": late, "seq": 3})
        await bench.more_events(others, [6])
        await bench.until_published()

    events = bench.decoded(await bench.published(21))
    assert [event.seq for event in events if event.job_id == str(late)] == [1, 2, 3]


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


async def test_what_a_newer_release_wrote_is_left_to_a_newer_relay(bench: RelayBench) -> None:
    newer, ours = await bench.runs(2)
    await bench.sql.execute(b"update event set contract_version = 2 where job_id = %(job)s", {"job": newer})

    async with bench.relay() as running:
        await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox_of(ours)})
        [waiting] = await bench.outbox_of(newer)
        assert (waiting["status"], waiting["attempts"]) == ("PENDING", 0)
        assert running.relay.health().ready


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
