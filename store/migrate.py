"""The history of the tables: numbered files, applied once each, in order, never undone.

Each migration is one transaction under one advisory lock, so that any number of programs may migrate at once, also
behind a transaction pooler. What was applied is in the table `migration` with a checksum of its text: a file that was
changed after it was applied, or a migration that this program does not know, stops everything before it starts.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from schemas.errors import MigrationRefused
from store.database import Connection, connection_info, open_connection, translated
from store.statements import sql

SCHEMA_LEVEL: Final = 1
"""What this program knows of the tables. A migration that older ones cannot live with raises `upkeep.schema_level`."""

OLDEST_SERVER: Final = 150_000
"""Postgres 15, as `server_version_num` tells it."""

_FILE_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_UNLIMITED: Final = 0  # a migration and the wait for another migrator take as long as they take


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `store/migrations`: `0001_store.sql` is version 1, named `0001_store`."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a start-up must know about the database. `schema_level` is None where nothing was ever migrated."""

    server_version: int
    schema_level: int | None
    pending: tuple[str, ...]
    has_planner_settings: bool
    synchronous_commit: str
    synchronous_standby_names: str

    def problems(self, *, allow_async_commit: bool = False) -> list[str]:
        """Say, one sentence each, why a worker must not start on this database; empty when it may.

        Args:
            allow_async_commit: Accept `synchronous_commit = off`: a crash of the server then loses commits.
        """
        found = []
        if self.server_version < OLDEST_SERVER:
            found.append(_too_old(self.server_version))
        if self.pending:
            found.append(f"the tables lack {', '.join(self.pending)}: run `workflow-runs migrate`")
        if self.schema_level is not None and self.schema_level > SCHEMA_LEVEL:
            found.append(
                f"the tables need a program of schema level {self.schema_level} and this one has {SCHEMA_LEVEL}: "
                "start a newer program"
            )
        if not self.pending and not self.has_planner_settings:
            found.append(
                "the planner settings of this role are not set, so that plans would read whole tables: "
                "run `workflow-runs migrate` as the worker's role"
            )
        if self.synchronous_commit == "off" and not allow_async_commit:
            found.append("synchronous_commit is off: a crash of the server would lose what it acknowledged")
        return found


def migrations() -> tuple[Migration, ...]:
    """Return the migrations of this program, oldest first; versions ascend from 1 without a gap."""
    files = [
        file for file in resources.files("store").joinpath("migrations").iterdir() if _FILE_NAME.fullmatch(file.name)
    ]
    found = [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    ]
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise MigrationRefused(f"the migrations are not numbered without a gap: {[each.name for each in found]}")
    return tuple(found)


