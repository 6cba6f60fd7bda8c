"""Where intake stands, back to an earlier record and past a bad one, while workers read."""

from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest

from schemas.errors import InputInvalid, NotFound
from streams.kafka.intake_operations import IntakeOperations, PartitionStatus
from streams.kafka.positions import StartReason
from tests.agents.bench import IntakeBench, request_value, until
from tests.kafka.conftest import Operate


async def status_of(operations: IntakeOperations, partition: int = 0) -> PartitionStatus:
    return (await operations.status())[partition]


async def test_a_topic_that_nobody_reads_is_all_lag(intake: IntakeBench, operate: Operate) -> None:
    intake = intake.on_partitions(2)
    before = datetime.now(UTC) - timedelta(seconds=5)
    intake.produce(*[request_value() for _ in range(7)], partition=1)
    idle, late = await operate(intake).status()
    assert (idle.partition, idle.lag, idle.oldest_unread, idle.seconds_left) == (0, 0, None, None)
    assert (late.partition, late.lag, late.stored, late.committed) == (1, 7, None, None)
    assert late.start.why is StartReason.FIRST
    assert late.oldest_unread is not None
    assert before < late.oldest_unread < datetime.now(UTC) + timedelta(seconds=5)


async def test_what_is_read_is_told_in_all_its_places(intake: IntakeBench, operate: Operate) -> None:
    intake.produce(*[request_value() for _ in range(7)])
    async with intake.worker():
        await intake.has_committed(7)
    intake.produce(request_value(), request_value())
    found = await status_of(operate(intake))
    assert found.stored is not None
    assert (found.stored.next_offset, found.committed, found.bounds.end, found.lag) == (7, 7, 9, 2)
    assert found.topic_id == found.stored.topic_id == (await intake.position())["topic_id"]


@pytest.mark.apache
async def test_the_time_left_follows_the_oldest_unread_record_and_the_retention(
    intake: IntakeBench, operate: Operate
) -> None:
    intake.topic = intake.kafka.create_topic(intake.kafka.unique("requests"), config={"retention.ms": "3600000"})
    old = datetime.now(UTC) - timedelta(minutes=50)
    intake.produce(request_value(), timestamp_ms=int(old.timestamp() * 1000))
    intake.produce(request_value())
    found = await status_of(operate(intake))
    assert found.oldest_unread is not None
    assert abs(found.oldest_unread - old) < timedelta(seconds=1)
    assert found.seconds_left is not None
    assert 500 < found.seconds_left <= 600


@pytest.mark.apache
async def test_what_retention_took_before_it_was_read_is_told(intake: IntakeBench, operate: Operate) -> None:
    intake.produce(*[request_value() for _ in range(5)])
    async with intake.worker():
        await intake.has_committed(5)
    intake.produce(*[request_value() for _ in range(5)])
    intake.remove_before(8)
    found = await status_of(operate(intake))
    assert (found.start.why, found.start.lost, found.bounds.start, found.lag) == (StartReason.RETENTION, 3, 8, 2)


async def test_a_live_group_reads_again_from_where_it_is_told(intake: IntakeBench, operate: Operate) -> None:
    intake.produce(*[request_value() for _ in range(10)])
    async with intake.worker() as worker:
        await intake.has_committed(10)
        change = await operate(intake).seek(intake.topic, 0, 4, reason="look again")
        assert (change.before, change.after) == (10, 4)
        await until(lambda: worker.count("requests_total", outcome="existing") == 6, worker.service.health)
        assert (await intake.position())["next_offset"] == 10
        intake.produce(request_value())
        await intake.has_committed(11)
        assert worker.count("requests_total", outcome="existing") == 6
        assert worker.count("intake_rebuilds_total") == 0
    assert await intake.runs() == 11


async def test_a_group_that_is_not_there_begins_where_it_is_told(intake: IntakeBench, operate: Operate) -> None:
    intake.produce(*[request_value() for _ in range(10)])
    async with intake.worker():
        await intake.has_committed(10)
    await operate(intake).seek(intake.topic, 0, None)
    async with intake.worker() as worker:
        await until(lambda: worker.count("requests_total", outcome="existing") == 10, worker.service.health)


