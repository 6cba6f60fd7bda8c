"""Positions in an operator's hand: back, past, and never behind the back of whoever reads."""

import asyncio
from typing import Any

import pytest

from schemas.errors import InputInvalid, NotFound, PositionMoved
from store.database import Database
from store.notify import POSITIONS
from store.positions import PositionChange, PositionOf, Positions, Why
from store.records import Position, PositionMove
from store.submit import IntakeBatch, Submits
from tests.store.samples import GROUP, TOPIC, Sql, connected, record, select, select_one, submission, until_blocked

OF = PositionOf(GROUP, TOPIC, 0, "t1")
WHY = Why("cli:anna", "a bad record")


@pytest.fixture
def woken() -> list[str]:
    """The wake-ups that changes sent."""
    return []


@pytest.fixture
def positions(database: Database, woken: list[str]) -> Positions:
    return Positions(database, on_committed=woken.extend)


def move(expected: int | None, next_offset: int, *, floor: int = 0, **changes: Any) -> PositionMove:
    return PositionMove(TOPIC, 0, "t1", expected, next_offset, expected_floor=floor, floor_offset=floor, **changes)


async def stands(positions: Positions) -> Position:
    return (await positions.read(GROUP, [TOPIC]))[TOPIC, 0]


async def read_upto(submits: Submits, offset: int) -> None:
    await submits.batch(IntakeBatch(GROUP, (), (), [move(None, offset)]))


async def test_a_position_goes_back_and_the_audit_says_who_did_it(
    positions: Positions, submits: Submits, sql: Sql
) -> None:
    await read_upto(submits, 50)
    assert await positions.seek(OF, 40, below_floor=False, why=WHY) == PositionChange(50, 40, 0)
    assert await stands(positions) == Position(TOPIC, 0, "t1", 40, 0)
    [line] = await select(sql, "select actor, verb, reason, detail from audit")
    detail = {"group": GROUP, "topic": TOPIC, "partition": 0, "from": 50, "to": 40}
    assert line == {"actor": "cli:anna", "verb": "intake seek", "reason": "a bad record", "detail": detail}


async def test_readers_are_woken_by_a_change_and_by_none_that_was_refused(
    positions: Positions, submits: Submits, woken: list[str]
) -> None:
    await read_upto(submits, 50)
    with pytest.raises(InputInvalid):
        await positions.seek(OF, 51, below_floor=False, why=WHY)
    assert woken == []
    await positions.seek(OF, 40, below_floor=False, why=WHY)
    assert woken == [POSITIONS]
    await positions.skip(OF, 60, committed=None, why=WHY)
    assert woken == [POSITIONS, POSITIONS]


async def test_a_reader_finds_a_position_that_went_back_before_it_writes(
    positions: Positions, submits: Submits, sql: Sql
) -> None:
    await read_upto(submits, 50)
    await positions.seek(OF, 40, below_floor=False, why=WHY)
    with pytest.raises(PositionMoved):
        await submits.batch(IntakeBatch(GROUP, [record(submission(), 50)], (), [move(50, 51)]))
    assert await select_one(sql, "select count(*) from run") == 0


@pytest.mark.parametrize(
    ("offset", "told"),
    [pytest.param(51, "intake skip", id="ahead"), pytest.param(19, "--undo-skip", id="below what was skipped")],
)
async def test_a_seek_that_leaves_out_or_brings_back_records_by_mistake_is_refused(
    positions: Positions, submits: Submits, sql: Sql, offset: int, told: str
) -> None:
    await read_upto(submits, 10)
    await positions.skip(OF, 20, committed=None, why=WHY)
    await submits.batch(IntakeBatch(GROUP, (), (), [move(20, 50, floor=20)]))
    with pytest.raises(InputInvalid, match=told):
        await positions.seek(OF, offset, below_floor=False, why=WHY)
    assert await stands(positions) == Position(TOPIC, 0, "t1", 50, 20)
    assert await select_one(sql, "select count(*) from audit") == 1


async def test_what_was_skipped_is_read_after_all_when_asked_for(positions: Positions, submits: Submits) -> None:
    await read_upto(submits, 10)
    await positions.skip(OF, 20, committed=None, why=WHY)
    assert await positions.seek(OF, 15, below_floor=True, why=WHY) == PositionChange(20, 15, 15)
    assert await stands(positions) == Position(TOPIC, 0, "t1", 15, 15)


