"""A record on its way out, and how large the broker will find it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BATCH_OVERHEAD_BYTES: Final = 61
"""What Kafka's record batch (format 2) adds to its records."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """One record to produce. `timestamp_ms` counts milliseconds since 1970; None leaves it to the client.

    A key of None lets the client choose a partition.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None

    def batch_bytes(self) -> int:
        """Size of an uncompressed batch with this record alone: what a broker compares with `max.message.bytes`."""
        body = 1 + 1 + 1 + _nullable(self.key) + _nullable(self.value) + _varint_bytes(len(self.headers))
        for name, value in self.headers:
            encoded = len(name.encode())
            body += _varint_bytes(encoded) + encoded + _nullable(value)
        return BATCH_OVERHEAD_BYTES + _varint_bytes(body) + body


def _nullable(data: bytes | None) -> int:
    return 1 if data is None else _varint_bytes(len(data)) + len(data)


def _varint_bytes(number: int) -> int:
    """Bytes that a number from 0 takes as a zigzag varint."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
