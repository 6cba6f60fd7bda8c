"""Reading positions; moving them is shown with the batches that move them."""

from store.database import Database
from store.positions import Positions
from store.records import Position, PositionMove
from store.submit import IntakeBatch, Submits
from tests.store.samples import GROUP, Sql


async def test_positions_are_those_of_the_group_and_the_topics_asked_for(
    database: Database, submits: Submits, sql: Sql
) -> None:
    moves = [PositionMove(topic, partition, "t1", None, 7) for topic in ("a", "b", "c") for partition in (0, 1)]
    await submits.batch(IntakeBatch(GROUP, (), (), moves))
    await submits.batch(IntakeBatch("others", (), (), [PositionMove("a", 0, "t1", None, 99)]))
    await sql.execute(b"update intake_position set floor_offset = 3 where topic = 'a' and partition = 1")

    assert await Positions(database, on_committed=lambda payloads: None).read(GROUP, ["a", "c", "unknown"]) == {
        ("a", 0): Position("a", 0, "t1", 7, 0),
        ("a", 1): Position("a", 1, "t1", 7, 3),
        ("c", 0): Position("c", 0, "t1", 7, 0),
        ("c", 1): Position("c", 1, "t1", 7, 0),
    }


async def test_no_topics_have_no_positions(database: Database) -> None:
    assert await Positions(database, on_committed=lambda payloads: None).read(GROUP, []) == {}
