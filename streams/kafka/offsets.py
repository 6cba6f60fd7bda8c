"""The only place where Kafka's committed offsets move: after the rows, for partitions that are ours, never backwards.

The position in the database is what counts. Kafka's committed offset is its copy, for Kafka's own tools and for lag; it
may come later, and a lost one costs a second look at some records.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import cast

import faust
from faust.transport.consumer import Consumer
from faust.types import TP

from streams.kafka.assignment import Assignment, Partition

_log = logging.getLogger(__name__)


class Offsets:
    """Commits the offsets of stored batches of one App."""

    def __init__(self, app: faust.App, *, retry_seconds: float = 1.0) -> None:
        self._app = app
        self._retry_seconds = retry_seconds
        self._assignment: Assignment | None = None
        self._pending: dict[Partition, int] = {}
        self._wanted = asyncio.Event()
        self._one_commit = asyncio.Lock()

    @property
    def pending(self) -> Mapping[Partition, int]:
        """Offsets of stored batches that Kafka has not acknowledged yet."""
        return dict(self._pending)

    def commit(self, assignment: Assignment, next_offsets: Mapping[Partition, int]) -> None:
        """Let the offsets of a batch that is stored go: soon, and again after a second until they are acknowledged.

        Returns at once. Offsets of an assignment are forgotten when the next one has something to commit.
        """
        if assignment is not self._assignment:
            self._assignment, self._pending = assignment, {}
        for partition, offset in next_offsets.items():
            self._pending[partition] = max(offset, self._pending.get(partition, 0))
        self._wanted.set()

    async def run(self) -> None:
        """Commit what is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            assignment = self._assignment
            if assignment is None or assignment.ended or await self._commit_pending():
                continue
            await asyncio.sleep(self._retry_seconds)
            self._wanted.set()

    async def flush(self, assignment: Assignment, seconds: float) -> None:
        """Commit what *assignment* left, waiting at most *seconds*: the last thing before its partitions are let go."""
        if assignment is self._assignment and self._pending:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._commit_pending(), seconds)
        self._assignment, self._pending = None, {}

    async def _commit_pending(self) -> bool:
        async with self._one_commit:
            offsets = {TP(*partition): offset for partition, offset in self._pending.items()}
            if not offsets:
                return True
            if not await cast(Consumer, self._app.consumer)._commit(offsets):
                _log.info("the group did not take the offsets %s yet", offsets)
                return False
            self._app.monitor.on_tp_commit(offsets)
            for partition, offset in offsets.items():
                if self._pending.get(partition) == offset:
                    del self._pending[partition]
            return True
