"""Where reading begins and what is read, on a real broker and a real database."""

from uuid import uuid4

import pytest
from confluent_kafka import Producer

from tests.agents.bench import IntakeBench, IntakeWorker, request_value, until


async def stored(intake: IntakeBench, count: int) -> None:
    """Let one worker read *count* requests, then leave."""
    intake.produce(*[request_value() for _ in range(count)])
    async with intake.worker():
        await intake.has_runs(count)
        await intake.has_committed(count)


def existing(worker: IntakeWorker) -> float:
    return worker.count("requests_total", outcome="existing")


async def test_a_database_put_back_reads_again_what_it_lost(intake: IntakeBench) -> None:
    await stored(intake, 20)
    await intake.execute("CREATE TABLE lost AS SELECT job_id FROM run ORDER BY created_at OFFSET 12")
    for table in ("run", "run_input", "run_outcome", "event", "relay_queue"):
        await intake.execute(f"DELETE FROM {table} WHERE job_id IN (SELECT job_id FROM lost)")
    await intake.execute("UPDATE intake_position SET next_offset = 12")
    async with intake.worker() as worker:
        await intake.has_runs(20)
        await until(lambda: worker.count("requests_total", outcome="born_failed") == 8, worker.service.health)
        assert existing(worker) == 0
    assert (await intake.position())["next_offset"] == 20


async def test_after_a_database_was_emptied_everything_that_is_still_there_is_read(intake: IntakeBench) -> None:
    await stored(intake, 5)
    await intake.execute("TRUNCATE run, run_input, run_outcome, event, relay_queue, intake_position")
    intake.produce(request_value())
    async with intake.worker():
        await intake.has_runs(6)
    assert (await intake.position())["next_offset"] == 6


async def test_a_committed_offset_set_back_reads_again_and_adds_nothing(intake: IntakeBench) -> None:
    await stored(intake, 10)
    intake.commit(3)
    async with intake.worker() as worker:
        await until(lambda: existing(worker) == 7, lambda: f"{existing(worker)} of 7 read again")
        await intake.has_committed(10)
    assert await intake.runs() == 10
    assert (await intake.position())["next_offset"] == 10


async def test_a_group_that_kafka_forgot_goes_on_at_the_stored_position(intake: IntakeBench) -> None:
    await stored(intake, 5)
    [deleted] = intake.kafka.admin.delete_consumer_groups([intake.group]).values()
    deleted.result(30)
    intake.produce(request_value())
    async with intake.worker() as worker:
        await intake.has_runs(6)
        await intake.has_committed(6)
        assert existing(worker) == 0


async def test_a_floor_is_never_gone_under(intake: IntakeBench) -> None:
    await stored(intake, 5)
    intake.produce(*[request_value() for _ in range(3)])
    await intake.execute("UPDATE intake_position SET floor_offset = 7")
    async with intake.worker():
        await intake.has_runs(6)
        await intake.has_committed(8)


async def test_positions_beyond_the_end_read_from_the_beginning(intake: IntakeBench) -> None:
    await stored(intake, 5)
    intake.commit(5_000)
    await intake.execute("UPDATE intake_position SET next_offset = 5000")
    intake.produce(request_value())
    async with intake.worker() as worker:
        await intake.has_runs(6)
        await until(lambda: existing(worker) == 5, lambda: f"{existing(worker)} of 5 read again")
        await intake.has_committed(6)
    assert (await intake.position())["next_offset"] == 6


async def test_a_batch_of_many_records_at_the_end_is_not_taken_for_a_position_beyond_it(intake: IntakeBench) -> None:
    """The embedded broker lists the beginning of the last batch as the end."""
    await stored(intake, 200)
    async with intake.worker() as worker:
        intake.produce(request_value())
        await intake.has_runs(201)
        assert existing(worker) == 0


async def test_a_topic_made_again_while_nobody_reads_is_read_from_its_beginning(intake: IntakeBench) -> None:
    await stored(intake, 10)
    intake.make_topic_again()
    intake.produce(*[request_value() for _ in range(4)])
    async with intake.worker():
        await intake.has_runs(14)
        await intake.has_committed(4)
    assert (await intake.position())["next_offset"] == 4


async def test_a_topic_made_again_while_it_is_read_is_read_from_its_beginning(intake: IntakeBench) -> None:
    intake.produce(*[request_value() for _ in range(10)])
    async with intake.worker() as worker:
        await intake.has_runs(10)
        before = await intake.position()
        intake.make_topic_again()
        intake.produce(*[request_value() for _ in range(4)])
        await intake.has_runs(14)
        await until(lambda: worker.service.health().ready, worker.service.health)
    after = await intake.position()
    assert (after["next_offset"], after["topic_id"] != before["topic_id"]) == (4, True)


@pytest.mark.apache
async def test_partitions_that_are_added_are_read(intake: IntakeBench) -> None:
    async with intake.worker() as worker:
        await worker.ready()
        intake.add_partitions(3)
        intake.produce(request_value(), partition=2)
        await intake.has_runs(1)


@pytest.mark.apache
async def test_what_retention_removed_unread_is_counted_and_told(intake: IntakeBench) -> None:
    await stored(intake, 5)
    intake.produce(*[request_value() for _ in range(10)])
    intake.remove_before(12)
    async with intake.worker() as worker:
        await intake.has_runs(8)
        assert worker.count("intake_records_lost_total", topic=intake.topic) == 7
        assert f"lost to retention: 7 offsets of {intake.topic}" in worker.service.health().detail
        assert worker.service.health().ready


@pytest.mark.apache
async def test_only_committed_records_are_read_and_they_come_when_they_are_committed(intake: IntakeBench) -> None:
    producer = Producer({"bootstrap.servers": intake.kafka.bootstrap, "transactional.id": intake.kafka.unique("tx")})
    producer.init_transactions(30)
    aborted, later = uuid4(), uuid4()
    producer.begin_transaction()
    producer.produce(intake.topic, request_value(aborted), partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(intake.topic, request_value(later), partition=0)
    producer.flush(30)
    async with intake.worker() as worker:
        await worker.ready()
        assert await intake.runs() == 0
        producer.commit_transaction(30)
        await intake.has_runs(1)
        intake.produce(request_value())
        await intake.has_runs(2)
        assert await intake.rows("SELECT 1 FROM run WHERE job_id = %s", aborted) == []
        assert await intake.rows("SELECT 1 FROM run WHERE job_id = %s", later) != []
        # Three records, and a mark after each transaction.
        await intake.has_committed(5)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(intake: IntakeBench, codec: str) -> None:
    producer = Producer({"bootstrap.servers": intake.kafka.bootstrap, "compression.type": codec, "linger.ms": 50})
    for _ in range(20):
        producer.produce(intake.topic, request_value(input={"text": "a" * 500}), partition=0)
    assert producer.flush(30) == 0
    async with intake.worker():
        await intake.has_runs(20)
