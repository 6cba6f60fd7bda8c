"""The relay's queue: who may publish what, in which order, and what is gone when."""

import asyncio
import hashlib
from uuid import UUID

import pytest

from store.database import Database
from store.records import DeadLetter, QueuedEvent
from store.relay_queue import RelayQueue
from store.submit import IntakeBatch, Submits
from tests.store.samples import (
    GROUP,
    Sql,
    connected,
    letter,
    record,
    select,
    select_one,
    submission,
)
from tests.store.shares import held, pass_time, settle

ALL = frozenset(range(16))


def job_in(shard: int, number: int = 0) -> UUID:
    """A job id of that shard; *number* tells several apart."""
    return UUID(bytes=number.to_bytes(15) + bytes([shard]))


async def test_what_waits_in_a_held_shard_is_pending(queue: RelayQueue, submits: Submits) -> None:
    await settle(queue, ["a", "b"])
    shard = min(await held(queue, "a"))
    await submits.submit(submission(job_in(shard)))

    busy, idle = await queue.lease_shards(owner="a", lease_seconds=12), await queue.lease_shards(owner="b")
    assert (busy.pending, busy.next_look_seconds) == (True, 4)
    assert not idle.pending


async def test_a_queued_event_is_the_outbox_row_with_what_its_run_never_changes(
    queue: RelayQueue, submits: Submits, sql: Sql
) -> None:
    request = submission(job_in(3), labels={"team": "search"}, business_key="order-7", trace_context="00-trace")
    await submits.submit(request)

    [event] = await queue.events([3], limit=10)

    [outbox] = await select(sql, "select event_id, kafka_key, seq, created_at, status from workflow_run_events_outbox")
    assert outbox["status"] == "PENDING"
    assert outbox["kafka_key"] == str(request.job_id)
    assert event == QueuedEvent(
        shard=3,
        id=event.id,
        job_id=request.job_id,
        seq=1,
        event_id=outbox["event_id"],
        type=1,
        step=None,
        attempt=0,
        verdict=None,
        error=None,
        detail=None,
        status="QUEUED",
        occurred_at=outbox["created_at"],
        contract_version=1,
        format=1,
        tenant_id="default",
        workflow_name="embed-text",
        business_key="order-7",
        labels={"team": "search"},
        trace_context="00-trace",
        attempts=0,
        wait_seconds=None,
    )


async def test_events_come_oldest_first_up_to_the_limit_of_each_shard_without_the_skipped_jobs(
    queue: RelayQueue, submits: Submits
) -> None:
    jobs = [job_in(shard, number) for number in range(4) for shard in (2, 5, 9)]
    for job_id in jobs:
        await submits.submit(submission(job_id))

    events = await queue.events([5, 2], limit=2, skip=[job_in(2, 0), job_in(9, 0)])

    assert [(event.shard, event.job_id) for event in events] == [
        (2, job_in(2, 1)),
        (2, job_in(2, 2)),
        (5, job_in(5, 0)),
        (5, job_in(5, 1)),
    ]
    assert [event.id for event in events[:2]] == sorted(event.id for event in events[:2])
    assert await queue.events([], limit=2) == []


async def test_what_stands_below_a_mark_is_neither_read_nor_pending(queue: RelayQueue, submits: Submits) -> None:
    await queue.lease_shards(owner="a")
    for shard in (2, 5):
        for number in range(2):
            await submits.submit(submission(job_in(shard, number)))
    first, second, *others = await queue.events([2, 5], limit=10)

    assert await queue.events([2, 5], limit=10, low={2: second.id}) == [second, *others]
    assert await queue.events([2, 5], limit=1, low={2: first.id + 1}) == [second, others[0]]
    assert (await queue.lease_shards(owner="a", low={2: second.id, 5: others[-1].id + 1})).pending
    assert (await queue.lease_shards(owner="a", low={2: second.id + 1})).pending
    assert not (await queue.lease_shards(owner="a", low={2: second.id + 1, 5: others[-1].id + 1})).pending


async def test_who_may_hold_ids_that_nobody_sees_yet_is_named_until_the_transaction_ends(
    queue: RelayQueue, sql: Sql, database_url: str
) -> None:
    insert = b"insert into relay_queue (shard, job_id, seq) values (0, new_event_id(), 1)"
    async with connected(database_url) as reader, connected(database_url) as writer:
        async with reader.transaction(), writer.transaction():
            await reader.execute(b"select from relay_queue")
            assert await queue.writers() == frozenset()
            await writer.execute(insert)
            [first] = await queue.writers()
            await sql.execute(insert)
            assert await queue.writers() == {first}
        assert await queue.writers() == frozenset()
        async with writer.transaction(force_rollback=True):
            await writer.execute(insert)
            assert await queue.writers() not in ({first}, frozenset())


async def test_an_id_that_becomes_visible_late_is_read_all_the_same(
    queue: RelayQueue, submits: Submits, database: Database
) -> None:
    opened, release = asyncio.Event(), asyncio.Event()

    async def hold(point: str) -> None:
        opened.set()
        await release.wait()

    early = Submits(database, on_committed=lambda _: None, commit_point=hold)
    slow = asyncio.create_task(early.submit(submission(job_in(0, 1))))
    await opened.wait()
    await submits.submit(submission(job_in(0, 2)))
    assert [event.job_id for event in await queue.events([0], limit=10)] == [job_in(0, 2)]

    release.set()
    await slow

    assert [event.job_id for event in await queue.events([0], limit=10)] == [job_in(0, 1), job_in(0, 2)]


