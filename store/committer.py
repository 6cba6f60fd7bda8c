"""Group commit: the moves of all runs of a process leave together, and each is answered by itself.

Two lanes, connections of their own, take from one list of waiting moves. A run is in one flush at a time, so that its
moves keep their order. A lone move goes at once; while a flush is out, a second one opens only when it is worth a
commit of its own, so that the more there is to do, the fewer commits each move costs.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import psycopg

from schemas.errors import MoveRefused, StoreUnavailable
from store.database import CommitPoint, Database, is_content_error, passes, translate
from store.flush import Lane, PendingMove, was_rolled_back, was_sacrificed
from store.notify import OnCommitted
from store.records import MoveResult

_LANES: Final = 2
_SECOND_LANE_MOVES: Final = 24
_SLOW_FLUSH_SECONDS: Final = 0.25
_FLUSH_ROWS: Final = 500
_FLUSH_BYTES: Final = 4 << 20
_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    pending: PendingMove
    answer: "asyncio.Future[MoveResult]"

    def result(self, result: MoveResult) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def error(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # whoever waited may be gone


class Committer:
    """Commits moves in flushes. `run` must be running for anything to leave; moves put in before wait for it.

    After an answer that got lost it looks what happened before it sends anything again, so that no move is made twice.
    Nothing is written under a claim from before a change of the database's history: such a move has lost its lease.
    A move that Postgres refuses is told apart from its neighbours, which are committed without it.
    """

    def __init__(
        self,
        database: Database,
        *,
        on_committed: OnCommitted,
        commit_point: CommitPoint = passes,
    ) -> None:
        """*on_committed* is told the wake-ups of each flush once it is committed; it must return at once."""
        self._database = database
        self._on_committed = on_committed
        self._commit_point = commit_point
        self._waiting: list[_Waiting] = []
        self._busy: set[UUID] = set()
        self._brisk_flushes = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._ended = asyncio.Event()
        self._ended.set()

    async def submit(self, pending: PendingMove) -> MoveResult:
        """Commit a move and return what became of it: APPLIED, ALREADY_APPLIED or LEASE_LOST.

        To stop waiting does not stop the move: it is committed all the same.

        Raises:
            MoveRefused: its content can never be stored; nothing was written.
            StoreUnavailable: nothing was written, unless this was closed meanwhile, when that is unknown.
        """
        return await asyncio.shield(self.put(pending))

    def put(self, pending: PendingMove) -> "asyncio.Future[MoveResult]":
        """Hand over a move and return the future of its answer, as `submit` gives it. It is never cancelled."""
        waiting = _Waiting(pending, asyncio.get_running_loop().create_future())
        if self._closing:
            waiting.error(StoreUnavailable("the committer is closed"))
        else:
            self._waiting.append(waiting)
            self._wake.set()
        return waiting.answer

    async def run(self) -> None:
        """Commit until closed or cancelled. An outage is waited out for ever.

        Raises:
            ExceptionGroup: a lane failed by a bug; nothing is committed any more.
        """
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(_LANES):
                    lanes.create_task(self._serve(Lane(self._database, self._commit_point)))
        finally:
            self._closing = True
            self._give_up(self._waiting)
            self._ended.set()

    async def close(self) -> None:
        """Take no more moves, and wait until those that wait are committed.

        During an outage that can take for ever: give it a limit, and cancel `run` after it.
        """
        self._closing = True
        self._wake.set()
        await self._ended.wait()
        self._give_up(self._waiting)

    async def _serve(self, lane: Lane) -> None:
        try:
            while batch := await self._next_batch():
                with self._in_flight(batch):
                    await self._settle(lane, batch)
        finally:
            await lane.drop()

    async def _next_batch(self) -> list[_Waiting]:
        """Wait for the next flush; empty means that there will be none."""
        while True:
            if not self._brisk_flushes or len(self._waiting) >= _SECOND_LANE_MOVES or self._closing:
                batch = self._take()
                if batch or (self._closing and not self._waiting):
                    return batch
            self._wake.clear()
            await self._wake.wait()

    def _take(self) -> list[_Waiting]:
        """Take what waits, oldest first: one move per run, none of a run in flight, bounded in number and bytes."""
        batch: list[_Waiting] = []
        left: list[_Waiting] = []
        size = 0
        for position, waiting in enumerate(self._waiting):
            pending = waiting.pending
            if pending.job_id in self._busy:
                left.append(waiting)
                continue
            size += pending.size
            if len(batch) == _FLUSH_ROWS or (batch and size > _FLUSH_BYTES):
                left += self._waiting[position:]
                break
            batch.append(waiting)
            self._busy.add(pending.job_id)
        self._waiting = left
        return batch

    @contextlib.contextmanager
    def _in_flight(self, batch: Sequence[_Waiting]) -> Iterator[None]:
        """Keep the runs of *batch* out of other flushes, and a second lane closed, unless this flush turns out slow."""
        brisk = True

        def slow() -> None:
            nonlocal brisk
            brisk = False
            self._brisk_flushes -= 1
            self._wake.set()

        self._brisk_flushes += 1
        timer = asyncio.get_running_loop().call_later(_SLOW_FLUSH_SECONDS, slow)
        try:
            yield
        finally:
            timer.cancel()
            self._brisk_flushes -= brisk
            self._busy.difference_update(waiting.pending.job_id for waiting in batch)
            self._wake.set()
            self._give_up(batch)

    def _give_up(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            if not waiting.answer.done():
                waiting.error(StoreUnavailable("the committer was stopped; what became of the move is unknown"))

    async def _settle(self, lane: Lane, batch: list[_Waiting]) -> None:
        """Flush until every move of *batch* has its answer."""
        parts = [batch]
        while parts:
            part = self._of_this_history(parts.pop())
            if not part:
                continue
            try:
                applied = await lane.flush([waiting.pending for waiting in part])
            except (psycopg.Error, StoreUnavailable, TimeoutError) as error:
                parts.extend(await self._after(error, lane, part))
            else:
                if missing := self._answer(part, applied, MoveResult.APPLIED):
                    await self._explain(lane, missing)

    def _of_this_history(self, part: Sequence[_Waiting]) -> list[_Waiting]:
        """Answer the moves whose claims are void since the database was put back, and return the others."""
        changes = self._database.history.changes
        for waiting in part:
            if waiting.pending.history != changes:
                waiting.result(MoveResult.LEASE_LOST)
        return [waiting for waiting in part if waiting.pending.history == changes]

    def _answer(self, part: Sequence[_Waiting], applied: set[UUID], result: MoveResult) -> list[_Waiting]:
        """Answer those of *part* that were applied, and return the others."""
        done = [waiting for waiting in part if waiting.pending.job_id in applied]
        if payloads := frozenset().union(*(waiting.pending.payloads for waiting in done)):
            self._on_committed(payloads)
        for waiting in done:
            waiting.result(result)
        return [waiting for waiting in part if waiting.pending.job_id not in applied]

    async def _explain(self, lane: Lane, missing: Sequence[_Waiting]) -> None:
        """Answer moves that changed nothing: applied by an earlier flush whose answer got lost, or no longer ours."""
        for waiting in self._answer(missing, await self._look(lane, missing), MoveResult.ALREADY_APPLIED):
            waiting.result(MoveResult.LEASE_LOST)

    async def _after(self, error: Exception, lane: Lane, part: list[_Waiting]) -> list[list[_Waiting]]:
        """Return what of *part* is to be sent again, and in which parts."""
        if not was_rolled_back(error):
            _log.warning("a flush of %d moves got no answer, looking what became of it: %s", len(part), error)
            await lane.drop()
            rest = self._answer(part, await self._look(lane, part), MoveResult.ALREADY_APPLIED)
            return [rest] if rest else []
        if was_sacrificed(error):
            return [part]
        if len(part) == 1:
            await self._refuse(lane, part[0], error)
            return []
        if isinstance(
            error, psycopg.errors.QueryCanceled
        ):  # somebody holds one of the rows: only that one waits for it
            return [[waiting] for waiting in part]
        half = len(part) // 2
        return [part[half:], part[:half]]

    async def _refuse(self, lane: Lane, waiting: _Waiting, error: psycopg.Error) -> None:
        """Answer a move that fails alone, and was rolled back."""
        pending = waiting.pending
        if not is_content_error(error) and isinstance(error, psycopg.IntegrityError):
            if self._answer([waiting], await self._look(lane, [waiting]), MoveResult.ALREADY_APPLIED):
                _log.error("%s of run %s breaks a constraint: %s", pending.move, pending.job_id, error)
                if isinstance(error, psycopg.errors.UniqueViolation):  # somebody else wrote at our place in the log
                    waiting.result(MoveResult.LEASE_LOST)
                else:
                    waiting.error(MoveRefused(f"Postgres refuses it: {error}"))
            return
        translated = translate(error)
        if isinstance(translated, StoreUnavailable):
            _log.error("%s of run %s was rolled back: %s", pending.move, pending.job_id, translated)
            await lane.drop()
        waiting.error(translated)

    async def _look(self, lane: Lane, part: Sequence[_Waiting]) -> set[UUID]:
        """Find out what of *part* was applied, however long the database is away."""
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                return await lane.look([waiting.pending for waiting in part])
            except (psycopg.Error, StoreUnavailable, TimeoutError) as error:
                _log.warning("the fate of %d moves is not known yet: %s", len(part), error)
                await lane.drop()
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _LONGEST_DELAY_SECONDS)
