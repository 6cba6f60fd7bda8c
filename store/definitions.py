"""Definitions, each stored once under the hash of its content, and the workflows that name them.

A run points at a definition, never at a workflow's name: an edit makes a new definition and leaves the old one alone.
"""

import json
from typing import cast

from store.database import Database
from store.records import StoredDefinition, StoredWorkflow


class Definitions:
    """Reads and writes definitions and workflows. Every method raises StoreUnavailable: repeat the call."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, definition: StoredDefinition) -> None:
        """Store *definition* under its hash; when the hash is there already, nothing changes.

        Raises:
            MoveRefused: the document has something that Postgres cannot hold.
        """
        await self._database.rows("definitions/put", _params(definition))

    async def get(self, definition_hash: bytes) -> StoredDefinition | None:
        """Return the definition of that hash, None when there is none.

        Integers of the document are exact whatever their size; other numbers are Python floats.
        """
        rows = await self._database.rows("definitions/get", {"definition_hash": definition_hash})
        if not rows:
            return None
        row = rows[0]
        return StoredDefinition(
            definition_hash=cast(bytes, row["definition_hash"]),
            name=cast(str, row["name"]),
            document=json.loads(cast(str, row["document"])),
            descriptor_set=cast(bytes, row["descriptor_set"]),
            engine_level=cast(int, row["engine_level"]),
        )

    async def put_workflow(
        self, definition: StoredDefinition, *, tenant_id: str, name: str, created_by: str
    ) -> tuple[StoredWorkflow, bool]:
        """Make *definition* what the workflow *name* of *tenant_id* runs from now on; live runs keep theirs.

        Returns:
            The newest version, and whether this call made it: False when the newest one had that definition already.

        Raises:
            MoveRefused: the document or a name has something that Postgres cannot hold.
        """
        asked = {
            "tenant_id": tenant_id,
            "name": name,
            "definition_hash": definition.definition_hash,
            "created_by": created_by,
        }
        async with self._database.transaction() as transaction:
            await transaction.execute("definitions/put", _params(definition))
            await transaction.execute("definitions/lock_name", asked)
            made = await transaction.rows("definitions/put_workflow", asked)
            newest = made or await transaction.rows("definitions/workflow", asked)
        return _workflow(newest[0]), bool(made)

    async def workflow(self, tenant_id: str, name: str) -> StoredWorkflow | None:
        """Return the newest version of *name*; None when *tenant_id* has no such workflow."""
        rows = await self._database.rows("definitions/workflow", {"tenant_id": tenant_id, "name": name})
        return _workflow(rows[0]) if rows else None

    async def workflows(self, tenant_id: str, *, limit: int, after: str | None = None) -> list[StoredWorkflow]:
        """Return the newest version of each workflow of *tenant_id*, by name, at most *limit*.

        Args:
            after: The last name of the page before; None for the first page. Fewer than *limit* means the end.
        """
        rows = await self._database.rows(
            "definitions/workflows", {"tenant_id": tenant_id, "limit": limit, "after": after}
        )
        return [_workflow(row) for row in rows]


def _params(definition: StoredDefinition) -> dict[str, object]:
    return {
        "definition_hash": definition.definition_hash,
        "name": definition.name,
        "document": json.dumps(definition.document),
        "descriptor_set": definition.descriptor_set,
        "engine_level": definition.engine_level,
    }


def _workflow(row: dict[str, object]) -> StoredWorkflow:
    return StoredWorkflow(**row)  # type: ignore[arg-type]
