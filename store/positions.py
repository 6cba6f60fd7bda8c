"""Positions: how far each partition of a source topic is read.

A position moves in the transaction of the rows it stands for, by compare-and-set from the value that its reader knows:
a reader that lost the partition, a database that was put back, or an operator's hand is noticed before anything is
written. The floor is part of what is compared. Reading never begins below it: records that an operator skipped stay
skipped, whatever Kafka's committed offset says.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.errors import InputInvalid, NotFound, PositionMoved, StoreUnavailable
from store.database import Database, Transaction
from store.notify import POSITIONS, OnCommitted
from store.records import Position, PositionMove

_TRIES: Final = 5  # only the first row of a partition can be raced for


@dataclass(frozen=True, slots=True)
class PositionOf:
    """Which position an operator changes: of this group, in the topic that has this id now."""

    group_id: str
    topic: str
    partition: int
    topic_id: str

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Why:
    """Who changes a position, and why: what the audit keeps."""

    actor: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class PositionChange:
    """What an operator changed: where reading stood (None: nowhere yet), and where it goes on."""

    before: int | None
    after: int
    floor_offset: int


class Positions:
    """Reads positions, and changes them for operators; for readers `Submits.batch` moves them."""

    def __init__(self, database: Database, *, on_committed: OnCommitted) -> None:
        self._database = database
        self._on_committed = on_committed

    async def read(self, group_id: str, topics: Collection[str]) -> dict[tuple[str, int], Position]:
        """Return what is stored for *topics*, by topic and partition. A partition that is absent was never read.

        Raises:
            StoreUnavailable: Postgres gave no answer; call again.
        """
        rows = await self._database.rows("positions/read", {"group_id": group_id, "topics": list(topics)})
        positions = [Position(**row) for row in rows]  # type: ignore[arg-type]
        return {(position.topic, position.partition): position for position in positions}

    async def seek(self, of: PositionOf, offset: int, *, below_floor: bool, why: Why) -> PositionChange:
        """Set a position back to *offset*: a live reader notices and reads again from there. Rows are not doubled.

        With *below_floor* what was skipped from *offset* on is read after all.

        Raises:
            NotFound: the partition was never read.
            InputInvalid: *offset* lies ahead, or under the floor; or the position is of a topic that is gone.
            StoreUnavailable: no usable answer; repeating the call is harmless.
        """

        async def work(transaction: Transaction) -> PositionChange | None:
            stands = await _lock(transaction, of)
            if stands is None:
                raise NotFound(f"{of} was never read by {of.group_id}: reading begins by itself")
            _check_seek(of, stands, offset, below_floor)
            floor = min(stands.floor_offset, offset)
            return await _put(transaction, of, "intake seek", stands, (offset, offset, floor), why)

        return await self._change(work)

    async def skip(self, of: PositionOf, to_offset: int, *, committed: int | None, why: Why) -> PositionChange:
        """Pass over every record below *to_offset* that is not read yet. A live reader drops what it has of them.

        *committed* is the group's committed offset: reading stands at the lower of it and the position.

        Raises:
            InputInvalid: everything below *to_offset* is read already.
            StoreUnavailable: no usable answer; repeating the call is harmless.
        """

        async def work(transaction: Transaction) -> PositionChange | None:
            stands = await _lock(transaction, of)
            _check_skip(of, stands, to_offset, committed)
            is_of_topic = stands is not None and stands.topic_id == of.topic_id
            position = max(to_offset, stands.next_offset) if stands is not None and is_of_topic else to_offset
            return await _put(transaction, of, "intake skip", stands, (to_offset, position, to_offset), why)

        return await self._change(work)

    async def _change(self, work: Callable[[Transaction], Awaitable[PositionChange | None]]) -> PositionChange:
        for _ in range(_TRIES):
            async with self._database.transaction() as transaction:
                change = await work(transaction)
            if change is not None:
                self._on_committed([POSITIONS])
                return change
        raise StoreUnavailable(f"a race was lost {_TRIES} times")


async def move_positions(transaction: Transaction, group_id: str, moves: Sequence[PositionMove]) -> None:
    """Move every position of *moves*, or raise. One that stands at its new value already was moved by an earlier try.

    Raises:
        PositionMoved: a position is neither where the move expects it nor where it leads. Roll back.
    """
    if not moves:
        return
    asked = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "topic_id": move.topic_id,
            "expected": move.expected,
            "next_offset": move.next_offset,
            "expected_floor": move.expected_floor,
            "floor_offset": move.floor_offset,
        }
        for move in moves
    ]
    rows = await transaction.rows("positions/move", {"group_id": group_id, "moves": json.dumps(asked), "now": None})
    moved = {(row["topic"], row["partition"]) for row in rows}
    left = [move for move in moves if (move.topic, move.partition) not in moved]
    if left:
        await _expect_already_moved(transaction, group_id, left)


async def _expect_already_moved(transaction: Transaction, group_id: str, moves: Sequence[PositionMove]) -> None:
    """Look in a second statement, which sees what committed while the first one waited.

    The floor tells an earlier try of the same move from an operator who skipped exactly the records of this batch.
    """
    topics = sorted({move.topic for move in moves})
    rows = await transaction.rows("positions/read", {"group_id": group_id, "topics": topics})
    stands = {
        (row["topic"], row["partition"]): (row["topic_id"], row["next_offset"], row["floor_offset"]) for row in rows
    }
    for move in moves:
        if stands.get((move.topic, move.partition)) != (move.topic_id, move.next_offset, move.floor_offset):
            raise PositionMoved(move.topic, move.partition)


async def _lock(transaction: Transaction, of: PositionOf) -> Position | None:
    rows = await transaction.rows(
        "positions/lock", {"group_id": of.group_id, "topic": of.topic, "partition": of.partition}
    )
    return Position(**rows[0]) if rows else None  # type: ignore[arg-type]


def _check_seek(of: PositionOf, stands: Position, offset: int, below_floor: bool) -> None:
    if stands.topic_id != of.topic_id:
        raise InputInvalid(
            f"the position of {of} is of a topic that was deleted: the new one is read from its beginning by itself"
        )
    if offset > stands.next_offset:
        raise InputInvalid(
            f"{of} stands at {stands.next_offset}, and {offset} lies ahead: `intake skip` leaves records out on purpose"
        )
    if offset < stands.floor_offset and not below_floor:
        raise InputInvalid(
            f"records of {of} below {stands.floor_offset} were skipped on purpose: add --undo-skip to read them now"
        )


def _check_skip(of: PositionOf, stands: Position | None, to_offset: int, committed: int | None) -> None:
    if stands is None or stands.topic_id != of.topic_id:
        return  # read from its beginning
    reads_at = max(min(stands.next_offset, stands.next_offset if committed is None else committed), stands.floor_offset)
    if to_offset <= reads_at:
        raise InputInvalid(
            f"{of} is read up to {reads_at} already: nothing below {to_offset} is left to skip;"
            " to read records again use `intake seek`"
        )


async def _put(
    transaction: Transaction,
    of: PositionOf,
    verb: str,
    stands: Position | None,
    target: tuple[int, int, int],
    why: Why,
) -> PositionChange | None:
    to_offset, next_offset, floor_offset = target
    before = None if stands is None else stands.next_offset
    rows = await transaction.rows(
        "positions/put",
        {
            "group_id": of.group_id,
            "topic": of.topic,
            "partition": of.partition,
            "topic_id": of.topic_id,
            "next_offset": next_offset,
            "floor_offset": floor_offset,
            "is_locked": stands is not None,
            "actor": why.actor,
            "verb": verb,
            "reason": why.reason,
            "from_offset": before,
            "to_offset": to_offset,
        },
    )
    return PositionChange(before, to_offset, floor_offset) if rows else None
