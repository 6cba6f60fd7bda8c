"""Transactions of handlers: what people's code writes is committed together with its step's checkpoint, or not at all.

The one place where a transaction stays open while a step runs: for as long as the handler does, and its call at most.
It holds no lock of ours meanwhile. The run is locked, and its claim asked for, only when the checkpoint is written.
"""

import asyncio
import contextlib
import logging
import random
from typing import Any, Final

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from schemas.errors import (
    HandlerOverdue,
    HandlerRetry,
    MoveRefused,
    SegmentInterrupted,
    StepFailed,
    StoreUnavailable,
    WorkerError,
    WorkflowBroken,
)
from store.database import CommitPoint, Database, is_content_error, passes, translate
from store.flush import Lane, PendingMove, move_params, was_rolled_back, was_sacrificed
from store.handler_sessions import HandlerSession, InLoop, InThread, LoopSession, ThreadSession
from store.notify import OnCommitted
from store.records import MoveResult

MOST_CONNECTIONS: Final = 4
IDLE_SECONDS: Final = 5.0

_WAIT_SECONDS: Final = 1.0
_CHECKPOINT_MILLISECONDS: Final = 10_000
_IDLE_TOO_LONG: Final = "25P03"

_log = logging.getLogger(__name__)


class HandlerTransactions:
    """Connections for transactional handlers, beside the pool of the store: at most *most*, opened when needed.

    The server ends a transaction that a handler leaves idle for *idle_seconds*.
    """

    def __init__(
        self,
        database: Database,
        url: str,
        *,
        on_committed: OnCommitted,
        in_thread: InThread,
        in_loop: InLoop,
        most: int = MOST_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
        commit_point: CommitPoint = passes,
    ) -> None:
        self.database = database
        self.on_committed = on_committed
        self.commit_point = commit_point
        self.idle_seconds = idle_seconds
        self._info = _connection_info(url, idle_seconds)
        self._in_thread = in_thread
        self._in_loop = in_loop
        self._permits = asyncio.Semaphore(most)
        self._idle: dict[bool, list[tuple[HandlerSession, int]]] = {True: [], False: []}
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    async def begin(self, *, is_async: bool, seconds: float) -> "HandlerTransaction":
        """Open a transaction for a call that lasts at most *seconds*.

        Raises:
            SegmentInterrupted: every connection is in use.
            StoreUnavailable: Postgres cannot be reached.
        """
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._permits.acquire()
        except TimeoutError:
            raise SegmentInterrupted("every connection for transactional handlers is in use") from None
        session: HandlerSession | None = None
        try:
            session = await self._session(is_async)
            xid = await session.begin({"milliseconds": max(1, round(seconds * 1000))})
        except BaseException as error:
            self._permits.release()
            if session is not None:
                self.drop(session)
            if isinstance(error, psycopg.Error):
                raise StoreUnavailable(f"no transaction for a handler: {error}") from error
            raise
        return HandlerTransaction(self, session, xid, is_async)

    async def close(self) -> None:
        """Close what is idle. What is in use is cut when its call ends."""
        self._closed = True
        for sessions in self._idle.values():
            while sessions:
                self.drop(sessions.pop()[0])
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=_WAIT_SECONDS)

    def drop(self, session: HandlerSession) -> None:
        """End a connection that nobody uses, and close it where it is at home."""
        session.cut()
        leaving = asyncio.create_task(self._close(session))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def put_back(self, session: HandlerSession, *, is_async: bool) -> None:
        """Take a connection back whose transaction has been committed."""
        try:
            await session.reset()
        except psycopg.Error:
            self.drop(session)
            return
        if self._closed or session.status is not TransactionStatus.IDLE:
            self.drop(session)
        else:
            self._idle[is_async].append((session, self.database.history.changes))

    def released(self) -> None:
        """One of the connections is free again, or gone."""
        self._permits.release()

    async def _session(self, is_async: bool) -> HandlerSession:
        idle = self._idle[is_async]
        while idle:
            session, history = idle.pop()
            if history == self.database.history.changes and session.status is TransactionStatus.IDLE:
                return session
            self.drop(session)
        # A connection of our own first: it notices a database that was put back or failed over.
        await (await self.database.connect()).close()
        if is_async:
            return await LoopSession.open(self._info, self._in_loop)
        return await ThreadSession.open(self._info, self._in_thread)

    @staticmethod
    async def _close(session: HandlerSession) -> None:
        with contextlib.suppress(psycopg.Error):
            await session.close()


