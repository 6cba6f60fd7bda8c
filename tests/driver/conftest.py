"""A database, a service and workers, fresh for each test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from store.database import Database
from streams.dev.postgres import EmbeddedPostgres
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, Compiler
from tests.driver.world import World
from tests.fixtures.grpc_server import ScriptedServer
from tests.store.samples import connected


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
async def world(
    database_url: str, tmp_path: Path, grpc_server: ScriptedServer, compiler: Compiler
) -> AsyncIterator[World]:
    """Both services of the story answer; the test changes what it wants."""
    async with opened_world(database_url, tmp_path, grpc_server, compiler) as world:
        yield world


@pytest.fixture
async def outage_world(
    own_postgres: EmbeddedPostgres, tmp_path: Path, grpc_server: ScriptedServer, compiler: Compiler
) -> AsyncIterator[World]:
    """The same on `own_postgres`, which the test may stop. What looks at the database has to connect anew then."""
    async with opened_world(own_postgres.url(), tmp_path, grpc_server, compiler) as world:
        yield world


@asynccontextmanager
async def opened_world(url: str, folder: Path, grpc_server: ScriptedServer, compiler: Compiler) -> AsyncIterator[World]:
    grpc_server.script(TOKENIZE, TOKENS)
    grpc_server.script(EMBED, VECTOR)
    database = Database(url, pool_size=3)
    await database.open()
    async with connected(url) as sql:
        targets: dict[str, dict[str, object]] = {
            "tokenizer": {"address": grpc_server.target},
            "embedder": {"address": grpc_server.target},
        }
        yield World(url, folder, grpc_server, database, sql, compiler, targets)
    await database.close()