async def test_acknowledged_rows_are_gone_and_only_those(queue: RelayQueue, submits: Submits, sql: Sql) -> None:
    await queue.lease_shards(owner="a")
    for number in range(3):
        await submits.submit(submission(job_in(1, number)))
    first, second, third = await queue.events([1], limit=10)

    assert await queue.delete([(1, third.id), (1, first.id)], owner="a") == 2
    assert await queue.delete([(1, first.id), (2, second.id)], owner="a") == 0
    assert await queue.delete([], owner="a") == 0

    assert [event.id for event in await queue.events([1], limit=10)] == [second.id]
    statuses = await select(sql, "select job_id, status from workflow_run_events_outbox order by job_id")
    assert [row["status"] for row in statuses] == ["PUBLISHED", "PENDING", "PUBLISHED"]


async def test_a_relay_that_lost_a_shard_deletes_nothing_of_it(queue: RelayQueue, submits: Submits, sql: Sql) -> None:
    await queue.lease_shards(owner="late")
    for shard in (1, 2):
        await submits.submit(submission(job_in(shard)))
    rows = [(event.shard, event.id) for event in await queue.events([1, 2], limit=10)]
    await sql.execute(b"update shard set lease_owner = 'quick' where shard = 1")

    assert await queue.delete(rows, owner="late") == 1
    assert [event.shard for event in await queue.events([1, 2], limit=10)] == [1]

    await pass_time(sql, 100)
    assert await queue.delete(rows, owner="quick") == 0


async def test_a_failed_row_keeps_its_place_its_tries_and_why(queue: RelayQueue, submits: Submits, sql: Sql) -> None:
    for number in range(2):
        await submits.submit(submission(job_in(1, number)))
    first, second = await queue.events([1], limit=10)

    assert await queue.set_aside(1, first.id, error="too large", delay_seconds=0.5) == 1
    assert await queue.set_aside(1, first.id, error="x" * 5000 + "\0", delay_seconds=30) == 2

    now_first, now_second = await queue.events([1], limit=10)
    assert (now_first.id, now_first.attempts, now_second) == (first.id, 2, second)
    assert now_first.wait_seconds == pytest.approx(30, abs=2)
    [row] = await select(sql, "select last_error, attempts, status from workflow_run_events_outbox where attempts > 0")
    assert (len(row["last_error"]), row["attempts"], row["status"]) == (4000, 2, "PENDING")


async def test_a_row_that_is_gone_cannot_be_set_aside(queue: RelayQueue) -> None:
    assert await queue.set_aside(1, 12345, error="too large", delay_seconds=1) == 0


def a_letter(offset: int, shard: int = 0, **changes: object) -> DeadLetter:
    """A letter of that shard: the last byte of its hash tells."""
    content = hashlib.sha256(str(offset).encode()).digest()
    return letter(offset, content_hash=content[:31] + bytes([shard]), **changes)


async def test_letters_come_byte_for_byte_and_are_sent_when_acknowledged(
    queue: RelayQueue, submits: Submits, sql: Sql
) -> None:
    await queue.lease_shards(owner="a")
    sent = a_letter(
        1,
        shard=4,
        timestamp_ms=-1,
        key=None,
        value=bytes(range(256)),
        headers=(("plain", b"\xff\0"), ("null", None), ("plain", b""), ("n\0ul", b"1"), ("ä\ud800", None)),
        reason="broken\0 at \ud800",
    )
    await submits.batch(IntakeBatch(GROUP, [record(submission(job_in(4)))], [sent, a_letter(2, shard=4), a_letter(3)]))

    first, second = await queue.letters([4, 7], limit=10)

    assert first.letter.identity == sent.identity
    assert (first.letter.key, first.letter.value) == (None, bytes(range(256)))
    assert first.letter.headers == sent.headers
    assert (first.letter.code, first.letter.reason) == ("bad-json", "broken� at �")
    assert (first.shard, first.attempts, first.wait_seconds) == (4, 0, None)
    assert [each.letter_id for each in await queue.letters([4], limit=1, skip=[first.letter_id])] == [second.letter_id]
    assert await queue.letters([4], limit=10, low={4: first.id + 1}) == [second]
    assert [event.job_id for event in await queue.events([4], limit=10)] == [job_in(4)]

    assert await queue.delete([(4, first.id)], owner="a") == 1
    states = await select(sql, "select record_offset, state from dead_letter order by record_offset")
    assert [row["state"] for row in states] == ["SENT", "READY", "READY"]


async def test_a_letter_is_one_letter_however_often_it_is_written(
    queue: RelayQueue, submits: Submits, sql: Sql
) -> None:
    once = a_letter(1)
    results = [await submits.batch(IntakeBatch(GROUP, (), letters)) for letters in ([once, once], [once, a_letter(2)])]

    assert [result.letters for result in results] == [1, 1]
    assert len(await queue.letters([0], limit=10)) == 2
    assert await select_one(sql, "select count(*) from dead_letter") == 2


async def test_offsets_of_a_topic_made_anew_are_other_letters(submits: Submits) -> None:
    letters = [a_letter(1), a_letter(1, topic_id="topic-2"), a_letter(1, timestamp_ms=7), a_letter(1, cluster_id="c2")]

    assert (await submits.batch(IntakeBatch(GROUP, (), letters))).letters == 4


async def test_the_backlog_is_counted_up_to_a_limit(queue: RelayQueue, submits: Submits) -> None:
    await submits.batch(IntakeBatch(GROUP, [record(submission()) for _ in range(5)], [a_letter(1)]))

    assert await queue.backlog() == 6
    assert await queue.backlog(limit=3) == 3
