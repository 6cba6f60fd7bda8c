"""What is noticed of an assignment while it is read."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from schemas.errors import StoreUnavailable
from store.records import Position
from streams.kafka.assignment import AssignedPartition, Assignment, Gap, Partition
from streams.kafka.identities import Identities
from streams.kafka.log_reader import LogState
from streams.kafka.positions import Bounds, StartingPoints
from streams.kafka.watch import PositionWatch
from streams.metrics import Metrics
from tests.agents.bench import IntakeBench, request_value, until

ONE: Partition = ("t", 1)


class World:
    """What the database and the brokers would say."""

    def __init__(self) -> None:
        self.topic_id = "id"
        self.stored: Position | None = Position("t", 1, "id", 50, 0)
        self.log = Bounds(0, 80)
        self.oldest: datetime | None = None
        self.retention_ms = "3600000"
        self.looks = 0
        self.asked_for_ages = 0
        self.is_away = False

    async def of(self, topics: Collection[str]) -> Identities:
        self.looks += 1
        return Identities("cluster", dict.fromkeys(topics, self.topic_id))

    async def read(self, group_id: str, topics: Collection[str]) -> dict[Partition, Position]:
        if self.is_away:
            raise StoreUnavailable("away")
        return {} if self.stored is None else {ONE: self.stored}

    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int | None]:
        return dict.fromkeys(partitions)

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        return dict.fromkeys(partitions, self.log)

    async def look(self, places: Mapping[Partition, int | None]) -> Mapping[Partition, LogState]:
        self.asked_for_ages += 1
        return {partition: LogState(self.log.start, self.log.end, self.oldest) for partition in places}

    async def config(self, topic: str) -> Mapping[str, str]:
        return {"retention.ms": self.retention_ms}


class Watched:
    """A watch over a world, and the assignment that it looks at."""

    def __init__(self) -> None:
        self.world = World()
        self.metrics = Metrics()
        starts = StartingPoints(
            group_id="g",
            positions=self.world,  # type: ignore[arg-type]  # reads alone
            identities=self.world,
            metrics=self.metrics,
        )
        self.changed_by_hand = asyncio.Event()
        self.watch = PositionWatch(
            starts=starts,
            logs=self.world,
            configs=self.world,
            metrics=self.metrics,
            changed_by_hand=self.changed_by_hand,
            seconds_between_looks=0.01,
            seconds_between_reads=3_600,
        )
        self.starts = starts
        self.assignment = Assignment(1, "cluster", {ONE: AssignedPartition("id", 50, 50)})

    async def void(self) -> str:
        async with asyncio.timeout(5):
            return await self.watch.until_void(self.assignment, self.world)

    async def goes_on(self) -> None:
        watching = asyncio.create_task(self.watch.until_void(self.assignment, self.world))
        enough = self.world.looks + 3  # the last one may be under way
        await until(lambda: self.world.looks >= enough or watching.done(), lambda: "it does not look")
        assert not watching.done()
        watching.cancel()

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"workflow_runs_{name}", {"topic": "t", "partition": "1"})


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_an_assignment_that_says_what_is_so_is_left_alone(watched: Watched) -> None:
    await watched.goes_on()
    watched.world.stored = Position("t", 1, "id", 60, 0)  # by another reader: the next batch finds out
    watched.changed_by_hand.set()
    await watched.goes_on()


async def test_a_topic_that_was_made_again_is_noticed(watched: Watched) -> None:
    watched.world.topic_id = "other"
    assert await watched.void() == "t was made again"


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(Position("t", 1, "id", 49, 0), id="set back"),
        pytest.param(Position("t", 1, "id", 70, 70), id="skipped"),
        pytest.param(None, id="gone"),
    ],
)
async def test_a_position_in_somebody_else_s_hand_is_noticed(watched: Watched, stored: Position | None) -> None:
    watched.world.stored = stored
    assert await watched.void() == "the position of t[1] was changed by hand"


async def test_the_rows_are_looked_at_again_when_a_change_is_told_of_and_not_before(watched: Watched) -> None:
    await watched.goes_on()
    watched.world.stored = Position("t", 1, "id", 49, 0)
    await watched.goes_on()
    watched.changed_by_hand.set()
    assert await watched.void() == "the position of t[1] was changed by hand"


async def test_a_change_that_is_told_of_during_an_outage_is_noticed_after_it(watched: Watched) -> None:
    await watched.goes_on()
    watched.world.stored = Position("t", 1, "id", 49, 0)
    watched.world.is_away = True
    watched.changed_by_hand.set()
    await watched.goes_on()
    watched.world.is_away = False
    assert await watched.void() == "the position of t[1] was changed by hand"


async def test_a_batch_that_commits_during_the_look_is_nobody_s_hand(watched: Watched) -> None:
    async def read(group_id: str, topics: Collection[str]) -> dict[Partition, Position]:
        before = Position("t", 1, "id", watched.assignment.partitions[ONE].stored or 0, 0)
        watched.assignment.partitions[ONE].stored = before.next_offset + 1
        return {ONE: before}

    watched.world.read = read  # type: ignore[method-assign]
    await watched.goes_on()


async def test_an_outage_says_nothing_about_the_assignment(watched: Watched) -> None:
    watched.world.is_away = True
    await watched.goes_on()
    watched.world.is_away, watched.world.stored = False, None
    assert await watched.void()


async def test_lag_and_the_time_that_is_left_are_told_and_taken_back(watched: Watched) -> None:
    watched.world.oldest = datetime.now(UTC) - timedelta(minutes=51)
    await watched.goes_on()
    assert watched.metric("intake_lag") == 30
    assert 500 < (watched.metric("intake_retention_left_seconds") or 0) < 601
    assert (watched.watch.told() or "").startswith(
        "30 offsets are not read yet, retention takes the first of t[1] in 5"
    )
    assert watched.world.asked_for_ages == 1
    watched.assignment.partitions[ONE].stored = 80
    watched.world.stored = Position("t", 1, "id", 80, 0)
    await watched.goes_on()
    assert watched.metric("intake_lag") == 0
    assert watched.metric("intake_retention_left_seconds") is None
    assert watched.watch.told() is None
    watched.watch.forget()
    assert watched.metric("intake_lag") is None


async def test_a_topic_that_keeps_its_records_for_ever_has_no_time_left(watched: Watched) -> None:
    watched.world.oldest, watched.world.retention_ms = datetime.now(UTC), "-1"
    await watched.goes_on()
    assert watched.metric("intake_lag") == 30
    assert watched.metric("intake_retention_left_seconds") is None


async def test_of_a_gap_only_what_lies_below_the_log_s_beginning_was_lost(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    assert watched.assignment.fetched(ONE, 55, 59)  # markers, or compaction
    await watched.goes_on()
    assert watched.starts.lost == {}
    watched.world.log = Bounds(64, 80)
    assert watched.assignment.fetched(ONE, 65, 69)
    await watched.goes_on()
    assert watched.starts.lost == {"t": 4}
    assert watched.metrics.registry.get_sample_value("workflow_runs_intake_records_lost_total", {"topic": "t"}) == 4
    assert [entry.levelname for entry in caplog.records if "retention removed 4 offsets" in entry.message] == ["ERROR"]
    watched.starts.report_gap(watched.assignment, Gap(ONE, 60, 65), watched.world.log)
    assert watched.starts.lost == {"t": 4}


@pytest.mark.apache
async def test_records_that_retention_takes_from_a_reader_that_is_late_are_counted(intake: IntakeBench) -> None:
    intake.batch_records, intake.batch_bytes = 1, 64 << 10
    large = {"text": "a" * 900_000}
    async with intake.worker() as worker:
        await worker.ready()
        await intake.execute("ALTER TABLE run ADD CONSTRAINT nobody CHECK (false) NOT VALID")
        intake.produce(*[request_value(input=large) for _ in range(20)])
        await until(lambda: not worker.service.health().ready, worker.service.health)
        intake.remove_before(19)
        await intake.execute("ALTER TABLE run DROP CONSTRAINT nobody")
        await intake.has_committed(20)
        await until(lambda: "lost to retention" in worker.service.health().detail, worker.service.health)
        lost = worker.count("intake_records_lost_total", topic=intake.topic)
        assert 0 < lost == 20 - await intake.runs()
        await worker.ready()
