"""What operators do to the relay's queue: look at it, send again what failed, and give up what never can be sent.

Every change stands in `audit` with who made it and why, in the same transaction. The relays are woken, so that what is
freed goes out at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from schemas import limits
from schemas.errors import Conflict, InputInvalid, NotFound
from schemas.events import EventType, Status
from schemas.text import cut
from store.database import Database
from store.dead_letters import LARGEST_ID
from store.notify import RELAY, RESEND, OnCommitted
from store.relay_queue import BLOCKED_AT

MOST_COUNTED: Final = 10_000
"""Up to how many rows of a shard are counted."""

_PAGE: Final = 500


class OutboxStatus(StrEnum):
    """Where an event is on its way: waiting, blocked after ten failed tries, or acknowledged by Kafka."""

    PENDING = "PENDING"
    FAILED = "FAILED"
    PUBLISHED = "PUBLISHED"


@dataclass(frozen=True, slots=True)
class FailingRow:
    """A row of the queue that failed by itself.

    It is an event or what its step sends (`job_id` and `seq`), or a dead letter (`letter_id`).
    """

    shard: int
    id: int
    kind: str
    job_id: UUID | None
    seq: int | None
    letter_id: int | None
    attempts: int
    last_error: str | None
    next_try_at: datetime | None

    @property
    def blocked(self) -> bool:
        """Whether it waits for an operator, and all later events of its run with it."""
        return self.attempts >= BLOCKED_AT


@dataclass(frozen=True, slots=True)
class FailingPage:
    """One page of a list, by shard and place in it. `next_cursor` is None on the last page."""

    rows: tuple[FailingRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ShardState:
    """One shard: who relays it until when, and what waits in it, counted up to `MOST_COUNTED`, since when.

    `live` is False when nobody relays it: there is no holder, or its lease ran out.
    """

    shard: int
    lease_owner: str | None
    lease_until: datetime | None
    live: bool
    backlog: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One event of a run and how far it is. `skip_reason` is set when it is told in its reduced form."""

    seq: int
    event_id: UUID
    type: EventType
    step: str | None
    occurred_at: datetime
    status: OutboxStatus
    attempts: int
    last_error: str | None
    next_try_at: datetime | None
    skip_reason: str | None


@dataclass(frozen=True, slots=True)
class Outbox:
    """A run with a page of its events, by seq, the next one from `next_seq` on. `error` is the run's own, whole."""

    job_id: UUID
    tenant_id: str
    workflow_name: str
    status: Status
    shard: int
    error: str | None
    events: tuple[OutboxEvent, ...]
    next_seq: int | None


