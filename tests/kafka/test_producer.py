"""Each record has an acknowledgement of its own, and only what is a record's own fault is blamed on it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BrokerUnavailable, RecordRefused
from schemas.topics import load_topics
from streams.dev.broker import EmbeddedBroker
from streams.dev.ports import free_port
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.producer import EventProducer
from streams.kafka.security import KafkaSecurity
from tests.fixtures.eventually import eventually
from tests.fixtures.kafka import Kafka
from tests.kafka.reading import read

Start = Callable[..., Awaitable[EventProducer]]


@pytest.fixture
def pausable() -> Iterator[EmbeddedBroker]:
    """A broker of this test alone, which can be made to fall silent."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
async def started(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """Starts producers, on the pausable broker where the test has one, and lets them go after the test."""
    producers: list[EventProducer] = []
    broker = request.getfixturevalue("pausable" if "pausable" in request.fixturenames else "kafka")

    async def start(**options: object) -> EventProducer:
        producer = EventProducer(broker.bootstrap, KafkaSecurity(), **options)  # type: ignore[arg-type]
        await producer.start()
        producers.append(producer)
        return producer

    yield start
    for producer in producers:
        await producer.close(timeout_seconds=0)


async def _fate(future: "asyncio.Future[None]") -> str:
    try:
        async with asyncio.timeout(30):
            await future
    except RecordRefused as error:
        return error.code
    except BrokerUnavailable:
        return "unknown"
    return "acknowledged"


@contextlib.contextmanager
def _silence(broker: EmbeddedBroker) -> Iterator[None]:
    broker.pause()
    try:
        yield
    finally:
        broker.resume()


async def _until_one_goes_through(producer: EventProducer, topic: str) -> None:
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(BrokerUnavailable):
                if await _fate(await producer.produce(OutgoingRecord(topic, b"k", b"after"))) == "acknowledged":
                    return
            await asyncio.sleep(0.05)


async def test_a_record_arrives_as_it_was_handed_over(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("out"), config={"retention.ms": "-1"})
    producer = await started()
    record = OutgoingRecord(topic, b"key", b"value", [("a", b"1"), ("a", b"2"), ("none", None)], 1_700_000_000_123)

    await (await producer.produce(record))
    await (await producer.produce(OutgoingRecord(topic, None, None)))

    [first, second] = await asyncio.to_thread(read, kafka.bootstrap, topic, 2)
    assert (first.key, first.value, first.headers) == (b"key", b"value", [("a", b"1"), ("a", b"2"), ("none", None)])
    assert first.timestamp_ms == 1_700_000_000_123
    assert (second.key, second.value) == (None, None)
    assert producer.health().ready


async def test_partitions_are_those_of_javas_default_partitioner(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("keyed"), partitions=7)
    producer = await started()
    keys = [*_JAVA_MURMUR2, *(f"0198c0de-0000-7000-8000-{n:012x}".encode() for n in range(50))]

    for future in [await producer.produce(OutgoingRecord(topic, key, b"")) for key in keys]:
        await future

    found = await asyncio.to_thread(read, kafka.bootstrap, topic, len(keys), partitions=7)
    assert {record.key: record.partition for record in found} == {key: (_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


async def test_an_outage_delays_records_and_loses_none(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("outage"))
    producer = await started()
    await (await producer.produce(OutgoingRecord(topic, b"k", b"before")))

    with kafka.outage():
        futures = [await producer.produce(OutgoingRecord(topic, b"k", str(n).encode())) for n in range(20)]
        done, _ = await asyncio.wait(futures, timeout=1)
        assert not done

    assert [await _fate(future) for future in futures] == ["acknowledged"] * 20
    found = await asyncio.to_thread(read, kafka.bootstrap, topic, 21)
    assert [record.value for record in found] == [b"before", *(str(n).encode() for n in range(20))]


async def test_what_is_purged_is_not_known_to_have_arrived(pausable: EmbeddedBroker, started: Start) -> None:
    topic = "purge"
    producer = await started()
    await (await producer.produce(OutgoingRecord(topic, b"k", b"before")))

    with _silence(pausable):
        futures = [await producer.produce(OutgoingRecord(topic, b"k", b"v")) for _ in range(3)]
        producer.purge()
        assert [await _fate(future) for future in futures] == ["unknown"] * 3

    # The embedded broker takes no more from a producer that was purged: then a new one is made.
    await _until_one_goes_through(producer, topic)


async def test_a_full_buffer_is_waited_out(pausable: EmbeddedBroker, started: Start) -> None:
    topic = "full"
    producer = await started(overrides={"queue.buffering.max.messages": 5})
    await (await producer.produce(OutgoingRecord(topic, b"k", b"")))

    with _silence(pausable):
        futures = [await producer.produce(OutgoingRecord(topic, b"k", b"")) for _ in range(5)]
        waiting = asyncio.ensure_future(producer.produce(OutgoingRecord(topic, b"k", b"")))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done

    assert [await _fate(future) for future in [*futures, await waiting]] == ["acknowledged"] * 6


async def test_closing_is_bounded_whatever_the_broker_does(pausable: EmbeddedBroker, started: Start) -> None:
    topic = "close"
    producer = await started()
    await (await producer.produce(OutgoingRecord(topic, b"k", b"")))

    with _silence(pausable):
        future = await producer.produce(OutgoingRecord(topic, b"k", b""))
        began = time.monotonic()
        left = await producer.close(timeout_seconds=0.3)
        took = time.monotonic() - began

    assert (left, await _fate(future)) == (1, "unknown")
    assert took < 2.5
    with pytest.raises(BrokerUnavailable):
        await producer.produce(OutgoingRecord(topic, b"k", b""))


async def test_closing_sends_what_waits(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("flush"))
    producer = await started(overrides={"linger.ms": 200})
    for _ in range(3):
        await producer.produce(OutgoingRecord(topic, b"k", b""))

    assert await producer.close(timeout_seconds=10) == 0
    assert len(await asyncio.to_thread(read, kafka.bootstrap, topic, 3)) == 3


async def test_a_record_over_our_own_limit_is_refused_without_a_broker() -> None:
    producer = EventProducer(f"127.0.0.1:{free_port()}", KafkaSecurity(), largest_record_bytes=2_000)
    await producer.start()
    try:
        with pytest.raises(RecordRefused) as refused:
            await producer.produce(OutgoingRecord("any", b"k", b"x" * 2_000))
        assert refused.value.code == "MSG_SIZE_TOO_LARGE"
    finally:
        await producer.close(timeout_seconds=0)


async def test_its_limits_are_those_of_its_topics() -> None:
    topics = load_topics("""
requests: {role: requests, partitions: 1, config: {max.message.bytes: 300000}}
events: {role: events, partitions: 1, config: {max.message.bytes: 200000}}
answers: {role: answers, partitions: 1}
""")
    producer = EventProducer.for_topics(f"127.0.0.1:{free_port()}", KafkaSecurity(), topics)

    assert producer._config["batch.size"] == 200_000
    assert producer._config["message.max.bytes"] == topics.dead_letters["answers"].max_message_bytes
    await producer.start()  # librdkafka takes them
    await producer.close(timeout_seconds=0)


async def test_an_unreachable_broker_shows_in_health_with_its_reason() -> None:
    producer = EventProducer(f"127.0.0.1:{free_port()}", KafkaSecurity())
    await producer.start()
    try:
        await eventually(lambda: not producer.health().ready)
        health = producer.health()
        assert health.alive
        assert "Connection refused" in health.detail or "brokers are down" in health.detail
    finally:
        await producer.close(timeout_seconds=0)
    assert not producer.health().ready


@pytest.mark.apache
async def test_only_the_record_at_fault_of_a_refused_batch_is_refused(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("large"), config={"max.message.bytes": "2000"})
    producer = await started(overrides={"linger.ms": 100})
    await (await producer.produce(OutgoingRecord(topic, b"k", b"first")))

    futures = [
        await producer.produce(OutgoingRecord(topic, b"k%d" % n, b"x" * (3_000 if n == 2 else 10))) for n in range(5)
    ]

    fates = [await _fate(future) for future in futures]
    assert fates == ["acknowledged", "acknowledged", "MSG_SIZE_TOO_LARGE", "acknowledged", "acknowledged"]
    found = await asyncio.to_thread(read, kafka.bootstrap, topic, 5)
    assert sorted(record.key or b"" for record in found) == [b"k", b"k0", b"k1", b"k3", b"k4"]


@pytest.mark.apache
async def test_the_size_that_a_broker_takes_is_known_to_the_byte(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("sizes"), config={"max.message.bytes": "2000"})
    producer = await started()
    for key, headers in ((b"k", []), (None, [("name", b"x" * 200), ("none", None)])):
        small = OutgoingRecord(topic, key, b"x" * 1_500, headers).batch_bytes()
        fits = OutgoingRecord(topic, key, b"x" * (1_500 + 2_000 - small), headers)
        over = OutgoingRecord(topic, key, b"x" * (1_501 + 2_000 - small), headers)

        assert (fits.batch_bytes(), over.batch_bytes()) == (2_000, 2_001)
        assert (fits.fits(2_000), over.fits(2_000)) == (True, False)
        assert await _fate(await producer.produce(fits)) == "acknowledged"
        assert await _fate(await producer.produce(over)) == "MSG_SIZE_TOO_LARGE"


@pytest.mark.apache
async def test_a_producer_that_is_broken_for_good_is_made_anew(kafka: Kafka, started: Start) -> None:
    topic = kafka.create_topic(kafka.unique("fatal"), config={"max.message.bytes": "2000"})
    # With this librdkafka gives up for good at a refused batch: the same end as a broken sequence of records.
    producer = await started(overrides={"enable.gapless.guarantee": True, "log_level": 0})
    await (await producer.produce(OutgoingRecord(topic, b"k", b"first")))

    broken = await producer.produce(OutgoingRecord(topic, b"k", b"x" * 3_000))
    assert await _fate(broken) in ("unknown", "MSG_SIZE_TOO_LARGE")

    await _until_one_goes_through(producer, topic)


@given(
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=300),
    headers=st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=200)), max_size=5),
    limit=st.integers(60, 1_500),
)
def test_the_quick_answer_about_a_size_is_the_exact_one(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], limit: int
) -> None:
    record = OutgoingRecord("any", key, value, headers)

    assert record.fits(limit) == (record.batch_bytes() <= limit)


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_rights_and_missing_topics_are_no_records_fault(code: int) -> None:
    from streams.kafka.producer import REFUSALS

    assert code not in REFUSALS


_JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Hashes that Java's client computes, as its own tests state them."""


def test_our_yardstick_is_javas_hash() -> None:
    assert {key: _murmur2(key) for key in _JAVA_MURMUR2} == _JAVA_MURMUR2


def _murmur2(data: bytes) -> int:
    mask, mix = 0xFFFFFFFF, 0x5BD1E995
    state = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mix & mask
        word = (word ^ word >> 24) * mix & mask
        state = (state * mix & mask) ^ word
    if tail := data[whole:]:
        state = (state ^ int.from_bytes(tail, "little")) * mix & mask
    state = (state ^ state >> 13) * mix & mask
    state ^= state >> 15
    return state - (1 << 32) if state >> 31 else state
