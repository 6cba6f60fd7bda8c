"""What belongs to one assignment, and what ends with it."""

import asyncio

import pytest

from store.records import PositionMove
from streams.kafka.assignment import AssignedPartition, Assignment, AssignmentEnded


def assignment(stored: int | None = 5, next_offset: int = 5) -> Assignment:
    return Assignment(1, "cluster", {("t", 0): AssignedPartition("id", stored, next_offset)})


def test_a_position_moves_from_what_was_read_and_then_from_what_was_written() -> None:
    here = assignment(stored=None, next_offset=0)
    [first] = here.moves({("t", 0): 3})
    assert first == PositionMove("t", 0, "id", expected=None, next_offset=3)
    here.moved([first])
    assert here.moves({("t", 0): 7}) == [PositionMove("t", 0, "id", expected=3, next_offset=7)]


def test_records_read_again_never_set_the_position_back() -> None:
    here = assignment(stored=50, next_offset=10)
    moves = here.moves({("t", 0): 30})
    assert moves == [PositionMove("t", 0, "id", expected=50, next_offset=50)]
    here.moved(moves)
    assert here.moves({("t", 0): 60}) == [PositionMove("t", 0, "id", expected=50, next_offset=60)]


def test_a_position_of_a_log_that_is_gone_is_set_back() -> None:
    here = Assignment(1, "cluster", {("t", 0): AssignedPartition("id", 50, 0, is_of_this_log=False)})
    moves = here.moves({("t", 0): 30})
    assert moves == [PositionMove("t", 0, "id", expected=50, next_offset=30)]
    here.moved(moves)
    assert here.moves({("t", 0): 20}) == [PositionMove("t", 0, "id", expected=30, next_offset=30)]


def test_a_log_that_goes_back_is_noticed_and_gaps_are_not_minded() -> None:
    here = assignment()
    assert here.fetched(("t", 0), 5, 9)
    assert here.fetched(("t", 0), 12, 20)
    assert not here.fetched(("t", 0), 20, 30)


async def test_an_ended_assignment_lets_nothing_begin_and_wakes_who_waits() -> None:
    here = assignment()
    waiting = asyncio.create_task(here.pause(60))
    await asyncio.sleep(0)
    here.end()
    with pytest.raises(AssignmentEnded):
        await waiting
    with pytest.raises(AssignmentEnded), here.work():
        pytest.fail("no work begins any more")


async def test_a_pause_lasts_as_long_as_asked_while_the_assignment_does() -> None:
    await assignment().pause(0.001)


async def test_whoever_ends_it_can_wait_for_the_work_in_hand() -> None:
    here = assignment()
    with here.work():
        here.end()
        waiting = asyncio.create_task(here.idle())
        await asyncio.sleep(0)
        assert not waiting.done()
    async with asyncio.timeout(1):
        await waiting


async def test_reading_ahead_stops_at_either_bound_until_something_is_stored() -> None:
    here = assignment()
    here.buffered(600)
    here.buffered(600)
    async with asyncio.timeout(1):
        await here.room(3, 2_000)
    for most_records, most_bytes in ((2, 2_000), (3, 1_200)):
        waiting = asyncio.create_task(here.room(most_records, most_bytes))
        await asyncio.sleep(0)
        assert not waiting.done()
        here.unbuffered(1, 600)
        async with asyncio.timeout(1):
            await waiting
        here.buffered(600)


async def test_nobody_waits_for_room_behind_the_end() -> None:
    here = assignment()
    here.buffered(1_000)
    waiting = asyncio.create_task(here.room(1, 1))
    await asyncio.sleep(0)
    here.end()
    async with asyncio.timeout(1):
        await waiting
