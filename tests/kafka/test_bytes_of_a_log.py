"""Whatever bytes stand in a partition, the records around them become runs."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from streams.dev.apache import ApacheKafka
from tests.agents.bench import IntakeBench, request_value, until
from tests.fixtures.kafka import OnApache
from tests.kafka.conftest import Operate
from tests.kafka.raw_batches import HEADER_BYTES, produce_raw, raw_batch

pytestmark = pytest.mark.apache


def marked(batch: bytearray) -> bytearray:
    """Set every bit of the first record's attributes."""
    attributes = HEADER_BYTES + (2 if batch[HEADER_BYTES] & 0x80 else 1)
    batch[attributes] = 0xFF
    return batch


def ill_named(batch: bytearray) -> bytearray:
    return batch.replace(b"XYZ", b"\xff\xfe\x00")


ODD: dict[str, dict[str, Any]] = {
    "a header name that is not UTF-8": {"headers": [("XYZ", b"1")], "patch": ill_named},
    "the same, compressed": {"headers": [("XYZ", b"1")], "patch": ill_named, "codec": "zstd"},
    "a header name of U+0000": {"headers": [("\0", None)]},
    "a header without a name": {"headers": [("", b"")]},
    "attributes that mean nothing yet": {"patch": marked},
    "an offset far away": {"deltas": [1_000], "last_delta": 0},
    "an offset before the batch": {"deltas": [-3], "last_delta": 0},
    "a time before 1970": {"timestamp_ms": -5},
    "no time": {"timestamp_ms": -1},
}


async def test_a_record_that_no_proper_client_sends_is_read_or_a_dead_letter_and_its_neighbours_run(
    intake: IntakeBench,
) -> None:
    jobs: list[UUID] = []
    batches: list[bytes] = []

    def request() -> bytes:
        jobs.append(uuid4())
        return request_value(jobs[-1])

    for odd in ODD.values():
        batches += [raw_batch(request()), raw_batch(request(), **odd), raw_batch(b"no request", **odd)]
    # Its retention goes by the records' own times.
    intake.topic = intake.kafka.create_topic(intake.kafka.unique("requests"), config={"retention.ms": "-1"})
    await produce_raw(intake.kafka.bootstrap, intake.topic, *batches)
    intake.produce(request())
    count = len(batches) + 1
    async with intake.worker() as worker:
        await intake.has_committed(count)
        assert worker.count("intake_rebuilds_total") == 0
        assert worker.service.health().ready
    assert [row["job_id"] for row in await intake.rows("SELECT job_id FROM run ORDER BY created_at")] == jobs
    letters = await intake.letters()
    assert [letter["record_offset"] for letter in letters] == list(range(2, count - 1, 3))
    assert {(letter["key"], letter["value"]) for letter in letters} == {(b"key", b"no request")}
    assert letters[0]["headers"][0][1] == "MQ=="


@pytest.fixture
def own_log(_apache_missing: str | None) -> Iterator[ApacheKafka]:
    """A broker of this test alone, whose files can be changed while it is stopped."""
    if _apache_missing is not None:
        pytest.skip(f"needs Apache Kafka: {_apache_missing}")
    with ApacheKafka() as cluster:
        yield cluster


def turn_a_bit(cluster: ApacheKafka, topic: str, text: bytes) -> None:
    """Turn one bit where *text* stands in the log of the topic's first partition."""
    log = cluster._brokers[0].log.parent / "broker-0" / f"{topic}-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[data.index(text)] ^= 1
    log.write_bytes(data)


async def test_a_batch_that_is_broken_on_the_disk_holds_its_partition_until_it_is_mended_or_skipped(
    own_log: ApacheKafka, intake: IntakeBench, operate: Operate
) -> None:
    kafka = OnApache(own_log)
    intake = IntakeBench(
        kafka, intake.database_url, kafka.create_topic("requests", 2), "intake", intake.registry, partitions=2
    )
    broken = [str(uuid4()) for _ in range(3)]
    await produce_raw(kafka.bootstrap, intake.topic, raw_batch(request_value()))
    await produce_raw(kafka.bootstrap, intake.topic, raw_batch(*[request_value(UUID(one)) for one in broken]))
    intake.produce(request_value(), request_value())
    own_log.stop()
    turn_a_bit(own_log, intake.topic, broken[1].encode())
    own_log.start()

    told = f"{intake.topic}[0] offset 1: what stands there cannot be read: the checksum is wrong"
    async with intake.worker() as worker:
        await until(lambda: told in worker.service.health().detail, worker.service.health)
        assert f"intake skip {intake.topic} 0 --to 4 " in worker.service.health().detail
        intake.produce(*[request_value() for _ in range(5)], partition=1)
        await intake.has_runs(6)
        assert worker.service.health().ready
        assert worker.count("intake_held_partitions") == 1
        assert (await intake.position(0))["next_offset"] == 1
        [state, _] = await operate(intake).status()
        assert (state.start.offset, state.bounds.end) == (1, 6)

        await operate(intake).skip(intake.topic, 0, 4, reason="the disk is broken")
        await intake.has_runs(8)
        await intake.has_committed(6)
        await until(lambda: told not in worker.service.health().detail, worker.service.health)
        assert worker.count("intake_held_partitions") == 0
        assert worker.count("intake_rebuilds_total") == 0
    assert await intake.letters() == []