async def test_skipped_records_are_never_read_and_stay_skipped(intake: IntakeBench, operate: Operate) -> None:
    jobs = [uuid4() for _ in range(10)]
    intake.produce(*[request_value(job_id) for job_id in jobs])
    await operate(intake).skip(intake.topic, 0, 6, reason="a flood")
    async with intake.worker():
        await intake.has_runs(4)
        await intake.has_committed(10)
    intake.commit(0)
    async with intake.worker() as worker:
        await until(lambda: worker.count("requests_total", outcome="existing") == 4, worker.service.health)
    assert {row["job_id"] for row in await intake.rows("SELECT job_id FROM run")} == set(jobs[6:])
    [line] = await intake.rows("SELECT actor, verb, reason FROM audit")
    assert line == {"actor": "cli:anna", "verb": "intake skip", "reason": "a flood"}


async def test_a_record_that_the_tables_refuse_holds_its_own_partition_alone(intake: IntakeBench) -> None:
    intake = intake.on_partitions(3)
    bad = uuid4()
    await intake.execute(f"ALTER TABLE run ADD CONSTRAINT nobody CHECK (job_id <> '{bad}')")
    async with intake.worker() as worker:
        await worker.ready()
        intake.produce(request_value(), request_value(bad), request_value(), partition=1)
        told = f"{intake.topic}[1] offset 1: "
        await until(lambda: told in worker.service.health().detail, worker.service.health)
        for partition in (0, 2):
            intake.produce(*[request_value() for _ in range(20)], partition=partition)
        await intake.has_runs(41)
        for partition in (0, 2):
            await intake.has_committed(20, partition)
        intake.produce(request_value(), partition=1)
        assert (await intake.position(1))["next_offset"] == 1
        health = worker.service.health()
        assert (health.ready, health.degraded) == (True, True)  # the other partitions are read
        assert told in health.detail

        await intake.execute("ALTER TABLE run DROP CONSTRAINT nobody")
        await intake.has_runs(44)
        await intake.has_committed(4, 1)
        await until(lambda: told not in worker.service.health().detail, worker.service.health)
        assert worker.count("intake_rebuilds_total") == 0
    assert await intake.has_run(bad)
    assert await intake.letters() == []


async def test_a_skip_frees_a_worker_whose_tables_refuse_one_record(
    intake: IntakeBench, operate: Operate, caplog: pytest.LogCaptureFixture
) -> None:
    """A constraint that this program does not know stands against one record: nothing behind it is begun."""
    bad = uuid4()
    await intake.execute(f"ALTER TABLE run ADD CONSTRAINT nobody CHECK (job_id <> '{bad}')")
    before, after = [request_value() for _ in range(5)], [request_value() for _ in range(3)]
    intake.produce(*before, request_value(bad), *after)
    async with intake.worker() as worker:
        told = f"{intake.topic}[0] offset 5: "
        await until(lambda: told in worker.service.health().detail, worker.service.health)
        health = worker.service.health()
        assert not health.ready
        assert '"nobody"' in health.detail
        assert f"intake skip {intake.topic} 0 --to 6 " in health.detail
        await intake.has_runs(5)
        assert [record.levelname for record in caplog.records if told in record.message] == ["ERROR"]
        refused = partial(worker.count, "intake_refusals_total", constraint="nobody")
        await until(lambda: refused() >= 3, worker.service.health)
        assert await intake.runs() == 5
        await operate(intake).skip(intake.topic, 0, 6, reason="it breaks the constraint")
        await intake.has_runs(8)
        await intake.has_committed(9)
        await worker.ready()
        assert worker.count("intake_rebuilds_total") == 0
    assert not await intake.has_run(bad)
    assert await intake.letters() == []


async def test_nonsense_is_refused_with_the_way_out(intake: IntakeBench, operate: Operate) -> None:
    intake.produce(*[request_value() for _ in range(5)])
    async with intake.worker():
        await intake.has_committed(5)
    intake.produce(request_value())
    operations = operate(intake)
    with pytest.raises(NotFound, match=intake.topic):
        await operations.seek("other", 0, 0)
    with pytest.raises(NotFound, match="0 to 0"):
        await operations.skip(intake.topic, 3, 1, reason="x")
    with pytest.raises(InputInvalid, match="beyond"):
        await operations.seek(intake.topic, 0, 7)
    with pytest.raises(InputInvalid, match="intake skip"):
        await operations.seek(intake.topic, 0, 6)
    with pytest.raises(InputInvalid, match="--to 6"):
        await operations.skip(intake.topic, 0, 7, reason="x")
    with pytest.raises(InputInvalid, match="intake seek"):
        await operations.skip(intake.topic, 0, 5, reason="x")
    assert (await intake.position())["next_offset"] == 5
    assert await intake.rows("SELECT 1 FROM audit") == []
    intake.topic = "never-made"
    with pytest.raises(NotFound, match="topics apply"):
        await operate(intake).status()
