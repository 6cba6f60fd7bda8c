"""Looks at logs from outside of any group: where they begin and end, and how old a record is. It moves nothing."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import aiokafka
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from schemas.errors import BrokerUnavailable
from streams.kafka.assignment import Partition
from streams.kafka.batches import use_own_reader
from streams.kafka.records import time_of
from streams.kafka.security import KafkaSecurity

_ANSWER_SECONDS: Final = 15.0
_FETCH_WAIT_MS: Final = 100
_POLL_MS: Final = 200
_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class LogState:
    """Where a partition's log begins, and the offset after its last replicated record.

    `next_time` is that of the first committed record at or behind the place asked for; None where there is none, none
    was found in time, it cannot be read, or its time is no date.
    """

    start: int
    end: int
    next_time: datetime | None = None


class LogReader:
    """One look at a time, each with a client of its own: for commands, and for what is asked rarely."""

    def __init__(self, bootstrap: str, security: KafkaSecurity) -> None:
        self._bootstrap = bootstrap
        self._security = security

    async def look(self, places: Mapping[Partition, int | None]) -> dict[Partition, LogState]:
        """Return the state of each partition, with its first record at or behind the place given; None: at its start.

        Raises:
            BrokerUnavailable: no answer, or a partition is not there.
            SettingsInvalid: a certificate cannot be used.
        """
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            max_partition_fetch_bytes=1,  # the first batch comes whatever its size
            security_protocol=self._security.protocol,
            ssl_context=self._security.ssl_context(),
            sasl_mechanism=self._security.mechanism or "PLAIN",
            sasl_plain_username=self._security.username,
            sasl_plain_password=self._security.password,
        )
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await client.start()
                use_own_reader(client)
                return await _look(client, {TopicPartition(*partition): at for partition, at in places.items()})
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"Kafka: {error!r}") from error
        finally:
            await client.stop()


async def _look(
    client: aiokafka.AIOKafkaConsumer, places: Mapping[TopicPartition, int | None]
) -> dict[Partition, LogState]:
    client.assign(list(places))
    starts = await client.beginning_offsets(list(places))
    listed = await client.end_offsets(list(places))
    ends = await _high_watermarks(client, listed)
    unread = {
        partition: max(starts[partition], at or 0)
        for partition, at in places.items()
        if max(starts[partition], at or 0) < ends[partition]
    }
    first = await _first_records(client, unread)
    return {
        tuple(partition): LogState(starts[partition], ends[partition], first.get(partition)) for partition in places
    }


async def _high_watermarks(
    client: aiokafka.AIOKafkaConsumer, listed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return what a fetch at the listed end names as the end: the listing of the embedded broker falls short of it."""
    for partition, offset in listed.items():
        client.seek(partition, offset)
    ends: dict[TopicPartition, int] = {}
    while missing := listed.keys() - ends.keys():
        await client.getmany(*missing, timeout_ms=_POLL_MS, max_records=1)
        for partition in missing:
            if (end := client.highwater(partition)) is not None:
                ends[partition] = max(end, listed[partition])
    return ends


async def _first_records(
    client: aiokafka.AIOKafkaConsumer, places: Mapping[TopicPartition, int]
) -> dict[TopicPartition, datetime | None]:
    """Return the time of the first record from each place on, where there is one soon."""
    client.pause(*client.assignment())
    first: dict[TopicPartition, datetime | None] = {}
    for partition, offset in places.items():
        client.seek(partition, offset)
        client.resume(partition)
    for _ in range(_LOOKS):
        if not (missing := _missing(places, first)):
            break
        for partition, records in (await client.getmany(*missing, timeout_ms=_POLL_MS)).items():
            behind = [record for record in records if record.offset >= places[partition]]
            if behind:
                first[partition] = time_of(behind[0].timestamp)
                client.pause(partition)
    return first


def _missing(places: Mapping[TopicPartition, int], first: Collection[TopicPartition]) -> list[TopicPartition]:
    return [partition for partition in places if partition not in first]
