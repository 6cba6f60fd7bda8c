"""Where reading begins, case by case."""

from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from schemas.errors import StoreUnavailable
from store.database import Database
from store.positions import PositionOf, Positions, Why
from store.records import Position, PositionMove
from store.submit import IntakeBatch, Submits
from streams.kafka.assignment import Partition
from streams.kafka.identities import Identities
from streams.kafka.positions import Bounds, Start, StartingPoints, StartReason, start_of
from streams.metrics import Metrics

NOW = "id-now"


def stored(offset: int, *, floor: int = 0, topic_id: str = NOW) -> Position:
    return Position("t", 0, topic_id, offset, floor)


@pytest.mark.parametrize(
    ("committed", "position", "bounds", "start"),
    [
        pytest.param(None, None, (0, 0), Start(0, StartReason.FIRST), id="an empty log nobody read"),
        pytest.param(
            None, None, (7, 9), Start(7, StartReason.FIRST), id="what retention took before us is not lost to us"
        ),
        pytest.param(5, stored(5), (0, 9), Start(5, StartReason.AGREED), id="both agree"),
        pytest.param(0, stored(0), (0, 9), Start(0, StartReason.AGREED), id="both agree on zero"),
        pytest.param(9, stored(9), (0, 9), Start(9, StartReason.AGREED), id="everything is read"),
        pytest.param(9, stored(9), (9, 9), Start(9, StartReason.AGREED), id="everything is read and removed"),
        pytest.param(3, stored(5), (0, 9), Start(3, StartReason.COMMITTED_LOWER), id="an offset commit was lost"),
        pytest.param(0, stored(5), (0, 9), Start(0, StartReason.COMMITTED_LOWER), id="an operator went back to zero"),
        pytest.param(8, stored(5), (0, 9), Start(5, StartReason.STORED_LOWER), id="the database was put back"),
        pytest.param(None, stored(5), (0, 9), Start(5, StartReason.ONLY_STORED), id="Kafka forgot the group"),
        pytest.param(5, None, (0, 9), Start(0, StartReason.ONLY_COMMITTED), id="put back to before it was read"),
        pytest.param(2, stored(2, floor=4), (0, 9), Start(4, StartReason.FLOOR), id="skipped by an operator"),
        pytest.param(None, stored(0, floor=4), (0, 9), Start(4, StartReason.FLOOR), id="skipped before it was read"),
        pytest.param(2, stored(6, floor=6), (0, 9), Start(6, StartReason.FLOOR), id="never back under the floor"),
        pytest.param(
            5,
            stored(5, topic_id="id-before"),
            (0, 9),
            Start(0, StartReason.TOPIC_REPLACED),
            id="the topic was made again",
        ),
        pytest.param(
            None,
            stored(5, floor=5, topic_id="id-before"),
            (2, 9),
            Start(2, StartReason.TOPIC_REPLACED),
            id="a floor is of its topic",
        ),
        pytest.param(12, stored(12), (0, 9), Start(0, StartReason.BEYOND_END), id="both beyond the end"),
        pytest.param(12, stored(4), (0, 9), Start(0, StartReason.BEYOND_END), id="one beyond the end: the log was cut"),
        pytest.param(4, stored(12), (3, 9), Start(3, StartReason.BEYOND_END), id="the other beyond the end"),
        pytest.param(12, None, (0, 9), Start(0, StartReason.BEYOND_END), id="only a committed offset, beyond the end"),
        pytest.param(
            12, stored(12, floor=4), (0, 9), Start(4, StartReason.BEYOND_END), id="beyond the end, floor within"
        ),
        pytest.param(
            12, stored(12, floor=11), (0, 9), Start(0, StartReason.BEYOND_END), id="floor and positions beyond the end"
        ),
        pytest.param(5, stored(5), (8, 9), Start(8, StartReason.RETENTION, lost=3), id="removed before they were read"),
        pytest.param(7, stored(5), (8, 9), Start(8, StartReason.RETENTION, lost=3), id="rows lost with the database"),
        pytest.param(
            5, stored(8), (8, 9), Start(8, StartReason.RETENTION, lost=0), id="Kafka's copy is behind: nothing is lost"
        ),
        pytest.param(5, None, (8, 9), Start(8, StartReason.RETENTION, lost=3), id="removed, with an empty database"),
        pytest.param(
            2, stored(2, floor=5), (8, 9), Start(8, StartReason.RETENTION, lost=3), id="what was skipped is not lost"
        ),
    ],
)
def test_reading_begins_where_nothing_can_be_missed(
    committed: int | None, position: Position | None, bounds: tuple[int, int], start: Start
) -> None:
    assert start_of(committed, position, NOW, Bounds(*bounds)) == start


