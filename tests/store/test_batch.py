"""A batch of intake: rows, letters and positions together, or none of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from schemas.errors import PositionMoved, StoreUnavailable
from schemas.events import Status
from store.database import Database
from store.positions import move_positions
from store.records import PositionMove, SubmitOutcome
from store.submit import BatchResult, IntakeBatch, Submits
from tests.store.samples import (
    GROUP,
    TOPIC,
    Sql,
    Woken,
    connected,
    counts,
    letter,
    position,
    record,
    select,
    select_one,
    submission,
    until_blocked,
)


async def stored_position(sql: Sql) -> tuple[str, int]:
    [row] = await select(sql, "select topic_id, next_offset from intake_position")
    return row["topic_id"], row["next_offset"]


async def test_rows_letters_and_positions_are_one_transaction(submits: Submits, sql: Sql) -> None:
    good, bad = submission(), submission(error="WORKFLOW: no", target=None)

    result = await submits.batch(IntakeBatch(GROUP, [record(good), record(bad, 1)], [letter(2)], [position(3)]))

    assert [(each.job_id, each.outcome, each.status) for each in result.submitted] == [
        (good.job_id, SubmitOutcome.CREATED, Status.QUEUED),
        (bad.job_id, SubmitOutcome.CREATED, Status.FAILED),
    ]
    assert result.letters == 1
    assert await counts(sql) == {
        "run": 2,
        "run_input": 2,
        "run_outcome": 1,
        "event": 2,
        "relay_queue": 3,
        "dead_letter": 1,
        "intake_position": 1,
    }
    written_by = """select count(distinct by) from (
        select xmin::text as by from run union select xmin::text from event union select xmin::text from relay_queue
        union select xmin::text from dead_letter union select xmin::text from intake_position) rows"""
    assert await select_one(sql, written_by) == 1


async def test_an_empty_batch_writes_nothing(submits: Submits, sql: Sql, woken: Woken) -> None:
    assert await submits.batch(IntakeBatch(GROUP)) == BatchResult((), 0)
    assert await counts(sql) == {}
    assert woken.payloads == []


@pytest.mark.spec(100)
async def test_a_batch_that_is_delivered_again_adds_nothing(submits: Submits, sql: Sql) -> None:
    records = [record(submission()), record(submission(error="WORKFLOW: no", target=None), 1)]
    batch = IntakeBatch(GROUP, records, [letter(2)], [position(3)])
    await submits.batch(batch)
    before = await counts(sql)

    as_it_was = await submits.batch(batch)  # the outcome of the commit was unknown
    redelivered = await submits.batch(IntakeBatch(GROUP, records, [letter(2)], [position(3, 3)]))  # before the offset's

    for again in (as_it_was, redelivered):
        assert [each.outcome for each in again.submitted] == [SubmitOutcome.EXISTING] * 2
        assert again.letters == 0
    assert await counts(sql) == before


async def test_runs_are_created_in_the_order_of_their_records(submits: Submits, sql: Sql) -> None:
    requests = [submission(error="WORKFLOW: no", target=None) if n % 3 == 0 else submission() for n in range(100)]

    await submits.batch(IntakeBatch(GROUP, [record(request) for request in requests]))

    rows = await select(sql, "select job_id, created_at from run order by created_at")
    assert [row["job_id"] for row in rows] == [request.job_id for request in requests]
    assert rows[-1]["created_at"] - rows[0]["created_at"] == timedelta(microseconds=99)


async def test_one_id_twice_in_a_batch_is_one_run(submits: Submits, sql: Sql) -> None:
    request = submission()
    other = submission(request.job_id, input='{"text": "b"}')

    result = await submits.batch(IntakeBatch(GROUP, [record(request), record(other, 1), record(request, 2)]))

    assert [each.outcome for each in result.submitted] == [
        SubmitOutcome.CREATED,
        SubmitOutcome.CONFLICT,
        SubmitOutcome.EXISTING,
    ]
    assert await select(sql, "select fingerprint from run") == [{"fingerprint": request.fingerprint}]
    assert await select(sql, "select record_offset from dead_letter") == [{"record_offset": 1}]


async def test_one_pruned_id_twice_in_a_batch_makes_no_run(submits: Submits, sql: Sql) -> None:
    request = submission()
    await sql.execute(
        b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, settled_at)
            values (%(job_id)s, 'default', %(fingerprint)s, 'FAILED', now())""",
        {"job_id": request.job_id, "fingerprint": request.fingerprint},
    )
    fresh = submission()

    result = await submits.batch(IntakeBatch(GROUP, [record(request), record(request, 1), record(fresh, 2)]))

    assert [each.outcome for each in result.submitted] == [
        SubmitOutcome.PRUNED,
        SubmitOutcome.PRUNED,
        SubmitOutcome.CREATED,
    ]
    assert result.submitted[0].status is Status.FAILED
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}


