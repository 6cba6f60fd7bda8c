"""What keeps a worker from reading is told at once, and it reads as soon as it may."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from streams.dev.apache import ApacheKafka, Listener
from streams.dev.ports import LOOPBACK, free_port
from streams.kafka.security import KafkaSecurity
from tests.agents.bench import IntakeBench, IntakeWorker, request_value, until
from tests.fixtures.kafka import OnApache

pytestmark = pytest.mark.apache

TOLD_SECONDS = 15.0
HEALED_SECONDS = 15.0
USER, PASSWORD = "worker", "right"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


async def refused(worker: IntakeWorker, words: str) -> None:
    """Wait until the worker says that it is not let in, in these words."""
    await until(lambda: words in worker.service.health().detail, worker.service.health, seconds=TOLD_SECONDS)
    health = worker.service.health()
    assert (health.alive, health.ready) == (True, False)


async def test_a_session_time_out_that_the_brokers_refuse_is_told_with_the_way_out(
    intake: IntakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    intake.session_seconds = 0.5
    async with intake.worker() as worker:
        await refused(worker, "KAFKA_SESSION_TIMEOUT_SECONDS=0.5")
        assert "group.min.session.timeout.ms" in worker.service.health().detail
        assert [one.levelname for one in caplog.records if "SESSION_TIMEOUT" in one.message] == ["ERROR"]
        assert worker.count("intake_rebuilds_total") == 0


async def test_a_topic_that_is_not_there_is_told_and_read_when_it_is(intake: IntakeBench) -> None:
    later = replace(intake, topic=intake.kafka.unique("later"))
    async with later.worker() as worker:
        await refused(worker, f"the topic {later.topic} is not there")
        assert "`workflow-runs topics apply`" in worker.service.health().detail
        later.kafka.create_topic(later.topic, 1)
        later.produce(request_value())
        await later.has_runs(1)
        await worker.ready()
        assert worker.count("intake_rebuilds_total") == 0


async def test_a_group_of_other_consumers_is_told_and_joined_when_they_are_gone(intake: IntakeBench) -> None:
    other = Consumer(
        {
            "bootstrap.servers": intake.kafka.bootstrap,
            "group.id": intake.group,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 6_000,
        }
    )
    other.subscribe([intake.topic])
    while not other.assignment():
        other.poll(0.1)
    intake.produce(request_value())
    async with intake.worker() as worker:
        await refused(worker, f"the group {intake.group} is used by consumers that share partitions out in another way")
        other.close()
        began = time.monotonic()
        await intake.has_runs(1)
        assert time.monotonic() - began < HEALED_SECONDS
        await worker.ready()
        assert worker.count("intake_rebuilds_total") == 0


@pytest.fixture(scope="module")
def guarded(_apache_missing: str | None) -> Iterator[tuple[OnApache, str]]:
    """A broker that lets nobody do anything but what it was told, and where it asks for a password."""
    if _apache_missing is not None:
        pytest.skip(f"needs Apache Kafka: {_apache_missing}")
    port = free_port()
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": LOGIN,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ApacheKafka(settings=settings, listeners=[Listener("GUARDED", port, protocol="SASL_PLAINTEXT")]) as cluster:
        yield OnApache(cluster), f"{LOOPBACK}:{port}"


def grant_read(kafka: OnApache, kind: ResourceType, name: str) -> None:
    right = AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    [done] = kafka.admin.create_acls([right]).values()
    done.result(30)


def revoke_all(kafka: OnApache, kind: ResourceType, name: str) -> None:
    everything = AclBindingFilter(
        kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.ANY, AclPermissionType.ANY
    )
    [done] = kafka.admin.delete_acls([everything]).values()
    assert done.result(30), f"there was no right on {name}"


@pytest.mark.parametrize("right", [ResourceType.GROUP, ResourceType.TOPIC])
async def test_a_right_that_is_missing_is_named_and_work_goes_on_when_it_is_granted(
    guarded: tuple[OnApache, str], intake: IntakeBench, right: ResourceType
) -> None:
    kafka, address = guarded
    intake = IntakeBench(
        kafka,
        intake.database_url,
        kafka.create_topic(kafka.unique("requests")),
        kafka.unique("intake"),
        intake.registry,
        bootstrap=address,
        security=KafkaSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username=USER, password=PASSWORD),
    )
    names = {ResourceType.GROUP: intake.group, ResourceType.TOPIC: intake.topic}
    [other] = names.keys() - {right}
    grant_read(kafka, other, names[other])
    intake.produce(request_value())
    async with intake.worker() as worker:
        for runs in (1, 2):  # missing from the start, and taken away later
            await refused(worker, f"the right READ on the {right.name.lower()} {names[right]} is missing")
            grant_read(kafka, right, names[right])
            began = time.monotonic()
            await intake.has_runs(runs)
            assert time.monotonic() - began < HEALED_SECONDS
            await worker.ready()
            if runs == 1:
                revoke_all(kafka, right, names[right])
                intake.produce(request_value())
