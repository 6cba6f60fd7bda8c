"""The committed offsets of a consumer group, asked from outside of it."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.errors import BrokerUnavailable
from streams.kafka.assignment import Partition

_ANSWER_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.2
_GROUP_MOVES: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
"""The group has no coordinator for a moment, as after a start of its broker."""


def committed_offsets(
    client_config: Mapping[str, object], group_id: str, partitions: Iterable[Partition]
) -> dict[Partition, int | None]:
    """Return the committed offset of each partition, None where there is none. Blocks; joins no group, moves nothing.

    A consumer asks, since the admin client's call ends the whole process with a segmentation fault when the coordinator
    answers with an error, as one that was just started does (librdkafka 2.16.0).

    Args:
        client_config: How to reach and speak to the brokers, as librdkafka has it.
        group_id: The group.
        partitions: Topic and number of each partition.

    Raises:
        BrokerUnavailable: no answer in 15 s; ask again.
    """
    asked = [TopicPartition(topic, number) for topic, number in partitions]
    if not asked:
        return {}
    consumer = Consumer({"log_level": 2, **client_config, "group.id": group_id, "enable.auto.commit": False})
    try:
        answers = _patiently(consumer, asked)
    except KafkaException as error:
        raise BrokerUnavailable(f"the offsets of the group {group_id} are not told: {error}") from error
    finally:
        consumer.close()
    if failed := next((answer.error for answer in answers if answer.error is not None), None):
        raise BrokerUnavailable(f"the offsets of the group {group_id} are not told: {failed}")
    return {(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in answers}


def _patiently(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            return consumer.committed(asked, timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() not in _GROUP_MOVES or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
