"""The relay's queue, and who may empty which part of it.

Jobs hash to a fixed number of shards. A relay publishes the shards whose leases it holds; the leases are rows, so that
a relay that is gone is followed by another as soon as they run out. Rows leave the queue by id after the broker's
acknowledgement, never by range, since ids become visible out of order.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from schemas import limits
from schemas.text import cut
from store.database import Database
from store.dead_letters import letter_of
from store.records import QueuedEvent, QueuedLetter
from store.step_records import QueuedRecord

BLOCKED_AT: Final = 10
"""Failed tries after which a row, and all later ones of its key, wait for `relay resend` or `relay skip`."""

_RENEW_BUSY: Final = 1 / 3
_RENEW_IDLE: Final = 1 / 2  # with nothing to publish, a renewal that comes late holds up nobody
_AFTER_SECONDS: Final = 0.05  # looked at its very end, a lease would still hold
_FROM_THE_BEGINNING: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True)
class ShardLeases:
    """What one look at the shards found.

    `held` is what the relay may publish until its leases end; a shard that is missing is lost. `share` is how many it
    should hold, given how many relays there are: when it holds more, it lets what is in flight land and gives some
    back. `pending` says that something waits in a shard held, from the low-water marks on. The next look is due in
    `next_look_seconds`, to renew in time and to follow a relay that is gone as soon as its leases end.
    """

    held: frozenset[int]
    share: int
    pending: bool
    next_look_seconds: float


class RelayQueue:
    """What is to be published. Every method raises StoreUnavailable: repeat the call."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def lease_shards(
        self, *, owner: str, lease_seconds: float = 10, low: Mapping[int, int] = _FROM_THE_BEGINNING
    ) -> ShardLeases:
        """Renew what *owner* holds and take what is free while it has less than its share. Nothing is given back.

        Args:
            owner: Names this relay; two live ones must not share a name.
            lease_seconds: How long the leases hold, and how long a relay that is gone keeps its shards.
            low: Shards and the id in each below which nothing counts as pending.
        """
        marks = {"low_shards": list(low), "low": list(low.values())}
        [row] = await self._rows("lease_shards", owner=owner, lease_seconds=lease_seconds, now=None, **marks)
        next_look_seconds = lease_seconds * (_RENEW_BUSY if row["pending"] else _RENEW_IDLE)
        if row["next_end_seconds"] is not None:
            next_look_seconds = min(next_look_seconds, row["next_end_seconds"] + _AFTER_SECONDS)
        return ShardLeases(frozenset(row["held"]), row["share"], row["pending"], next_look_seconds)

    async def release_shards(self, *, owner: str, shards: Collection[int] | None = None) -> None:
        """Give *shards* back, where *owner* still holds them; None gives back all, and *owner* is no longer counted."""
        if shards is None:
            await self._rows("leave", owner=owner)
        else:
            await self._rows("release_shards", owner=owner, shards=list(shards))

    async def events(
        self,
        shards: Collection[int],
        *,
        limit: int,
        skip: Collection[UUID] = (),
        low: Mapping[int, int] = _FROM_THE_BEGINNING,
    ) -> list[QueuedEvent | QueuedRecord]:
        """Return the oldest events and records of steps to publish of each of *shards*, by shard, in their order.

        Rows that are in flight, were set aside or wait for their next try are among them: the relay knows which.

        Args:
            limit: Most rows per shard.
            skip: Jobs whose rows are left out, and do not count.
            low: The id to begin with, by shard; where it is missing, the lowest. Rows below cost nothing, deleted ones
                that are not cleared away yet included.
        """
        rows = await self._rows("events", shards=list(shards), limit=limit, skip=list(skip), low=_of(shards, low))
        return [_of_run(row) for row in rows]

    async def letters(
        self,
        shards: Collection[int],
        *,
        limit: int,
        skip: Collection[int] = (),
        low: Mapping[int, int] = _FROM_THE_BEGINNING,
    ) -> list[QueuedLetter]:
        """Return the oldest dead letters to publish of each of *shards*, as `events` does; *skip* has letter ids."""
        rows = await self._rows("letters", shards=list(shards), limit=limit, skip=list(skip), low=_of(shards, low))
        return [
            QueuedLetter(
                shard=row["shard"],
                id=row["id"],
                letter_id=row["letter_id"],
                letter=letter_of(row),
                received_at=row["received_at"],
                attempts=row["attempts"],
                wait_seconds=row["wait_seconds"],
                skip_reason=row["skip_reason"],
            )
            for row in rows
        ]

    async def value(self, row: QueuedRecord) -> bytes:
        """Return the value of a record, also where it is too large to be read with its row."""
        if row.value is not None:
            return row.value
        [found] = await self._rows("value", job_id=row.job_id, seq=row.seq)
        return bytes(found["value"])

    async def frame(self, definition_hash: bytes, topic: str, type: str) -> bytes | None:
        """Return the frame that values of a definition's *type* get on *topic*; None while none was kept."""
        rows = await self._rows("frame", definition_hash=definition_hash, topic=topic, type=type)
        return bytes(rows[0]["frame"]) if rows else None

    async def keep_frame(self, definition_hash: bytes, topic: str, type: str, frame: bytes) -> bytes:
        """Keep a frame for good, and return the one that counts: another relay may have been first."""
        await self._rows("keep_frame", definition_hash=definition_hash, topic=topic, type=type, frame=frame)
        kept = await self.frame(definition_hash, topic, type)
        assert kept is not None
        return kept

    async def writers(self) -> frozenset[str]:
        """Name the transactions that may hold ids of rows which nobody else sees yet.

        The id of a row that was read, and all lower ones, were taken before that read. So once none of the transactions
        that are named after the read is named any more, each of these ids is visible, or never will be.
        """
        return frozenset(row["writer"] for row in await self._rows("writers"))

    async def delete(self, rows: Collection[tuple[int, int]], *, owner: str) -> int:
        """Take acknowledged rows, named by shard and id, out of the queue; their letters are SENT.

        Returns:
            How many were deleted. Fewer than *rows* when some were deleted before, or stand in shards that *owner* no
            longer holds: whoever holds them publishes them again, with the same ids and bytes.
        """
        if not rows:
            return 0
        shards, ids = zip(*sorted(rows), strict=True)
        [row] = await self._rows("delete", shards=list(shards), ids=list(ids), owner=owner, now=None)
        return int(row["deleted"])

    async def set_aside(self, shard: int, id: int, *, error: str, delay_seconds: float) -> int:
        """Count a failed try of one row, keep why (its first 4,000 characters), and when it is tried next.

        Returns:
            The failed tries so far; 0 when the row is gone.
        """
        rows = await self._rows(
            "set_aside",
            shard=shard,
            id=id,
            error=cut(error, limits.ERROR),
            delay_seconds=delay_seconds,
            now=None,
        )
        return int(rows[0]["attempts"]) if rows else 0

    async def backlog(self, *, limit: int = 100_000) -> int:
        """Count what waits to be published, up to *limit*."""
        [row] = await self._rows("backlog", limit=limit)
        return int(row["backlog"])

    async def _rows(self, statement: str, **params: object) -> list[dict[str, Any]]:
        return await self._database.rows(f"relay_queue/{statement}", params)


def _of(shards: Collection[int], low: Mapping[int, int]) -> list[int]:
    return [low.get(shard, 0) for shard in shards]


def _of_run(row: dict[str, Any]) -> QueuedEvent | QueuedRecord:
    record = {name: row.pop(name) for name in ("topic", "value_type", "key", "value", "headers", "given_up")}
    definition_hash, kind = row.pop("definition_hash"), row.pop("kind")
    if kind == "event":
        return QueuedEvent(**row)
    return QueuedRecord(
        **{name: row[name] for name in ("shard", "id", "job_id", "seq", "occurred_at", "attempts", "wait_seconds")},
        definition_hash=bytes(definition_hash),
        topic=record["topic"],
        type=record["value_type"],
        key=bytes(record["key"]),
        value=None if record["value"] is None else bytes(record["value"]),
        headers=[(name, text) for name, text in record["headers"]],
        skip_reason=record["given_up"],
    )
