"""One flush: moves of many runs that leave in one round trip and one commit, over one connection."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeGuard
from uuid import UUID

import psycopg

from schemas.errors import MoveRefused
from store.database import CommitPoint, Connection, Database
from store.deadline import answered_within
from store.lifecycle import Move
from store.statements import sql

_STATEMENTS: Final[Mapping[Move, str]] = MappingProxyType(
    {
        Move.ITEM: "moves/item",
        Move.CHECKPOINT: "moves/checkpoint",
        Move.PARK: "moves/park",
        Move.RETRY: "moves/retry",
        Move.RELEASE: "moves/release",
        Move.COMPLETE: "moves/settle",
        Move.FAIL: "moves/settle",
        Move.GIVE_UP: "moves/settle",
    }
)
_READ_ONLY: Final = "25006"


@dataclass(frozen=True, slots=True)
class PendingMove:
    """A holder's move on its way.

    `row` is its element of the statement's JSON array, which is sent unchanged, however often, and `record` that of the
    record which goes out with it, if there is one. `payloads` are the wake-ups due once it is committed. `history` is
    that of the claim: see `HeldRun`.
    """

    move: Move
    job_id: UUID
    row: str
    payloads: frozenset[str]
    history: int = 0
    record: str | None = None

    @property
    def size(self) -> int:
        """How long it is on its way to Postgres, about."""
        return len(self.row) + len(self.record or "")

    @classmethod
    def of(
        cls,
        move: Move,
        job_id: UUID,
        row: Mapping[str, object],
        payloads: frozenset[str],
        *,
        history: int = 0,
        record: Mapping[str, object] | None = None,
    ) -> "PendingMove":
        """Prepare a move.

        Raises:
            MoveRefused: *row* has what JSON has not: NaN, infinity, or a nesting without end.
        """
        try:
            sent = _text(record) if record is not None else None
            return cls(move, job_id, _text(row), payloads, history, sent)
        except (ValueError, RecursionError) as error:
            raise MoveRefused(f"what {move} of run {job_id} was to write is no JSON: {error}") from error


def was_rolled_back(error: Exception) -> TypeGuard[psycopg.Error]:
    """Whether a flush that ended in *error* is known to have changed nothing, on a connection that is still sound.

    False: no answer came, or the server took the connection away, so that a commit may have happened. A server that
    became read-only is left the same way, since its successor is somewhere else.
    """
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)  # refused by the driver before anything was sent
    return error.diag.severity_nonlocalized == "ERROR" and error.sqlstate != _READ_ONLY


def was_sacrificed(error: psycopg.Error) -> bool:
    """Whether Postgres ended the flush only to let another transaction through: the same again will do."""
    return error.sqlstate is not None and error.sqlstate.startswith("40")


class Lane:
    """A connection that flushes go over, one after the other. Opened when it is needed, and dropped when in doubt."""

    def __init__(self, database: Database, commit_point: CommitPoint) -> None:
        self._database = database
        self._commit_point = commit_point
        self._connection: Connection | None = None

    async def drop(self) -> None:
        """Close the connection, if there is one. The next flush opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def flush(self, moves: Sequence[PendingMove]) -> set[UUID]:
        """Commit *moves*, all of different runs, and return the runs whose move was applied: all, as a rule.

        Raises:
            StoreUnavailable: there is no connection; nothing was sent.
            psycopg.Error, TimeoutError: see `was_rolled_back`.
        """
        groups: dict[str, list[PendingMove]] = defaultdict(list)
        for move in moves:
            groups[_STATEMENTS[move.move]].append(move)
        kinds = sorted({move.move for move in moves})
        connection = await self._connected()
        for kind in kinds:
            await self._commit_point(f"{kind}.before_commit")
        async with answered_within(connection, self._database.answer_seconds):
            applied = await _commit(connection, groups, moves)
        for kind in kinds:
            await self._commit_point(f"{kind}.after_commit")
        return applied

    async def look(self, moves: Sequence[PendingMove]) -> set[UUID]:
        """Return the runs whose move was applied earlier. Waits for a flush of them that may still be in flight.

        Raises:
            StoreUnavailable, psycopg.Error, TimeoutError: no answer; look again.
        """
        connection = await self._connected()
        async with answered_within(connection, self._database.answer_seconds):
            async with connection.pipeline():
                await connection.execute(sql("moves/lock"), _ids(moves))
                cursor = await connection.execute(sql("moves/applied"), move_params(moves))
            return {_job_id(row) for row in await cursor.fetchall()}

    async def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = await self._database.connect()
        return self._connection


async def _commit(
    connection: Connection, groups: Mapping[str, Sequence[PendingMove]], moves: Sequence[PendingMove]
) -> set[UUID]:
    """One statement commits by itself; several make one implicit transaction, which ends where the pipeline does."""
    records = [move.record for move in moves if move.record is not None]
    if len(groups) == 1 and not records:
        [statement] = groups
        cursors = [await connection.execute(sql(statement), move_params(moves))]
    else:
        async with connection.pipeline():
            await connection.execute(sql("moves/lock"), _ids(moves))
            if records:
                await connection.execute(sql("moves/record"), {"moves": f"[{','.join(records)}]"})
            cursors = [await connection.execute(sql(name), move_params(group)) for name, group in groups.items()]
    if sum(cursor.rowcount for cursor in cursors) == len(moves):
        return {move.job_id for move in moves}
    return {_job_id(row) for cursor in cursors for row in await cursor.fetchall()}


def _ids(moves: Sequence[PendingMove]) -> dict[str, object]:
    return {"moves": json.dumps([{"job_id": str(move.job_id)} for move in moves])}


def move_params(moves: Sequence[PendingMove]) -> dict[str, object]:
    """What the statement of these moves takes."""
    return {"moves": f"[{','.join(move.row for move in moves)}]", "now": None}


def _text(row: Mapping[str, object]) -> str:
    return json.dumps(row, separators=(",", ":"), allow_nan=False)


def _job_id(row: Mapping[str, object]) -> UUID:
    job_id = row["job_id"]
    assert isinstance(job_id, UUID)
    return job_id
