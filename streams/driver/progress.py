"""Progress of held runs on its way into their rows: the last word of each handler, about once a second."""

import asyncio
import logging
from typing import Final
from uuid import UUID

from schemas.errors import StoreUnavailable
from store.progress import Progress
from store.records import HeldRun

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 1.0


class ProgressBoard:
    """Takes reports from any thread, and writes them in one statement for all runs of the process."""

    def __init__(self, progress: Progress, *, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._progress = progress
        self._pause_seconds = pause_seconds
        self._latest: dict[UUID, tuple[HeldRun, int, int]] = {}

    def report(self, held: HeldRun, done: int, total: int) -> None:
        """Show that *done* of *total* is done in the run's step. The last report before each writing counts."""
        self._latest[held.job_id] = (held, done, total)

    async def flush(self, held: HeldRun) -> None:
        """Write what this run's handler said last, at its end. What cannot be written now is let go."""
        latest = self._latest.pop(held.job_id, None)
        if latest is not None:
            await self._write({held.job_id: latest})

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(self._pause_seconds)
            if self._latest:
                reports, self._latest = self._latest, {}
                await self._write(reports)

    async def _write(self, reports: dict[UUID, tuple[HeldRun, int, int]]) -> None:
        try:
            await self._progress.report(reports)
        except StoreUnavailable as error:
            log.info("the progress of %d runs is not shown: %s", len(reports), error)
