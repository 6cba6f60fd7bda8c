"""What an operator sees of the relay's queue, and what frees what is stuck in it."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import Conflict, InputInvalid, NotFound
from schemas.events import EventType, Status
from store.database import Database
from store.notify import RELAY, RESEND
from store.relay_operations import OutboxStatus, RelayOperations
from store.relay_queue import RelayQueue
from store.submit import IntakeBatch, Submits
from tests.store.samples import GROUP, Sql, Woken, letter, select, select_one, submission


@pytest.fixture
def operations(database: Database, woken: Woken) -> RelayOperations:
    return RelayOperations(database, actor="cli:me", on_committed=woken)


async def a_run(submits: Submits, sql: Sql, *, events: int = 1, **changes: Any) -> UUID:
    """A run with that many events, all of them waiting."""
    job_id = (await submits.submit(submission(**changes))).job_id
    for seq in range(2, events + 1):
        await sql.execute(
            b"""
            with logged as (
              insert into event (job_id, seq, event_id, attempt, type, status, step)
              values (%(job)s, %(seq)s, new_event_id(), 1, 2, 'RUNNING', 'embed'))
            insert into relay_queue (shard, job_id, seq) select shard, job_id, %(seq)s from run where job_id = %(job)s
            """,
            {"job": job_id, "seq": seq},
        )
    return job_id


async def fail(sql: Sql, job_id: UUID, seq: int, attempts: int) -> None:
    await sql.execute(
        b"""update relay_queue set attempts = %(attempts)s, last_error = 'too-large: no', next_try_at = now() + '1 hour'
             where job_id = %(job)s and seq = %(seq)s""",
        {"job": job_id, "seq": seq, "attempts": attempts},
    )


async def a_failing_letter(submits: Submits, sql: Sql, attempts: int) -> int:
    await submits.batch(IntakeBatch(GROUP, letters=[letter(1)]))
    await sql.execute(b"update relay_queue set attempts = %(n)s where kind = 'letter'", {"n": attempts})
    return int(await select_one(sql, "select letter_id from dead_letter"))


async def queue_rows(sql: Sql) -> list[dict[str, Any]]:
    return await select(sql, "select seq, attempts, next_try_at from relay_queue order by id")


async def audited(sql: Sql) -> list[dict[str, Any]]:
    return await select(sql, "select actor, verb, job_id, reason, detail from audit order by id")


async def test_failing_rows_are_listed_page_by_page_and_nothing_else(
    operations: RelayOperations, submits: Submits, sql: Sql
) -> None:
    failing = {await a_run(submits, sql, events=2) for _ in range(5)}
    for number, job_id in enumerate(failing):
        await fail(sql, job_id, 1, 10 if number == 0 else 3)
    await a_run(submits, sql)
    await a_failing_letter(submits, sql, 1)

    first = await operations.failing(limit=4)
    second = await operations.failing(limit=4, cursor=first.next_cursor)

    assert (len(first.rows), len(second.rows), second.next_cursor) == (4, 2, None)
    rows = [*first.rows, *second.rows]
    assert {row.job_id for row in rows if row.kind == "event"} == failing
    assert [row.letter_id is not None for row in rows if row.kind == "letter"] == [True]
    assert sorted(row.attempts for row in rows) == [1, 3, 3, 3, 3, 10]
    assert [row.attempts for row in rows if row.blocked] == [10]
    assert {row.last_error for row in rows if row.kind == "event"} == {"too-large: no"}


@pytest.mark.parametrize("cursor", ["", "1", "x.2", "1.", "1.-2", "1." + "9" * 20, "1.²"])
async def test_a_cursor_that_no_list_returned_is_refused(operations: RelayOperations, cursor: str) -> None:
    with pytest.raises(InputInvalid):
        await operations.failing(cursor=cursor)


async def test_each_shard_tells_its_holder_and_what_waits_since_when(
    operations: RelayOperations, database: Database, submits: Submits, sql: Sql
) -> None:
    job_id = await a_run(submits, sql, events=3)
    await RelayQueue(database).lease_shards(owner="worker-a/1")
    shard = await select_one(sql, "select shard from run")
    await sql.execute(b"update shard set lease_until = now() - interval '1 s' where shard <> %(s)s", {"s": shard})

    shards = await operations.shards()

    assert [state.shard for state in shards] == list(range(16))
    assert {(state.shard, state.backlog) for state in shards if state.backlog} == {(shard, 3)}
    assert {state.shard for state in shards if state.live} == {shard}
    assert shards[shard].lease_owner == "worker-a/1"
    oldest = await select_one(sql, f"select occurred_at from event where job_id = '{job_id}' and seq = 1")
    assert shards[shard].oldest_at == oldest
    assert shards[(shard + 1) % 16].oldest_at is None


async def test_the_outbox_of_a_run_says_of_each_event_where_it_is(
    operations: RelayOperations, submits: Submits, sql: Sql
) -> None:
    job_id = await a_run(submits, sql, events=4)
    await a_run(submits, sql, events=4)
    await sql.execute(b"delete from relay_queue where job_id = %(job)s and seq = 1", {"job": job_id})
    await fail(sql, job_id, 2, 10)

    outbox = await operations.outbox(job_id)
    rest = await operations.outbox(job_id, from_seq=2, limit=2)

    assert [event.status for event in outbox.events] == [
        OutboxStatus.PUBLISHED,
        OutboxStatus.FAILED,
        OutboxStatus.PENDING,
        OutboxStatus.PENDING,
    ]
    assert [(event.seq, event.attempts, event.last_error) for event in outbox.events[:2]] == [
        (1, 0, None),
        (2, 10, "too-large: no"),
    ]
    assert (outbox.status, outbox.events[0].type, outbox.next_seq) == (Status.QUEUED, EventType.ACCEPTED, None)
    assert ([event.seq for event in rest.events], rest.next_seq) == ([2, 3], 4)
    view = await select(
        sql,
        "select seq, status, event_id from workflow_run_events_outbox where job_id = %(job)s order by seq",
        {"job": job_id},
    )
    assert [(e.seq, e.status, e.event_id) for e in outbox.events] == [
        (row["seq"], row["status"], row["event_id"]) for row in view
    ]


async def test_the_runs_own_error_is_shown_whole(operations: RelayOperations, submits: Submits, sql: Sql) -> None:
    job_id = await a_run(submits, sql, error="x" * 10_000, target=None)

    outbox = await operations.outbox(job_id)

    assert len(outbox.error or "") == 10_000


async def test_what_failed_is_tried_at_once_and_the_audit_says_who_and_why(
    operations: RelayOperations, submits: Submits, sql: Sql, woken: Woken
) -> None:
    job_id = await a_run(submits, sql, events=3)
    other = await a_run(submits, sql)
    await fail(sql, job_id, 1, 10)
    await fail(sql, other, 1, 4)

    assert await operations.resend(job_id, seq=2) == []
    assert await audited(sql) == []
    assert await operations.resend(job_id, reason="topic takes more now") == [1]

    assert {row["attempts"] for row in await queue_rows(sql)} == {0, 4}
    assert {RELAY, RESEND} in woken.payloads
    assert await audited(sql) == [
        {
            "actor": "cli:me",
            "verb": "relay resend",
            "job_id": job_id,
            "reason": "topic takes more now",
            "detail": {"seqs": [1]},
        }
    ]
    assert await operations.resend(other, seq=1) == [1]
    assert [(row["attempts"], row["next_try_at"]) for row in await queue_rows(sql)] == [(0, None)] * 4


async def test_everything_that_failed_is_tried_at_once_however_much_it_is(
    operations: RelayOperations, submits: Submits, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.relay_operations._PAGE", 2)
    for _ in range(5):
        await fail(sql, await a_run(submits, sql), 1, 10)
    await a_failing_letter(submits, sql, 10)

    assert await operations.resend_all(reason="mended") == 6
    assert await operations.resend_all() == 0

    assert {row["attempts"] for row in await queue_rows(sql)} == {0}
    assert sum(row["detail"]["rows"] for row in await audited(sql)) == 6


async def test_a_letter_that_failed_is_tried_at_once(operations: RelayOperations, submits: Submits, sql: Sql) -> None:
    letter_id = await a_failing_letter(submits, sql, 3)

    assert await operations.resend_letter(letter_id)
    assert not await operations.resend_letter(letter_id)

    assert [row["attempts"] for row in await queue_rows(sql)] == [0]
    assert [row["detail"] for row in await audited(sql)] == [{"letterId": letter_id}]


async def test_a_skipped_event_stays_in_its_place_and_is_told_reduced_from_now_on(
    operations: RelayOperations, database: Database, submits: Submits, sql: Sql, woken: Woken
) -> None:
    job_id = await a_run(submits, sql, events=2)
    await fail(sql, job_id, 1, 10)
    before = await select(sql, "select id, seq from relay_queue order by id")

    await operations.skip(job_id, 1, reason="no topic takes it")

    assert await select(sql, "select id, seq from relay_queue order by id") == before
    assert [row["attempts"] for row in await queue_rows(sql)] == [0, 0]
    shard = await select_one(sql, "select shard from run")
    first, second = await RelayQueue(database).events([shard], limit=5)
    assert (first.skip_reason, second.skip_reason) == ("no topic takes it", None)
    assert [event.skip_reason for event in (await operations.outbox(job_id)).events] == ["no topic takes it", None]
    assert {RELAY, RESEND} in woken.payloads
    assert [(row["verb"], row["reason"], row["detail"]) for row in await audited(sql)] == [
        ("relay skip", "no topic takes it", {"seq": 1, "kind": "event", "attempts": 10, "lastError": "too-large: no"})
    ]


@pytest.mark.parametrize("attempts", [0, 9])
async def test_what_may_still_go_out_whole_cannot_be_skipped(
    operations: RelayOperations, submits: Submits, sql: Sql, attempts: int
) -> None:
    job_id = await a_run(submits, sql)
    await fail(sql, job_id, 1, attempts)

    with pytest.raises(Conflict, match="is not blocked"):
        await operations.skip(job_id, 1, reason="impatient")
    with pytest.raises(Conflict, match="not among what failed"):
        await operations.skip(job_id, 2, reason="impatient")

    assert await select_one(sql, "select skip_reason from event") is None
    assert await audited(sql) == []


async def test_a_letter_is_skipped_once_it_is_blocked(operations: RelayOperations, submits: Submits, sql: Sql) -> None:
    letter_id = await a_failing_letter(submits, sql, 9)
    with pytest.raises(Conflict):
        await operations.skip_letter(letter_id, reason="too large")
    await sql.execute(b"update relay_queue set attempts = 10")

    await operations.skip_letter(letter_id, reason="too large")

    assert await select(sql, "select skip_reason, state from dead_letter") == [
        {"skip_reason": "too large", "state": "READY"}
    ]
    assert [row["attempts"] for row in await queue_rows(sql)] == [0]
    assert [(row["verb"], row["reason"]) for row in await audited(sql)] == [("relay skip", "too large")]


async def test_a_skip_needs_a_reason(operations: RelayOperations, submits: Submits, sql: Sql) -> None:
    job_id = await a_run(submits, sql)
    await fail(sql, job_id, 1, 10)

    with pytest.raises(InputInvalid):
        await operations.skip(job_id, 1, reason=" ")


async def test_unknown_runs_and_letters_are_told_so(operations: RelayOperations) -> None:
    for work in (
        operations.outbox(uuid4()),
        operations.resend(uuid4()),
        operations.resend_letter(7),
        operations.resend_letter(2**63),
        operations.skip(uuid4(), 1, reason="r"),
        operations.skip_letter(7, reason="r"),
    ):
        with pytest.raises(NotFound):
            await work
