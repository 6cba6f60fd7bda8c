"""A record on its way out, and how large the broker will find it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BATCH_OVERHEAD_BYTES: Final = 61
"""What Kafka's record batch (format 2) adds to its records."""

ROOM_FOR_FRAMING_BYTES: Final = 128
ROOM_FOR_HEADER_BYTES: Final = 10
"""More than the numbers in a batch take, so that most records need no exact count."""


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

    def fits(self, max_message_bytes: int) -> bool:
        """Whether a topic with that `max.message.bytes` takes the record."""
        roughly = len(self.key or b"") + len(self.value or b"") + ROOM_FOR_FRAMING_BYTES
        for name, value in self.headers:
            roughly += 4 * len(name) + len(value or b"") + ROOM_FOR_HEADER_BYTES
        return roughly <= max_message_bytes or self.batch_bytes() <= max_message_bytes

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