class _Ids:
    """Answers for the brokers, which these tests do without."""

    async def of(self, topics: Collection[str]) -> Identities:
        return Identities("cluster", dict.fromkeys(topics, NOW))


class _Log:
    def __init__(self, committed: int | None, *bounds: Bounds) -> None:
        self._committed = committed
        self._bounds = list(bounds)
        self.looks = 0

    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int | None]:
        return dict.fromkeys(partitions, self._committed)

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        self.looks += 1
        return dict.fromkeys(partitions, self._bounds[min(self.looks, len(self._bounds)) - 1])


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=2)
    await database.open()
    yield database
    await database.close()


def starting_points(database: Database, metrics: Metrics) -> StartingPoints:
    return StartingPoints(
        group_id="g",
        positions=Positions(database, on_committed=lambda payloads: None),
        identities=_Ids(),
        metrics=metrics,
        seconds_between_looks=0,
    )


async def test_a_position_beyond_the_end_is_believed_only_when_the_end_stays_there(database: Database) -> None:
    starts = starting_points(database, Metrics())
    move = PositionMove("t", 0, NOW, None, 9)
    await Submits(database, on_committed=lambda payloads: None).batch(IntakeBatch("g", positions=[move]))
    lagging = _Log(9, Bounds(0, 4), Bounds(0, 9))
    assignment = await starts.assignment(1, [("t", 0)], lagging)
    assert (assignment.partitions["t", 0].next_offset, lagging.looks) == (9, 2)

    cut = _Log(9, Bounds(0, 4))
    assignment = await starts.assignment(2, [("t", 0)], cut)
    assert assignment.partitions["t", 0].next_offset == 0
    assert cut.looks == 5


async def test_lost_offsets_are_counted_once_however_often_the_partitions_are_assigned(database: Database) -> None:
    metrics = Metrics()
    starts = starting_points(database, metrics)

    def counted() -> float | None:
        return metrics.registry.get_sample_value("workflow_runs_intake_records_lost_total", {"topic": "t"})

    for number in (1, 2):
        await starts.assignment(number, [("t", 0)], _Log(10, Bounds(60, 80)))
        assert (counted(), starts.lost) == (50, {"t": 50})
    await starts.assignment(3, [("t", 0)], _Log(10, Bounds(70, 80)))
    assert (counted(), starts.lost) == (60, {"t": 60})


@pytest.mark.parametrize(
    ("topic_id", "end", "floor"),
    [
        pytest.param(NOW, 80, 40, id="of this log"),
        pytest.param("id-before", 80, 0, id="of a topic that is gone"),
        pytest.param(NOW, 30, 0, id="beyond the end"),
    ],
)
async def test_a_floor_holds_for_the_log_that_it_was_set_for(
    database: Database, topic_id: str, end: int, floor: int
) -> None:
    """Kept for a log that is gone, it would hide the records of its successor from the next assignment on."""
    of, why = PositionOf("g", "t", 0, topic_id), Why("anna", "a flood")
    await Positions(database, on_committed=lambda payloads: None).skip(of, 40, committed=None, why=why)
    starts, log = starting_points(database, Metrics()), _Log(None, Bounds(0, end))
    assignment = await starts.assignment(1, [("t", 0)], log)
    [move] = assignment.moves({("t", 0): 20})
    assert (move.expected_floor, move.floor_offset) == (40, floor)
    await Submits(database, on_committed=lambda payloads: None).batch(IntakeBatch("g", positions=[move]))
    again = await starts.assignment(2, [("t", 0)], log)
    assert again.partitions["t", 0].next_offset == (40 if floor else 20)


async def test_without_the_store_nobody_says_where_to_begin() -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:9/nothing", pool_size=2)
    await nowhere.open()
    with pytest.raises(StoreUnavailable):
        await starting_points(nowhere, Metrics()).assignment(1, [("t", 0)], _Log(9, Bounds(0, 9)))
    await nowhere.close()
