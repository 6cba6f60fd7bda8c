"""Positions: how far each partition of a source topic is read.

A position moves in the transaction of the rows it stands for, by compare-and-set from the value that its reader knows:
a reader that lost the partition, or a database that was put back, is noticed before anything is written.
"""

import json
from collections.abc import Collection, Sequence

from schemas.errors import PositionMoved
from store.database import Database, Transaction
from store.records import Position, PositionMove


class Positions:
    """Reads positions; `Submits.batch` moves them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, group_id: str, topics: Collection[str]) -> dict[tuple[str, int], Position]:
        """Return what is stored for *topics*, by topic and partition. A partition that is absent was never read.

        Raises:
            StoreUnavailable: Postgres gave no answer; call again.
        """
        rows = await self._database.rows("positions/read", {"group_id": group_id, "topics": list(topics)})
        positions = [Position(**row) for row in rows]  # type: ignore[arg-type]
        return {(position.topic, position.partition): position for position in positions}


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
        }
        for move in moves
    ]
    rows = await transaction.rows("positions/move", {"group_id": group_id, "moves": json.dumps(asked), "now": None})
    moved = {(row["topic"], row["partition"]) for row in rows}
    left = [move for move in moves if (move.topic, move.partition) not in moved]
    if left:
        await _expect_already_moved(transaction, group_id, left)


async def _expect_already_moved(transaction: Transaction, group_id: str, moves: Sequence[PositionMove]) -> None:
    """Look in a second statement, which sees what committed while the first one waited."""
    topics = sorted({move.topic for move in moves})
    rows = await transaction.rows("positions/read", {"group_id": group_id, "topics": topics})
    stands = {(row["topic"], row["partition"]): (row["topic_id"], row["next_offset"]) for row in rows}
    for move in moves:
        if stands.get((move.topic, move.partition)) != (move.topic_id, move.next_offset):
            raise PositionMoved(move.topic, move.partition)
