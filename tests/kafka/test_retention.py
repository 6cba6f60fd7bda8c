"""Requests must not be kept for longer than their ids are remembered: that is found before it does harm."""

import logging

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from schemas.topics import load_topics
from streams.kafka.retention_watch import AWAY_SECONDS, CALM_SECONDS, RetentionWatch
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.topics import Cluster, FoundTopic, findings, outlives_memory
from tests.fixtures.kafka import Kafka

MONTH_SECONDS = 30 * 86_400
TOPICS = """
{name}: {{role: requests, partitions: 1}}
{name}-events: {{role: events, partitions: 1}}
{name}-answers: {{role: answers, partitions: 1}}
"""


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        ({}, True),  # a broker's own default is a week
        ({"retention.ms": str(MONTH_SECONDS * 1000 - 1)}, True),
        ({"retention.ms": str(MONTH_SECONDS * 1000)}, False),
        ({"retention.ms": "-1"}, False),
    ],
)
def test_requests_may_be_kept_for_less_than_their_ids_are_remembered(config: dict[str, str], fits: bool) -> None:
    finding = outlives_memory("requests", config, MONTH_SECONDS)
    assert (finding is None) == fits
    assert fits or "REMEMBER_SECONDS (2592000 s)" in str(finding)


def test_topics_check_compares_the_request_topic_alone() -> None:
    topics = load_topics(TOPICS.format(name="requests"))
    found = {
        topic.name: FoundTopic(topic.partitions, 1, {**topic.config_on(1), "retention.ms": "-1"})
        for topic in topics.all()
    }
    told = findings(topics, Cluster(1, found), remember_seconds=MONTH_SECONDS)
    assert [finding.topic for finding in told if "REMEMBER_SECONDS" in finding.problem] == ["requests"]
    assert not any("REMEMBER_SECONDS" in finding.problem for finding in findings(topics, Cluster(1, found)))


def set_retention(kafka: Kafka, topic: str, milliseconds: int) -> None:
    entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in kafka.admin.incremental_alter_configs([resource]).values():
        answer.result()


async def test_a_worker_tells_of_a_topic_that_outlives_the_memory_once_and_for_as_long_as_it_does(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    name = kafka.create_topic(kafka.unique("requests"), config={"retention.ms": str(MONTH_SECONDS * 2000)})
    topic = load_topics(TOPICS.format(name=name)).requests
    watch = RetentionWatch(TopicAdmin(kafka.bootstrap, KafkaSecurity()), topic, remember_seconds=MONTH_SECONDS)
    with caplog.at_level(logging.WARNING):
        assert [await watch.look() for _ in range(2)] == [CALM_SECONDS] * 2
    assert len([line for line in caplog.messages if "REMEMBER_SECONDS" in line]) == 1
    health = watch.health()
    assert (health.alive, health.ready) == (True, True)
    assert name in health.detail

    set_retention(kafka, name, 86_400_000)
    await watch.look()
    assert watch.health().detail == ""


async def asked_again_soon(admin: TopicAdmin, name: str) -> bool:
    watch = RetentionWatch(admin, load_topics(TOPICS.format(name=name)).requests, remember_seconds=MONTH_SECONDS)
    return await watch.look() == AWAY_SECONDS and watch.health().detail == ""


async def test_a_broker_that_is_away_is_asked_again_soon() -> None:
    assert await asked_again_soon(TopicAdmin("127.0.0.1:9", KafkaSecurity(), timeout_seconds=0.3), "requests")


@pytest.mark.apache
async def test_a_topic_that_is_not_there_yet_is_asked_for_again_soon(kafka: Kafka) -> None:
    """The embedded broker answers for any name."""
    assert await asked_again_soon(TopicAdmin(kafka.bootstrap, KafkaSecurity()), kafka.unique("nowhere"))
