"""Dead letters: records that no run was made of, kept byte for byte until they are published to their own topic."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from schemas import limits
from schemas.text import cut, unstorable
from store.database import Transaction
from store.records import DeadLetter, Headers, RecordIdentity


async def write_letters(transaction: Transaction, letters: Sequence[DeadLetter]) -> int:
    """Store *letters* and queue them for the relay; one whose identity is there already changes nothing.

    No letter is ever refused for its content: reasons are made readable and cut at 4,000 characters, and a header name
    that Postgres cannot hold is kept as bytes.

    Returns:
        How many of them are new.
    """
    if not letters:
        return 0
    rows = [_row_of(letter) for letter in letters]
    return await transaction.execute("dead_letters/write", {"letters": json.dumps(rows), "now": None})


def letter_of(row: Mapping[str, Any]) -> DeadLetter:
    """Return the letter in a row of the table `dead_letter`, as it was written."""
    return DeadLetter(
        identity=RecordIdentity(
            cluster_id=row["cluster_id"],
            topic_id=row["topic_id"],
            topic=row["topic"],
            partition=row["partition"],
            offset=row["record_offset"],
            timestamp_ms=row["record_time"],
            content_hash=row["content_hash"],
        ),
        key=row["key"],
        value=row["value"],
        headers=tuple(_header_of(*entry) for entry in row["headers"]),
        code=row["code"],
        reason=row["reason"],
    )


def _row_of(letter: DeadLetter) -> dict[str, object]:
    identity = letter.identity
    return {
        "cluster_id": identity.cluster_id,
        "topic_id": identity.topic_id,
        "topic": identity.topic,
        "partition": identity.partition,
        "record_offset": identity.offset,
        "record_time": identity.timestamp_ms,
        "content_hash": identity.content_hash.hex(),
        "key": _base64(letter.key),
        "value": _base64(letter.value),
        "headers": _entries_of(letter.headers),
        "code": letter.code,
        "reason": cut(letter.reason, limits.ERROR),
    }


def _entries_of(headers: Headers) -> list[list[str | None]]:
    return [
        [None, _base64(value), _base64(name.encode("utf-8", "surrogatepass"))]
        if unstorable(name)
        else [name, _base64(value)]
        for name, value in headers
    ]


def _header_of(name: str | None, value: str | None, name_bytes: str = "") -> tuple[str, bytes | None]:
    stored = b64decode(name_bytes).decode("utf-8", "surrogatepass") if name is None else name
    return stored, None if value is None else b64decode(value)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")