async def test_a_partition_that_nobody_read_needs_no_seek_but_may_be_skipped(positions: Positions) -> None:
    with pytest.raises(NotFound, match="reading begins by itself"):
        await positions.seek(OF, 0, below_floor=False, why=WHY)
    assert await positions.skip(OF, 7, committed=None, why=WHY) == PositionChange(None, 7, 7)
    assert await stands(positions) == Position(TOPIC, 0, "t1", 7, 7)


async def test_a_position_of_a_topic_that_is_gone_is_not_sought_and_gives_way_to_a_skip(
    positions: Positions, submits: Submits
) -> None:
    await read_upto(submits, 50)
    other = PositionOf(GROUP, TOPIC, 0, "t2")
    with pytest.raises(InputInvalid, match="deleted"):
        await positions.seek(other, 10, below_floor=False, why=WHY)
    await positions.skip(other, 3, committed=50, why=WHY)
    assert await stands(positions) == Position(TOPIC, 0, "t2", 3, 3)


async def test_what_is_read_cannot_be_skipped(positions: Positions, submits: Submits) -> None:
    await read_upto(submits, 50)
    for committed in (None, 50):
        with pytest.raises(InputInvalid, match="intake seek"):
            await positions.skip(OF, 50, committed=committed, why=WHY)


async def test_what_is_read_again_since_the_committed_offset_was_set_back_can_be_skipped(
    positions: Positions, submits: Submits
) -> None:
    await read_upto(submits, 50)
    await positions.skip(OF, 30, committed=20, why=WHY)
    assert await stands(positions) == Position(TOPIC, 0, "t1", 50, 30)
    with pytest.raises(PositionMoved):
        await submits.batch(IntakeBatch(GROUP, (), (), [move(50, 55)]))
    assert await stands(positions) == Position(TOPIC, 0, "t1", 50, 30)


@pytest.mark.parametrize("expected", [None, 40], ids=["never read", "read"])
async def test_a_batch_of_exactly_the_skipped_records_is_not_taken_for_an_earlier_try(
    positions: Positions, submits: Submits, sql: Sql, expected: int | None
) -> None:
    """Its position stands where it leads, but the floor tells: those records must never become runs."""
    if expected is not None:
        await read_upto(submits, expected)
    await positions.skip(OF, 41, committed=None, why=WHY)
    with pytest.raises(PositionMoved):
        await submits.batch(IntakeBatch(GROUP, [record(submission(), 40)], (), [move(expected, 41)]))
    assert await select_one(sql, "select count(*) from run") == 0


async def test_a_batch_that_commits_first_is_seen_by_the_operator_who_waited(
    positions: Positions, submits: Submits, sql: Sql, database_url: str
) -> None:
    await read_upto(submits, 40)
    async with connected(database_url) as reader, reader.transaction():
        await reader.execute(b"update intake_position set next_offset = 45")
        skipping = asyncio.create_task(positions.skip(OF, 43, committed=None, why=WHY))
        await until_blocked(sql, skipping)
    with pytest.raises(InputInvalid, match="read up to 45"):
        await skipping


async def test_an_operator_and_a_reader_who_begin_a_partition_at_once_agree(
    positions: Positions, sql: Sql, database_url: str
) -> None:
    async with connected(database_url) as reader, reader.transaction():
        await reader.execute(
            "insert into intake_position (group_id, topic, partition, topic_id, next_offset)"
            " values (%s, %s, 0, 't1', 5)",
            (GROUP, TOPIC),
        )
        skipping = asyncio.create_task(positions.skip(OF, 9, committed=None, why=WHY))
        await until_blocked(sql, skipping)
    assert await skipping == PositionChange(5, 9, 9)
    assert await stands(positions) == Position(TOPIC, 0, "t1", 9, 9)


async def test_a_floor_goes_with_the_log_it_was_set_for(positions: Positions, submits: Submits) -> None:
    await read_upto(submits, 10)
    await positions.skip(OF, 20, committed=None, why=WHY)
    again = PositionMove(TOPIC, 0, "t2", 20, 3, expected_floor=20, floor_offset=0)
    await submits.batch(IntakeBatch(GROUP, (), (), [again]))
    await submits.batch(IntakeBatch(GROUP, (), (), [again]))
    assert await stands(positions) == Position(TOPIC, 0, "t2", 3, 0)
