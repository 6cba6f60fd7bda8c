"""What a handler is told about the call it serves, and what it can say meanwhile."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


def _nowhere(done: int, total: int) -> None:
    """Report to nobody: a handler that is called by a test, say."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """One call of a handler.

    `attempt` is the number of the try, from 1. What a handler does outside must be idempotent on `job_id` and `step`: a
    crash repeats the step in hand. `deadline` is when the call ends at the latest, by this machine's clock: then an
    async handler is cancelled, a sync one is asked to stop by `cancelled`, and one in a child process is killed.
    """

    job_id: UUID
    tenant_id: str
    step: str
    attempt: int
    deadline: datetime
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("handlers"))
    report: Callable[[int, int], None] = field(default=_nowhere, repr=False)
    stop: threading.Event = field(default_factory=threading.Event, repr=False)
    transaction: Any = field(default=None, repr=False)

    def cancelled(self) -> bool:
        """Whether nobody waits for the handler any more: its time is up, or its run is no longer this worker's.

        A sync handler that works for long asks now and then, and returns; what it returns then is thrown away.
        """
        return self.stop.is_set()

    def progress(self, done: int, total: int) -> None:
        """Show in the run how much is done, 0 to *total*. Cheap, so say it as often as you like: the last one counts.

        It is written about once a second, and only as long as the run is this worker's.

        Raises:
            ValueError: not 0 <= done <= total, or more than two billion.
        """
        if not 0 <= done <= total < 2**31:
            raise ValueError(f"progress({done}, {total}): give whole numbers, 0 <= done <= total")
        self.report(int(done), int(total))

    @property
    def connection(self) -> Any:
        """The connection of a transactional handler, in an open transaction: psycopg's, async for an async handler.

        What is written over it is committed together with the step's checkpoint, or not at all. The handler neither
        commits nor rolls back, and does not leave the transaction idle for more than 5 s.

        Raises:
            RuntimeError: the handler is not declared with `transactional=True`.
        """
        if self.transaction is None:
            raise RuntimeError("only a handler that is declared with transactional=True has a connection")
        return self.transaction
