"""From the topic to the tables: good requests and bad ones, beside each other."""

import asyncio
import time
from uuid import uuid4

import psycopg
import pytest

from schemas.registered import schema_text
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from streams.kafka.registry import SchemaRegistry
from tests.agents.bench import IntakeBench, request_value, until
from tests.agents.hostile import hostile_values
from tests.fixtures.kafka import Kafka


@pytest.mark.case("D02")
@pytest.mark.parametrize("key", [None, b"job-1"], ids=["no key", "a key"])
async def test_d02_the_good_request_after_each_hostile_value_is_a_row_and_the_hostile_one_leaves_a_trace(
    intake: IntakeBench, registry: RegistryServer, key: bytes | None
) -> None:
    client = SchemaRegistry(registry.url, timeout_seconds=2)
    intake.registry = client
    hostile = hostile_values(await client.register(f"{intake.topic}-value", schema_text()))
    async with intake.worker() as worker:
        await worker.ready()
        intake.produce(request_value(), key=key)
        for number, (name, (value, code)) in enumerate(hostile.items(), start=1):
            after = uuid4()
            intake.produce(value, request_value(after), key=key)
            await until(
                lambda job_id=after: intake.has_run(job_id), lambda name=name: f"stuck behind {name}", seconds=5
            )
            *_, letter = await intake.letters()
            assert (letter["code"], letter["value"], letter["key"]) == (code, value, key), name
            assert (letter["topic"], letter["partition"], letter["record_offset"]) == (intake.topic, 0, 2 * number - 1)
        await intake.has_committed(2 * len(hostile) + 1)
        held = sum(code == "unknown-schema" for _, code in hostile.values())
        assert worker.count("requests_total", outcome="dead_letter") == len(hostile) - held
        assert worker.count("requests_total", outcome="held") == held
        assert worker.count("intake_rebuilds_total") == 0
    assert await intake.runs() == len(hostile) + 1
    await client.close()


async def test_rows_are_created_in_the_order_of_their_records(intake: IntakeBench) -> None:
    jobs = [uuid4() for _ in range(300)]
    intake.produce(*[request_value(job_id) for job_id in jobs])
    async with intake.worker():
        await intake.has_runs(300)
    rows = await intake.rows("SELECT job_id, created_at FROM run ORDER BY created_at")
    assert [row["job_id"] for row in rows] == jobs
    assert len({row["created_at"] for row in rows}) == 300


async def test_a_batch_holds_no_more_than_it_may(intake: IntakeBench) -> None:
    intake.batch_records = 10
    intake.produce(*[request_value() for _ in range(95)])
    async with intake.worker() as worker:
        await intake.has_runs(95)
        assert worker.count("intake_batch_seconds_count") >= 10


async def test_many_large_records_are_read_in_batches_of_a_bounded_size(intake: IntakeBench) -> None:
    intake.batch_bytes = 1 << 20
    text = "a" * 400_000
    intake.produce(*[request_value(input={"text": text}) for _ in range(20)])
    async with intake.worker() as worker:
        await intake.has_runs(20)
        assert worker.count("intake_batch_seconds_count") >= 20 / 4


async def test_headers_and_times_of_a_dead_letter_are_kept_as_they_were(intake: IntakeBench) -> None:
    headers = [("a", b"1"), ("a", b"\xff\x00"), ("none", None), ("empty", b"")]
    an_hour_ago = int(time.time() * 1000) - 3_600_000  # within the topic's retention, which goes by the record's time
    intake.produce(b"no request", key=b"\x00\xff", headers=headers, timestamp_ms=an_hour_ago)
    async with intake.worker():
        await until(intake.letters, lambda: "no letter")
    [letter] = await intake.letters()
    assert letter["key"] == b"\x00\xff"
    assert letter["record_time"] == an_hour_ago
    assert letter["headers"] == [["a", "MQ=="], ["a", "/wA="], ["none", None], ["empty", ""]]
    assert letter["cluster_id"]
    assert letter["topic_id"] == (await intake.position())["topic_id"]


async def test_an_outage_of_the_store_is_told_and_heals_by_itself(kafka: Kafka, own_postgres: EmbeddedPostgres) -> None:
    topic = kafka.create_topic(kafka.unique("requests"), 2)
    never_asked = SchemaRegistry("http://127.0.0.1:9", timeout_seconds=1)
    intake = IntakeBench(kafka, own_postgres.url(), topic, kafka.unique("intake"), never_asked, partitions=2)
    async with intake.worker() as one:
        await one.ready()
        own_postgres.stop()
        intake.produce(*[request_value() for _ in range(20)])
        await until(lambda: not one.service.health().ready, one.service.health)
        assert one.service.health().alive
        # A worker that comes meanwhile is let into the group, and knows no place to begin.
        async with intake.worker() as other:
            await until(other.knows_no_place_to_begin, other.service.health)
            intake.produce(*[request_value() for _ in range(20)], partition=1)
            assert intake.committed(0) < 0
            own_postgres.start()
            await intake.has_runs(40)
            for worker in (one, other):
                await worker.ready()
                assert worker.count("intake_rebuilds_total") == 0
            for partition in (0, 1):
                await intake.has_committed(20, partition)


async def test_a_record_that_a_retrying_producer_sent_twice_is_one_run(intake: IntakeBench) -> None:
    value = request_value()
    intake.produce(value, value, key=b"k")
    async with intake.worker() as worker:
        await intake.has_committed(2)
        assert worker.count("requests_total", outcome="existing") == 1
    assert await intake.runs() == 1
    assert len(await intake.rows("SELECT 1 FROM event")) == 1


async def test_a_connection_that_dies_in_the_middle_of_a_batch_costs_nothing(
    intake: IntakeBench, database_url: str
) -> None:
    async with (
        intake.worker() as worker,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
    ):
        await worker.ready()
        async with other.transaction():
            await other.execute("LOCK TABLE workflow_runs.run IN SHARE MODE")
            intake.produce(*[request_value() for _ in range(50)])
            await until(lambda: intake.waiting_for_locks(), lambda: "nobody waits for the lock")
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        await intake.has_runs(50)
        await intake.has_committed(50)
        assert worker.count("intake_rebuilds_total") == 0


async def test_the_alarm_of_a_store_that_refuses_everything_lasts_as_long_as_it_does(
    intake: IntakeBench, database_url: str
) -> None:
    """Rights that are gone are an outage, not a fault of the records."""
    async with intake.worker() as worker:
        await worker.ready()
        await intake.execute("ALTER TABLE run ADD CONSTRAINT nobody CHECK (false) NOT VALID")
        jobs = [uuid4() for _ in range(3)]
        intake.produce(*[request_value(job_id) for job_id in jobs])
        await until(lambda: not worker.service.health().ready, worker.service.health)
        await asyncio.sleep(0.5)
        assert intake.committed() < 0
        assert await intake.letters() == []
        await intake.execute("ALTER TABLE run DROP CONSTRAINT nobody")
        await intake.has_runs(3)
        await worker.ready()
    assert [row["job_id"] for row in await intake.rows("SELECT job_id FROM run ORDER BY created_at")] == jobs
