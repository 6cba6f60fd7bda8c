"""The items of steps that fan out: read here, written by the holder's item move alone."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from store.database import Database
from store.records import FailedItem, ItemStatus, StoredItem

_PAGE: Final = 100


class Items:
    """Reads items. Every method raises StoreUnavailable: Postgres gave no answer; call again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_step(self, job_id: UUID, step: str) -> list[StoredItem]:
        """Return what is known of a step's items, by their place; items that were never tried are left out.

        Under a claim nobody else writes them, so what is read then stays true.
        """
        found: list[StoredItem] = []
        after = -1
        while True:
            params = {"job_id": job_id, "step": step, "after": after, "limit": _PAGE}
            page: list[dict[str, Any]] = await self._database.rows("items/of_step", params)
            found += [StoredItem(**{**row, "status": ItemStatus(row["status"])}) for row in page]
            if len(page) < _PAGE:
                return found
            after = found[-1].item_index

    async def unfinished(self, job_id: UUID, *, limit: int) -> Sequence[FailedItem]:
        """Return the first *limit* items of a run whose last try failed, by step and place."""
        rows: list[dict[str, Any]] = await self._database.rows("items/unfinished", {"job_id": job_id, "limit": limit})
        return [FailedItem(**{**row, "status": ItemStatus(row["status"])}) for row in rows]
