"""The runs that this process holds, and how work on one of them is stopped from outside."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import inf
from typing import TypeVar
from uuid import UUID

from schemas.errors import SegmentInterrupted
from store.records import HeldRun
from streams.driver.permits import Permit

T = TypeVar("T")


class Cause(StrEnum):
    """Why work on a run was stopped from outside. The text goes on after "because"."""

    LOST = "another claim holds it now"
    CANCELLED = "it was cancelled"
    OVERDUE = "its lease could not be renewed in time"
    RESTORED = "the database was put back to an earlier state"
    DRAINED = "this worker is stopping"
    TOO_LATE = "its deadline has passed"

    @property
    def may_write(self) -> bool:
        """Whether the run may still be handed back, or ended; else nothing more is written for it."""
        return self in (Cause.OVERDUE, Cause.DRAINED, Cause.TOO_LATE)


class Holding:
    """One claimed run while this process works on it, with the permit reserved for its first call."""

    def __init__(self, run: HeldRun, permit: Permit | None = None) -> None:
        self.run = run
        self.cause: Cause | None = None
        self._permit = permit
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take_permit(self) -> Permit | None:
        """Return the reserved permit the first time, then None."""
        permit, self._permit = self._permit, None
        return permit

    def drop_permit(self) -> None:
        """Give the reserved permit back, if it is still there: it is never held while waiting for anything else."""
        if (permit := self.take_permit()) is not None:
            permit.release()

    def seconds_to_deadline(self) -> float:
        """Seconds to the run's deadline by the database's clock, negative once it has passed; endless without one."""
        deadline_at = self.run.claim.deadline_at
        return inf if deadline_at is None else (deadline_at - self.run.database_time()).total_seconds()

    def interrupt(self, cause: Cause) -> None:
        """Stop the work that `interruptible` runs, now or as soon as it begins. The first cause stands."""
        if self.cause is None:
            self.cause = cause
            if self._task is not None:
                self._task.cancel()

    async def interruptible(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in this task until it ends, is interrupted, or the holder's own limit is reached.

        Raises:
            SegmentInterrupted: it was stopped and its call in flight is cancelled; `cause` says why. What *work* raises
                by itself passes through.
        """
        task = asyncio.current_task()
        assert task is not None
        with self._watched():
            if self.cause is None:
                self._task = task
                try:
                    return await work()
                except asyncio.CancelledError:
                    # A cancellation of the task itself goes on, also when it came together with ours.
                    if self.cause is None or task.cancelling() > 1:
                        raise
                finally:
                    self._task = None
                    if self.cause is not None:
                        task.uncancel()
        raise SegmentInterrupted(f"stopped because {self.cause}")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Interrupt once the lease has not been renewed in time, or the run's deadline has passed."""
        self._look_at_limit()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look_at_limit(self) -> None:
        left, to_deadline = self.run.held_until - time.monotonic(), self.seconds_to_deadline()
        if left <= 0:
            self.interrupt(Cause.OVERDUE)
        elif to_deadline <= 0:
            self.interrupt(Cause.TOO_LATE)
        else:
            self._timer = asyncio.get_running_loop().call_later(min(left, to_deadline), self._look_at_limit)


class Held:
    """Every run of this process that is claimed and not yet let go."""

    def __init__(self) -> None:
        self._holdings: dict[tuple[UUID, int], Holding] = {}
        self._claiming = 0
        self._cancelled_meanwhile: set[UUID] = set()

    def __len__(self) -> int:
        return len(self._holdings)

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._holdings.values()))

    def add(self, holding: Holding) -> None:
        """Take a claimed run in hand."""
        self._holdings[holding.run.job_id, holding.run.fence] = holding
        if holding.run.job_id in self._cancelled_meanwhile:
            holding.interrupt(Cause.CANCELLED)

    def let_go(self, holding: Holding) -> None:
        """The run is no longer this process's."""
        key = holding.run.job_id, holding.run.fence
        # A database that was put back gives out the same fence again, maybe to us and before the first work has ended.
        if self._holdings.get(key) is holding:
            del self._holdings[key]

    def runs(self) -> list[HeldRun]:
        """Every held run, those that are being handed back included."""
        return [holding.run for holding in self._holdings.values()]

    def renewable(self) -> list[HeldRun]:
        """The held runs whose lease is still wanted."""
        return [holding.run for holding in self._holdings.values() if holding.cause is None]

    def interrupt(self, runs: list[HeldRun], cause: Cause) -> None:
        """Stop the work on *runs*."""
        for run in runs:
            if (holding := self._holdings.get((run.job_id, run.fence))) is not None:
                holding.interrupt(cause)

    def on_cancelled(self, job_id: UUID) -> None:
        """Somebody cancelled this run: stop its call, also where a claim's answer is still on its way here."""
        if self._claiming:
            self._cancelled_meanwhile.add(job_id)
        for holding in self:
            if holding.run.job_id == job_id:
                holding.interrupt(Cause.CANCELLED)

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Around a claim and the `add` of what it took."""
        self._claiming += 1
        try:
            yield
        finally:
            self._claiming -= 1
            if not self._claiming:
                self._cancelled_meanwhile.clear()
