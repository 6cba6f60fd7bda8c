"""An independent reader of topics: a plain client, which imports nothing from us."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, Message, TopicPartition

WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Read:
    """One record as it stands on the topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def read(bootstrap: str, topic: str, count: int, *, partitions: int = 1, settle_seconds: float = 0.3) -> list[Read]:
    """Return every record of a topic, in order within each partition, once there are *count* or time is up.

    After the last one it goes on listening for `settle_seconds`, so that one too many is seen too.
    """
    return read_until(bootstrap, topic, lambda found: len(found) >= count, partitions, settle_seconds)


def read_until(
    bootstrap: str,
    topic: str,
    enough: Callable[[Sequence[Read]], bool],
    partitions: int = 1,
    settle_seconds: float = 0.3,
) -> list[Read]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    )
    found: list[Read] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        deadline = time.monotonic() + WAIT_SECONDS
        settling = False
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(_read(message))
            if not settling and enough(found):
                deadline, settling = time.monotonic() + settle_seconds, True
    finally:
        consumer.close()
    return found


def _read(message: Message) -> Read:
    return Read(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=message.key(),
        value=message.value(),
        headers=cast("list[tuple[str, bytes | None]]", message.headers() or []),
        timestamp_ms=message.timestamp()[1],
    )
