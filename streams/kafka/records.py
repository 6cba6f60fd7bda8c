"""A record as it was read, byte for byte."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from store.records import Headers, RecordIdentity

_NULL = b"\x00"
_PRESENT = b"\x01"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a source topic. `timestamp_ms` is as on the record: milliseconds since 1970, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def identity(self, cluster_id: str, topic_id: str) -> RecordIdentity:
        """Return what tells this record from every other one, of other topics of the same name too."""
        return RecordIdentity(
            cluster_id=cluster_id,
            topic_id=topic_id,
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp_ms=self.timestamp_ms,
            content_hash=content_hash(self.key, self.value),
        )


def time_of(timestamp_ms: int) -> datetime | None:
    """Return a record's own time; None where it has none, or none that is a date."""
    if timestamp_ms < 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def content_hash(key: bytes | None, value: bytes | None) -> bytes:
    """Return the SHA-256 of key and value, in which absent and empty differ and the two cannot run into each other."""
    digest = hashlib.sha256()
    for part in (key, value):
        digest.update(_NULL if part is None else _PRESENT + len(part).to_bytes(8) + part)
    return digest.digest()
