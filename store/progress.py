"""How far the steps of held runs have come, as their handlers say: shown in the run, and announced to nobody."""

import json
from collections.abc import Mapping
from uuid import UUID

from store.database import Database
from store.records import HeldRun


class Progress:
    """Writes reports of the runs of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, reports: Mapping[UUID, tuple[HeldRun, int, int]]) -> set[UUID]:
        """Show each run's (done, total). Returns the runs that show it: the others are locked just now, or not held.

        Raises:
            StoreUnavailable: no answer; report again.
        """
        told = [
            {
                "job_id": str(job_id),
                "fence": held.fence,
                "lease_owner": held.claim.lease_owner,
                "done": done,
                "total": total,
            }
            for job_id, (held, done, total) in reports.items()
            if held.history == self._database.history.changes
        ]
        rows = await self._database.rows("progress/report", {"reports": json.dumps(told), "now": None})
        return {UUID(str(row["job_id"])) for row in rows}