class HandlerTransaction:
    """An open transaction of one call: committed by `put` with the checkpoint, or ended by `abandon`. One of the two.

    `connection` is what the handler is given.
    """

    def __init__(self, owner: HandlerTransactions, session: HandlerSession, xid: str, is_async: bool) -> None:
        self.connection: Any = session.connection
        self._owner = owner
        self._session = session
        self._xid = xid
        self._is_async = is_async
        self._open = True
        self._disposed = False
        """Its connection is closed, or has gone back."""

    def abandon(self) -> None:
        """Roll back, whatever the handler is at. Harmless once the transaction has ended."""
        if self._end():
            self._session.cut()

    def dispose(self) -> None:
        """Close what `abandon` has cut. To be called once the handler has ended."""
        if not self._open and not self._disposed:
            self._disposed = True
            self._owner.drop(self._session)

    def explained(self, failure: StepFailed) -> WorkerError:
        """What *failure* of the handler stands for when its transaction was at fault, and not the handler."""
        cause = failure.__cause__
        if not isinstance(cause, psycopg.Error):
            return failure
        if cause.sqlstate == _IDLE_TOO_LONG:
            return HandlerOverdue(f"the transaction was idle for {self._owner.idle_seconds:g} s: {failure}")
        if was_sacrificed(cause):
            return HandlerRetry(f"Postgres ended the handler's transaction for another's sake: {cause}")
        if isinstance(cause, psycopg.OperationalError) and self._session.status is TransactionStatus.UNKNOWN:
            return StoreUnavailable(f"the handler's transaction was lost: {cause}")
        return failure

    def put(self, pending: PendingMove) -> "asyncio.Future[MoveResult]":
        """Commit what the handler wrote together with *pending*, its checkpoint; the future is never cancelled.

        LEASE_LOST, and every error: neither was written. Errors: MoveRefused, StoreUnavailable, and WorkflowBroken when
        the handler's own writes or its own doings stand against it.
        """
        return asyncio.ensure_future(self._put(pending))

    async def _put(self, pending: PendingMove) -> MoveResult:
        try:
            if pending.history != self._owner.database.history.changes:
                return self._lost()
            if not await self._written(pending):
                return self._lost()
            await self._owner.commit_point("transactional.before_commit")
            result = await self._committed(pending)
            await self._owner.commit_point("transactional.after_commit")
        except BaseException:
            self.abandon()
            self.dispose()
            raise
        if result is not MoveResult.LEASE_LOST:
            self._owner.on_committed(pending.payloads)
        return result

    def _lost(self) -> MoveResult:
        self.abandon()
        self.dispose()
        return MoveResult.LEASE_LOST

    async def _written(self, pending: PendingMove) -> bool:
        """Write the checkpoint into the handler's transaction; False when the claim is no longer the newest."""
        if self._session.status is not TransactionStatus.INTRANS:
            found = self._session.status.name
            raise WorkflowBroken(
                f"the handler's transaction is {found}: it was ended, or an error in it was passed over"
            )
        try:
            async with asyncio.timeout(self._owner.database.answer_seconds):
                if await self._session.resume({"milliseconds": _CHECKPOINT_MILLISECONDS}) != self._xid:
                    raise WorkflowBroken("the handler has ended its transaction by itself")
                return await self._session.execute("moves/checkpoint", move_params([pending])) == 1
        except TimeoutError:
            raise StoreUnavailable("Postgres did not answer in time") from None
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.UniqueViolation):  # somebody else wrote at our place in the log
                return False
            if isinstance(error, psycopg.IntegrityError) and not is_content_error(error):
                raise MoveRefused(f"Postgres refuses it: {error}") from error
            raise self._told(error) from error

    def _told(self, error: psycopg.Error) -> WorkerError:
        if error.sqlstate == _IDLE_TOO_LONG:
            return HandlerOverdue(f"the handler left its transaction idle for {self._owner.idle_seconds:g} s")
        return translate(error)

    async def _committed(self, pending: PendingMove) -> MoveResult:
        try:
            async with asyncio.timeout(self._owner.database.answer_seconds):
                await self._session.commit()
        except (psycopg.Error, TimeoutError) as error:
            self.abandon()
            self.dispose()
            if was_rolled_back(error):
                if was_sacrificed(error):
                    raise StoreUnavailable(f"Postgres rolled the handler's transaction back: {error}") from error
                raise WorkflowBroken(f"what the handler wrote cannot be committed: {error}") from error
            _log.warning("the commit of a handler's transaction got no answer, looking what became of it: %s", error)
            return await self._look(pending)
        if self._end(give_back=False):
            self._disposed = True
            await self._owner.put_back(self._session, is_async=self._is_async)
            self._owner.released()
        return MoveResult.APPLIED

    async def _look(self, pending: PendingMove) -> MoveResult:
        """Find out whether the commit happened, however long the database is away."""
        lane = Lane(self._owner.database, passes)
        try:
            while True:
                try:
                    applied = await lane.look([pending])
                except (psycopg.Error, StoreUnavailable, TimeoutError) as error:
                    _log.warning("the fate of a handler's transaction is not known yet: %s", error)
                    await lane.drop()
                    await asyncio.sleep(random.uniform(0.2, 0.6))
                    continue
                if pending.history != self._owner.database.history.changes:
                    return MoveResult.LEASE_LOST
                if applied:
                    return MoveResult.ALREADY_APPLIED
                raise StoreUnavailable("the handler's transaction was lost with its connection")
        finally:
            await lane.drop()

    def _end(self, *, give_back: bool = True) -> bool:
        """Whether this is the end of the transaction, which is told once."""
        was_open, self._open = self._open, False
        if was_open and give_back:
            self._owner.released()
        return was_open


def _connection_info(url: str, idle_seconds: float) -> str:
    """The store's URL as people's code uses it: its own tables are found first, and nothing of ours."""
    given = conninfo.conninfo_to_dict(url)
    defaults: dict[str, Any] = {
        "application_name": "workflow-runs-handlers",
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    }
    options = f"{given.get('options') or ''} -c idle_in_transaction_session_timeout={int(idle_seconds * 1000)}".strip()
    return conninfo.make_conninfo(**{**defaults, **given, "options": options})