async def migrate(url: str, known: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing, and set what the role needs to be set in this database.

    Args:
        url: The database; its role must be the one that workers connect as, since the settings are for that role.
        known: The migrations to apply instead of this program's own.

    Returns:
        The names of the migrations that this call applied, in order. Empty when all were there.

    Raises:
        MigrationRefused: the database holds other migrations than *known*, or the server is too old. Migrations before
            the one that failed stay applied.
        StoreUnavailable: Postgres gave no answer, or refused a migration; call again.
    """
    known = migrations() if known is None else known
    applied: list[str] = []
    async with _connection(url) as connection:
        while (migration := await _apply_next(connection, known)) is not None:
            applied.append(migration.name)
        await _apply_settings(connection)
    return applied


async def plan(url: str, known: Sequence[Migration] | None = None) -> list[str]:
    """Return the names of the migrations that `migrate` would apply now; nothing is changed. Errors as there."""
    async with _connection(url) as connection:
        return [migration.name for migration in await _pending(connection, known)]


async def apply_database_settings(url: str) -> None:
    """Set the planner settings of *url*'s role in *url*'s database, for connections made from then on.

    `migrate` does it too. A database that was cloned from a migrated one has the tables without the settings.

    Raises:
        StoreUnavailable: Postgres gave no answer; call again.
    """
    async with _connection(url) as connection:
        await _apply_settings(connection)


async def check(url: str) -> StoreFacts:
    """Read what a start-up must know, as a new connection of *url*'s role sees it; `StoreFacts.problems` judges it.

    Raises:
        MigrationRefused: a migration was changed after it was applied.
        StoreUnavailable: Postgres gave no answer; call again.
    """
    async with _connection(url) as connection:
        started = await _row(connection, "migrate/started")
        history = await _history(connection) if started["has_history"] else []
        known = migrations()
        _compare(known, history[: len(known)])
        level = await _row(connection, "migrate/schema_level") if history else None
        return StoreFacts(
            server_version=started["server_version"],
            schema_level=level["schema_level"] if level else None,
            pending=tuple(migration.name for migration in known[len(history) :]),
            **await _row(connection, "migrate/facts"),
        )


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Connection]:
    with translated():
        async with await open_connection(connection_info(url, "workflow-runs migrate", _UNLIMITED)) as connection:
            yield connection


async def _apply_next(connection: Connection, known: Sequence[Migration]) -> Migration | None:
    """Apply the oldest missing migration in one transaction and return it; None when nothing is missing."""
    async with connection.transaction():
        await connection.execute(sql("migrate/lock"))
        await connection.execute(sql("migrate/use_schema"))
        pending = await _pending(connection, known, create=True)
        if not pending:
            return None
        migration = pending[0]
        await connection.execute(migration.text.encode(), prepare=False)  # several statements cannot be prepared as one
        await connection.execute(
            sql("migrate/record"),
            {"version": migration.version, "name": migration.name, "checksum": migration.checksum},
        )
        return migration


async def _apply_settings(connection: Connection) -> None:
    """Under the lock, since two roles' settings changed at once fail with "tuple concurrently updated"."""
    async with connection.transaction():
        await connection.execute(sql("migrate/lock"))
        await connection.execute(sql("migrate/planner_settings"))


async def _pending(
    connection: Connection, known: Sequence[Migration] | None, *, create: bool = False
) -> Sequence[Migration]:
    known = migrations() if known is None else known
    started = await _row(connection, "migrate/started")
    if started["server_version"] < OLDEST_SERVER:
        raise MigrationRefused(_too_old(started["server_version"]))
    if create and not started["has_schema"]:
        await connection.execute(sql("migrate/create_schema"))
    if create and not started["has_history"]:
        await connection.execute(sql("migrate/create_history"))
    history = await _history(connection) if create or started["has_history"] else []
    _compare(known, history)
    return known[len(history) :]


def _compare(known: Sequence[Migration], history: Sequence[dict[str, Any]]) -> None:
    """Refuse a history that is not the beginning of *known*."""
    for place, row in enumerate(history):
        if place >= len(known):
            raise MigrationRefused(
                f"the database has migration {row['name']}, which this program does not know "
                f"(its newest is {known[-1].name if known else 'none'}): use the newer program"
            )
        expected = known[place]
        if (row["version"], row["name"]) != (expected.version, expected.name):
            raise MigrationRefused(f"the database has migration {row['name']} where this program has {expected.name}")
        if row["checksum"] != expected.checksum:
            raise MigrationRefused(
                f"migration {expected.name} was changed after it was applied: restore its text and add a new migration"
            )


async def _history(connection: Connection) -> list[dict[str, Any]]:
    return await (await connection.execute(sql("migrate/history"))).fetchall()


async def _row(connection: Connection, statement: str) -> dict[str, Any]:
    row = await (await connection.execute(sql(statement))).fetchone()
    if row is None:
        raise MigrationRefused(f"{statement} found nothing: the row of the table upkeep is gone")
    return row


def _too_old(server_version: int) -> str:
    return f"the server is Postgres {server_version // 10_000}, at least {OLDEST_SERVER // 10_000} is needed"
