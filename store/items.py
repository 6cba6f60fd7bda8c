"""The items of steps that fan out: read here, written by the holder's item move alone."""

from typing import Any, Final
from uuid import UUID

from store.database import Database
from store.records import ItemStatus, StoredItem

_PAGE: Final = 100


class Items:
    """Reads the items of one step, for whoever works on it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_step(self, job_id: UUID, step: str) -> list[StoredItem]:
        """Return what is known of a step's items, by their place; items that were never tried are left out.

        Under a claim nobody else writes them, so what is read then stays true.

        Raises:
            StoreUnavailable: Postgres gave no answer; call again.
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