async def test_a_record_that_conflicts_becomes_its_dead_letter(submits: Submits, sql: Sql) -> None:
    request = submission()
    await submits.submit(request)
    other = submission(request.job_id, input='{"text": "b"}')

    result = await submits.batch(IntakeBatch(GROUP, [record(other, 7)], (), [position(8)]))

    assert [each.outcome for each in result.submitted] == [SubmitOutcome.CONFLICT]
    assert result.letters == 1
    assert await select(sql, "select record_offset, value, code, reason, state from dead_letter") == [
        {
            "record_offset": 7,
            "value": b'{"text": "b"}',
            "code": "conflict",
            "reason": f"job {request.job_id} stands for other content: nothing was changed",
            "state": "READY",
        }
    ]


async def test_a_moved_position_rolls_everything_back(submits: Submits, sql: Sql, woken: Woken) -> None:
    await submits.batch(IntakeBatch(GROUP, (), (), [position(10), position(5, partition=1)]))
    batch = IntakeBatch(GROUP, [record(submission())], [letter(1)], [position(7, 5, partition=1), position(12, 9)])

    with pytest.raises(PositionMoved) as moved:
        await submits.batch(batch)

    assert (moved.value.topic, moved.value.partition) == (TOPIC, 0)
    assert await counts(sql) == {"intake_position": 2}
    assert await select(sql, "select next_offset from intake_position order by partition") == [
        {"next_offset": 10},
        {"next_offset": 5},
    ]
    assert woken.payloads == []


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(position(12), id="begun where there is one"),
        pytest.param(position(12, 11), id="from elsewhere"),
        pytest.param(position(10, 9, topic_id="t2"), id="to the same place in another topic"),
    ],
)
async def test_a_position_moves_from_the_known_value_alone(submits: Submits, sql: Sql, move: PositionMove) -> None:
    await submits.batch(IntakeBatch(GROUP, (), (), [position(10)]))

    with pytest.raises(PositionMoved):
        await submits.batch(IntakeBatch(GROUP, (), (), [move]))
    assert await stored_position(sql) == ("t1", 10)


async def test_a_position_that_was_never_stored_cannot_be_moved(submits: Submits, sql: Sql) -> None:
    with pytest.raises(PositionMoved):
        await submits.batch(IntakeBatch(GROUP, (), (), [position(12, 11)]))
    assert await counts(sql) == {}


async def test_a_position_goes_back_and_to_a_topic_made_anew_when_its_reader_says_so(
    submits: Submits, sql: Sql
) -> None:
    await submits.batch(IntakeBatch(GROUP, (), (), [position(10)]))
    await submits.batch(IntakeBatch(GROUP, (), (), [position(4, 10)]))
    assert await stored_position(sql) == ("t1", 4)

    await submits.batch(IntakeBatch(GROUP, (), (), [position(1, 4, topic_id="t2")]))
    assert await stored_position(sql) == ("t2", 1)


async def test_a_position_keeps_the_floor_that_was_set_for_it(submits: Submits, sql: Sql) -> None:
    await submits.batch(IntakeBatch(GROUP, (), (), [position(10)]))
    await sql.execute(b"update intake_position set floor_offset = 8")
    moved = replace(position(12, 10), expected_floor=8, floor_offset=8)
    await submits.batch(IntakeBatch(GROUP, (), (), [moved]))

    assert await select(sql, "select next_offset, floor_offset from intake_position") == [
        {"next_offset": 12, "floor_offset": 8}
    ]


