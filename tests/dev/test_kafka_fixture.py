"""The session's broker, whichever it is: topics, records, groups, and an outage that loses nothing."""

import pytest
from confluent_kafka import Consumer, Producer

from tests.fixtures.kafka import Kafka


def _read_one(kafka: Kafka, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": kafka.unique("reader"),
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_an_outage_loses_nothing(kafka: Kafka) -> None:
    topic = kafka.create_topic(kafka.unique("kept"), partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"before")
    assert producer.flush(30) == 0
    with kafka.outage():
        producer.produce(topic, b"meanwhile")
        assert producer.flush(1) == 1
    assert producer.flush(30) == 0
    assert _read_one(kafka, topic) in (b"before", b"meanwhile")


def test_a_deleted_topic_is_gone(kafka: Kafka) -> None:
    topic = kafka.create_topic(kafka.unique("gone"), config={"retention.ms": "60000"})
    assert topic in kafka.admin.list_topics(timeout=10).topics
    kafka.delete_topic(topic)
    assert topic not in kafka.admin.list_topics(timeout=10).topics


@pytest.mark.apache
def test_what_is_marked_for_apache_runs_there_alone(kafka: Kafka) -> None:
    assert kafka.kind == "apache"
