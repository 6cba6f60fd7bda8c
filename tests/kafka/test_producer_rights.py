"""Who may not publish is told why, and no record is blamed for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from schemas.errors import BrokerUnavailable
from streams.dev.apache import ApacheKafka, Listener
from streams.dev.ports import LOOPBACK, free_port
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.producer import EventProducer
from streams.kafka.security import KafkaSecurity
from tests.fixtures.eventually import eventually

pytestmark = pytest.mark.apache

ALLOWED, FORBIDDEN = "allowed", "forbidden"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_relay="right";'


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The address of a broker that asks for a password, and lets `relay` write to one topic of two."""
    port = free_port()
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": LOGIN,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ApacheKafka(settings=settings, listeners=[Listener("GUARDED", port, protocol="SASL_PLAINTEXT")]) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in (ALLOWED, FORBIDDEN)]).values():
            future.result()
        right = AclBinding(
            ResourceType.TOPIC,
            ALLOWED,
            ResourcePatternType.LITERAL,
            "User:relay",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for granted in admin.create_acls([right]).values():
            granted.result()
        yield f"{LOOPBACK}:{port}"


@asynccontextmanager
async def _producer(bootstrap: str, password: str) -> AsyncIterator[EventProducer]:
    security = KafkaSecurity("SASL_PLAINTEXT", mechanism="PLAIN", username="relay", password=password)
    producer = EventProducer(bootstrap, security)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.close(timeout_seconds=0)


async def _write_to_allowed(producer: EventProducer) -> None:
    """Write one record; the right that was just granted may take a moment to count."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(BrokerUnavailable):
                await (await producer.produce(OutgoingRecord(ALLOWED, b"k", b"v")))
                return
            await asyncio.sleep(0.05)


async def test_the_right_to_write_a_topic_is_all_that_is_needed(guarded: str) -> None:
    async with _producer(guarded, "right") as producer:
        await _write_to_allowed(producer)


async def test_a_missing_right_blames_no_record(guarded: str) -> None:
    async with _producer(guarded, "right") as producer:
        with pytest.raises(BrokerUnavailable, match="TOPIC_AUTHORIZATION_FAILED"):
            await asyncio.wait_for(await producer.produce(OutgoingRecord(FORBIDDEN, b"k", b"v")), 20)
        # The one topic says nothing about the other.
        await _write_to_allowed(producer)


async def test_a_wrong_password_shows_in_health_in_kafkas_words(guarded: str) -> None:
    async with _producer(guarded, "wrong") as producer:
        await producer.produce(OutgoingRecord(ALLOWED, b"k", b"v"))
        await eventually(lambda: "Authentication failed" in producer.health().detail)
        assert not producer.health().ready