@pytest.mark.parametrize("expected", [None, 10], ids=["begin", "move"])
async def test_of_two_workers_that_move_a_position_at_once_one_is_told_to_reassign(
    submits: Submits, database: Database, sql: Sql, expected: int | None
) -> None:
    if expected is not None:
        await submits.batch(IntakeBatch(GROUP, (), (), [position(expected)]))
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(_: str) -> None:
        held.set()
        await release.wait()

    slow = Submits(database, on_committed=Woken(), commit_point=hold)
    winner = asyncio.create_task(slow.batch(IntakeBatch(GROUP, [record(submission())], (), [position(15, expected)])))
    await held.wait()
    loser = asyncio.create_task(submits.batch(IntakeBatch(GROUP, [record(submission())], (), [position(20, expected)])))
    await until_blocked(sql, loser)
    release.set()

    await winner
    with pytest.raises(PositionMoved):
        await loser
    assert await stored_position(sql) == ("t1", 15)
    assert await select_one(sql, "select count(*) from run") == 1


async def test_a_connection_that_dies_before_the_commit_leaves_nothing_and_the_repeat_writes_everything(
    database: Database, submits: Submits, sql: Sql
) -> None:
    async def die(_: str) -> None:
        await select(
            sql,
            """select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid()""",
        )

    batch = IntakeBatch(GROUP, [record(submission())], [letter(1)], [position(15)])

    with pytest.raises(StoreUnavailable):
        await Submits(database, on_committed=Woken(), commit_point=die).batch(batch)
    assert await counts(sql) == {}

    await submits.batch(batch)
    assert await counts(sql) == {
        "run": 1,
        "run_input": 1,
        "event": 1,
        "relay_queue": 2,
        "dead_letter": 1,
        "intake_position": 1,
    }


async def test_a_repeat_that_overtakes_its_first_try_finds_it_applied(
    submits: Submits, database: Database, sql: Sql
) -> None:
    """The first try's connection was given up while its transaction was still open."""
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(_: str) -> None:
        held.set()
        await release.wait()

    batch = IntakeBatch(GROUP, [record(submission())], [letter(1)], [position(15)])
    first = asyncio.create_task(Submits(database, on_committed=Woken(), commit_point=hold).batch(batch))
    await held.wait()
    repeat = asyncio.create_task(submits.batch(batch))
    await until_blocked(sql, repeat)
    release.set()
    await first

    result = await repeat
    assert [each.outcome for each in result.submitted] == [SubmitOutcome.EXISTING]
    assert result.letters == 0


async def test_batches_that_share_partitions_in_any_order_never_deadlock(
    submits: Submits, database: Database, sql: Sql, database_url: str
) -> None:
    """Shown without the repeat after a lost race, which would heal a deadlock."""
    await submits.batch(IntakeBatch(GROUP, (), (), [position(1, partition=number) for number in range(8)]))

    async def move(moves: Sequence[PositionMove]) -> None:
        async with database.transaction() as transaction:
            await move_positions(transaction, GROUP, moves)

    forward = [position(2, 1, partition=number) for number in range(8)]
    async with connected(database_url) as other:
        async with other.transaction():
            await other.execute(b"select from intake_position where partition = 0 for update")
            waiting = [asyncio.create_task(move(moves)) for moves in (forward, forward[::-1])]
            await until_blocked(sql, *waiting)
        await asyncio.gather(*waiting)

    assert await select_one(sql, "select count(*) from intake_position where next_offset = 2") == 8


async def test_the_times_are_the_databases(submits: Submits, sql: Sql) -> None:
    await submits.batch(IntakeBatch(GROUP, [record(submission())], [letter()], [position(1)]))

    for column, table in (("created_at", "run"), ("received_at", "dead_letter"), ("updated_at", "intake_position")):
        at: datetime = await select_one(sql, f"select {column} from {table}")
        assert abs(at - datetime.now(UTC)) < timedelta(seconds=10)
    assert isinstance(await select_one(sql, "select event_id from event"), UUID)
