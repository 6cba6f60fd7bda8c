"""Dead letters: records that no run was made of, kept byte for byte.

A letter is HELD while its record may still become a run, READY once it is final and waits for the relay, and SENT when
it is on its topic. It stays here also then, so that it can be looked at and put back.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from schemas import limits
from schemas.errors import InputInvalid
from schemas.text import cut, unstorable
from store.database import Database, Transaction
from store.looks import MOST_LETTERS, Looks
from store.notify import RELAY, OnCommitted
from store.records import DeadLetter, Headers, RecordIdentity

LARGEST_ID: Final = 2**63 - 1


class LetterState(StrEnum):
    """How far a letter is."""

    HELD = "HELD"
    READY = "READY"
    SENT = "SENT"


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter with everything about it. `held_until` is set while it is HELD, `replayed_at` once it was put back."""

    letter_id: int
    letter: DeadLetter
    state: LetterState
    received_at: datetime
    held_until: datetime | None
    replayed_at: datetime | None


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """One line of a list; `size` is the bytes of key and value."""

    letter_id: int
    topic: str
    partition: int
    record_offset: int
    record_time: int
    state: LetterState
    code: str
    reason: str
    size: int
    received_at: datetime
    held_until: datetime | None
    replayed_at: datetime | None


@dataclass(frozen=True, slots=True)
class LetterPage:
    """One page of a list, newest first. `next_cursor` is None on the last page."""

    letters: tuple[LetterSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class HeldLetter:
    """A letter whose record may still become a run: for `seconds_left` more, 0 or less when its time is over."""

    letter_id: int
    letter: DeadLetter
    held_until: datetime
    seconds_left: float


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """How many letters are HELD and how many READY, each counted up to a limit."""

    held: int
    ready: int


class DeadLetters:
    """Reads letters, and settles held ones. Every method raises StoreUnavailable: call again."""

    def __init__(self, database: Database, *, on_committed: OnCommitted, looks: Looks | None = None) -> None:
        """*looks* are those that others of this process share."""
        self._database = database
        self._looks = looks or Looks(database)
        self._on_committed = on_committed

    async def list(
        self,
        *,
        topic: str | None = None,
        code: str | None = None,
        state: LetterState | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> LetterPage:
        """Return a page of letters, newest first. A filter costs what it leaves out.

        Args:
            topic: Only letters of this source topic.
            code: Only letters with this code.
            state: Only letters in this state.
            limit: Most letters of the page, at least 1.
            cursor: `next_cursor` of the page before; None for the first one.

        Raises:
            InputInvalid: *cursor* is none that this method returned.
        """
        params = {"topic": topic, "code": code, "state": state, "before_id": _read_cursor(cursor), "limit": limit + 1}
        rows: list[dict[str, Any]] = await self._database.rows("dead_letters/list", params)
        letters = tuple(LetterSummary(**{**row, "state": LetterState(row["state"])}) for row in rows[:limit])
        return LetterPage(letters, str(letters[-1].letter_id) if len(rows) > limit else None)

    async def get(self, letter_id: int) -> StoredLetter | None:
        """Return one letter, whole; None when there is none."""
        if not 0 < letter_id <= LARGEST_ID:
            return None
        rows: list[dict[str, Any]] = await self._database.rows("dead_letters/show", {"letter_id": letter_id})
        return _stored(rows[0]) if rows else None

    async def newest_id(self) -> int:
        """Return the greatest letter id there is; 0 when there is no letter."""
        [row] = await self._rows("newest")
        return int(row["letter_id"])

    async def replayable(
        self, *, topic: str | None, code: str | None, after_id: int, upto_id: int, limit: int
    ) -> Sequence[int]:
        """Return ids above *after_id* and up to *upto_id*, in order, of final letters that were never put back."""
        rows = await self._rows("replayable", topic=topic, code=code, after_id=after_id, upto_id=upto_id, limit=limit)
        return [int(row["letter_id"]) for row in rows]

    async def mark_replayed(self, letter_ids: Sequence[int], *, actor: str, reason: str | None) -> None:
        """Note that these letters were put back on their topic, and write it into the audit, in one transaction."""
        await self._rows("replayed", letter_ids=list(letter_ids), actor=actor, reason=reason, now=None)

    async def held(
        self, topic: str, *, after: HeldLetter | None = None, limit: int, now: datetime | None = None
    ) -> Sequence[HeldLetter]:
        """Return the held letters of *topic* behind *after*, those whose time ends first before the others."""
        rows = await self._rows(
            "held",
            topic=topic,
            after_time="-infinity" if after is None else after.held_until,
            after_id=0 if after is None else after.letter_id,
            limit=limit,
            now=now,
        )
        return [HeldLetter(row["letter_id"], letter_of(row), row["held_until"], row["seconds_left"]) for row in rows]

    async def refuse(self, letter_id: int, *, code: str, reason: str) -> bool:
        """Make a held letter final, with this code and reason. False: it was not held any more, and stays as it is."""
        async with self._database.transaction() as transaction:
            refused = await refuse_held(transaction, letter_id, code, reason)
        if refused:
            self._on_committed({RELAY})
        return refused

    async def open(self, *, newest_seconds: float = 0.0) -> OpenLetters:
        """Count the letters that are not SENT, each kind up to `MOST_LETTERS`.

        With *newest_seconds* the counts may be as old as that, and `COUNT_SECONDS` older.
        """
        if newest_seconds:
            look = await self._looks.look(newest_seconds=newest_seconds)
            return OpenLetters(look.held_letters, look.ready_letters)
        [row] = await self._rows("open_counts", limit=MOST_LETTERS)
        return OpenLetters(int(row["held"]), int(row["ready"]))

    async def _rows(self, statement: str, **params: object) -> "Sequence[dict[str, Any]]":
        return await self._database.rows(f"dead_letters/{statement}", params)


async def lock_held(transaction: Transaction, letter_id: int) -> bool:
    """Take a held letter in hand until *transaction* ends. False: it is not held, or somebody else has it in hand."""
    return bool(await transaction.rows("dead_letters/lock_held", {"letter_id": letter_id}))


async def refuse_held(transaction: Transaction, letter_id: int, code: str, reason: str) -> bool:
    """Make a held letter final and queue it for the relay. False: it is not held any more."""
    params = {"letter_id": letter_id, "code": code, "reason": cut(reason, limits.ERROR)}
    return bool(await transaction.rows("dead_letters/refuse_held", params))


async def remove_letter(transaction: Transaction, letter_id: int) -> None:
    """Take away a letter whose record became a run after all."""
    await transaction.execute("dead_letters/remove", {"letter_id": letter_id})


async def write_letters(transaction: Transaction, letters: Sequence[DeadLetter]) -> int:
    """Store *letters* and queue the final ones for the relay; one whose identity is there already changes nothing.

    No letter is ever refused for its content: reasons are made readable and cut at 4,000 characters, and a header name
    that Postgres cannot hold is kept as bytes.

    Returns:
        How many of them are new.
    """
    if not letters:
        return 0
    rows = [_row_of(letter) for letter in letters]
    return len(await transaction.rows("dead_letters/write", {"letters": json.dumps(rows), "now": None}))


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
        "held_seconds": letter.held_seconds,
    }


def _stored(row: Mapping[str, Any]) -> StoredLetter:
    return StoredLetter(
        letter_id=row["letter_id"],
        letter=letter_of(row),
        state=LetterState(row["state"]),
        received_at=row["received_at"],
        held_until=row["held_until"],
        replayed_at=row["replayed_at"],
    )


def _read_cursor(cursor: str | None) -> int:
    if cursor is None:
        return LARGEST_ID
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20 and 0 < int(cursor) <= LARGEST_ID):
        raise InputInvalid("cursor is none that a list returned: leave it out to begin anew", pointer="/cursor")
    return int(cursor)


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
