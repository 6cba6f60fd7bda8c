"""Batches made byte by byte, for what no proper client sends and brokers take all the same."""

import struct
import time
from collections.abc import Callable, Sequence

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADER_BYTES = 61
_CRC_AT, _ATTRIBUTES_AT = 17, 21

Patch = Callable[[bytearray], bytes | bytearray]


def raw_batch(
    *values: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    deltas: Sequence[int] | None = None,
    last_delta: int | None = None,
    timestamp_ms: int | None = None,
    codec: str = "none",
    patch: Patch | None = None,
) -> bytes:
    """A batch with one record for each value.

    Args:
        headers: Of every record.
        deltas: What each record says of its place in the batch; counted from 0 without.
        last_delta: What the batch says of its last record.
        timestamp_ms: Of every record; now without.
        codec: Name of the compression.
        patch: Changes the batch before it is compressed and its checksum is made.
    """
    builder = _DefaultRecordBatchBuilderPy(2, CODECS[codec], 0, -1, -1, -1, 1 << 30)
    at = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    for delta, value in zip(deltas or range(len(values)), values, strict=True):
        assert builder.append(delta, at, b"key", value, list(headers)) is not None
    if last_delta is not None:
        builder._last_offset = last_delta
    if patch is not None:
        builder._buffer = bytearray(patch(builder._buffer))
    return sealed(builder.build())


def sealed(batch: bytes | bytearray) -> bytes:
    """The same batch with the checksum that belongs to it."""
    made = bytearray(batch)
    struct.pack_into(">I", made, _CRC_AT, calc_crc32c(bytes(made[_ATTRIBUTES_AT:])))
    return bytes(made)


async def produce_raw(bootstrap: str, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Send each batch as it is. Fails when the broker refuses one."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        await client._wait_on_metadata(topic)
        leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
        for batch in batches:
            request = ProduceRequest(
                transactional_id=None, required_acks=1, timeout=10_000, topics=[(topic, [(partition, batch)])]
            )
            response = await client.send(leader, request)
            [(_, [(_, error, *_)])] = response.topics
            assert error == 0, f"the broker answers {error}"
    finally:
        await client.close()