class RelayOperations:
    """Looks at the relay's queue and frees what is stuck in it. Every method raises StoreUnavailable: call again."""

    def __init__(self, database: Database, *, actor: str, on_committed: OnCommitted) -> None:
        """*actor* is who does all this, as the audit will say; *on_committed* is told what there is to wake up for."""
        self._database = database
        self._actor = actor
        self._on_committed = on_committed

    async def failing(self, *, limit: int = 50, cursor: str | None = None) -> FailingPage:
        """Return rows that failed by themselves at least once and are not published yet.

        Raises:
            InputInvalid: *cursor* is none that this method returned.
        """
        shard, id = _read_cursor(cursor)
        rows = await self._rows("failing", after_shard=shard, after_id=id, limit=limit + 1)
        found = tuple(FailingRow(**row) for row in rows[:limit])
        return FailingPage(found, f"{found[-1].shard}.{found[-1].id}" if len(rows) > limit else None)

    async def shards(self) -> Sequence[ShardState]:
        """Return every shard, in order."""
        return [ShardState(**row) for row in await self._rows("shards", limit=MOST_COUNTED, now=None)]

    async def outbox(self, job_id: UUID, *, from_seq: int = 1, limit: int = 500) -> Outbox:
        """Return how far each event of a run is, from *from_seq* on.

        Raises:
            NotFound: there is no such run, or no more.
        """
        run = await self._run(job_id)
        rows = await self._rows("events", job_id=job_id, after_seq=from_seq - 1, limit=limit + 1)
        events = tuple(_outbox_event(row) for row in rows[:limit])
        return Outbox(
            **{**run, "status": Status(run["status"])},
            events=events,
            next_seq=rows[limit]["seq"] if len(rows) > limit else None,
        )

    async def resend(self, job_id: UUID, *, seq: int | None = None, reason: str | None = None) -> Sequence[int]:
        """Have what failed of a run tried at once, as if it never had: all of it, or what stands at *seq*.

        Returns:
            Their seqs; empty when none of them failed, so that nothing was changed.

        Raises:
            NotFound: there is no such run, or no more.
        """
        await self._run(job_id)
        rows = await self._rows("resend", job_id=job_id, seq=seq, actor=self._actor, reason=_kept(reason))
        self._wake(bool(rows))
        return [int(row["seq"]) for row in rows]

    async def resend_letter(self, letter_id: int, *, reason: str | None = None) -> bool:
        """Have a failed dead letter tried at once; False when it did not fail.

        Raises:
            NotFound: there is no such letter.
        """
        await self._require_letter(letter_id)
        rows = await self._rows("resend_letter", letter_id=letter_id, actor=self._actor, reason=_kept(reason))
        self._wake(bool(rows))
        return bool(rows)

    async def resend_all(self, *, reason: str | None = None) -> int:
        """Have everything that failed tried at once, in bounded pages; return how many rows that were."""
        total, shard, id = 0, -1, 0
        while True:
            params = {"after_shard": shard, "after_id": id, "limit": _PAGE}
            rows = await self._rows("resend_page", **params, actor=self._actor, reason=_kept(reason))
            self._wake(bool(rows))
            total += len(rows)
            if len(rows) < _PAGE:
                return total
            shard, id = rows[-1]["shard"], rows[-1]["id"]

    async def skip(self, job_id: UUID, seq: int, *, reason: str) -> None:
        """Give up what is blocked at *seq*, so that what comes later of its run goes on.

        An event is told in its reduced form, with its id and its number. A record of a step, which goes before its
        event, is dropped. Until it is blocked it may still go out whole, which is why it must be.

        Raises:
            NotFound: there is no such run, or no more.
            Conflict: the event is not blocked: it is out, waits behind another one, or is still being tried.
        """
        await self._run(job_id)
        rows = await self._rows("skip", job_id=job_id, seq=seq, **self._skipping(reason))
        self._settle_skip(rows, f"event {seq} of {job_id}")

    async def skip_letter(self, letter_id: int, *, reason: str) -> None:
        """Give a blocked dead letter up: only why and where is published, while the store keeps all of it.

        Raises:
            NotFound: there is no such letter.
            Conflict: the letter is not blocked: it is out, or still being tried.
        """
        await self._require_letter(letter_id)
        rows = await self._rows("skip_letter", letter_id=letter_id, **self._skipping(reason))
        self._settle_skip(rows, f"dead letter {letter_id}")

    def _skipping(self, reason: str) -> dict[str, object]:
        if not reason.strip():
            raise InputInvalid("a reason is needed: it is told with the event", pointer="/reason")
        return {"reason": _kept(reason), "actor": self._actor, "blocked_at": BLOCKED_AT}

    def _settle_skip(self, rows: Sequence[dict[str, Any]], what: str) -> None:
        if not rows:
            raise Conflict(f"{what} is not among what failed: look with `relay show` or `relay list`")
        if not rows[0]["skipped"]:
            tries = rows[0]["attempts"]
            raise Conflict(f"{what} is not blocked: it failed {tries} times, and is blocked after {BLOCKED_AT}")
        self._wake(True)

    def _wake(self, changed: bool) -> None:
        if changed:
            self._on_committed({RELAY, RESEND})

    async def _run(self, job_id: UUID) -> dict[str, Any]:
        rows = await self._rows("run", job_id=job_id)
        if not rows:
            raise NotFound(f"there is no run {job_id}, or it was pruned")
        return rows[0]

    async def _require_letter(self, letter_id: int) -> None:
        if not 0 < letter_id <= LARGEST_ID or not await self._rows("letter", letter_id=letter_id):
            raise NotFound(f"there is no dead letter {letter_id}")

    async def _rows(self, statement: str, **params: object) -> list[dict[str, Any]]:
        return await self._database.rows(f"relay_operations/{statement}", params)


def _outbox_event(row: dict[str, Any]) -> OutboxEvent:
    queued = row.pop("queued")
    status = OutboxStatus.PUBLISHED
    if queued:
        status = OutboxStatus.FAILED if row["attempts"] >= BLOCKED_AT else OutboxStatus.PENDING
    return OutboxEvent(**{**row, "type": EventType(row["type"]), "status": status})


def _kept(reason: str | None) -> str | None:
    return None if reason is None else cut(reason, limits.ERROR)


def _read_cursor(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return -1, 0
    shard, _, id = cursor.partition(".")
    if not all(part.isascii() and part.isdigit() for part in (shard, id)) or len(shard) > 3 or int(id) > LARGEST_ID:
        raise InputInvalid("cursor is none that a list returned: leave it out to begin anew", pointer="/cursor")
    return int(shard), int(id)
