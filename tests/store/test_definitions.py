"""Definitions: stored once per content; workflows: versions of which the newest counts."""

import asyncio
from dataclasses import replace

import pytest

from schemas.errors import MoveRefused
from store.database import Database
from store.definitions import Definitions
from store.records import StoredDefinition
from tests.store.samples import Sql, connected, select, select_one, until_blocked

FIRST = StoredDefinition(b"\1" * 32, "embed-text", {"name": "embed-text", "steps": []}, b"descriptors", 1)
SECOND = replace(FIRST, definition_hash=b"\2" * 32, document={"name": "embed-text", "steps": [1]})


@pytest.fixture
def definitions(database: Database) -> Definitions:
    return Definitions(database)


async def put(definitions: Definitions, definition: StoredDefinition, name: str = "embed-text") -> tuple[int, bool]:
    workflow, is_new = await definitions.put_workflow(definition, tenant_id="default", name=name, created_by="ana")
    return workflow.version, is_new


async def test_a_definition_comes_back_as_it_was_put(definitions: Definitions) -> None:
    document = {"big": 12345678901234567890123, "half": 0.5, "nothing": None, "text": "ä\u2028", "list": [True, []]}
    definition = replace(FIRST, document=document, descriptor_set=bytes(range(256)), engine_level=7)

    await definitions.put(definition)

    assert await definitions.get(definition.definition_hash) == definition
    assert await definitions.get(b"\3" * 32) is None


async def test_a_definition_is_stored_once_and_never_changed(definitions: Definitions, sql: Sql) -> None:
    await asyncio.gather(*(definitions.put(FIRST) for _ in range(10)))
    await definitions.put(replace(FIRST, descriptor_set=b"other"))

    assert await select(sql, "select descriptor_set from definition") == [{"descriptor_set": b"descriptors"}]


async def test_a_document_that_postgres_cannot_hold_is_refused(definitions: Definitions, sql: Sql) -> None:
    with pytest.raises(MoveRefused):
        await put(definitions, replace(FIRST, document={"a": "\0"}))
    assert await select_one(sql, "select count(*) from workflow") == 0


async def test_each_change_is_a_new_version_and_no_change_is_none(definitions: Definitions) -> None:
    assert await put(definitions, FIRST) == (1, True)
    assert await put(definitions, FIRST) == (1, False)
    assert await put(definitions, SECOND) == (2, True)
    assert await put(definitions, FIRST) == (3, True)

    newest = await definitions.workflow("default", "embed-text")
    assert newest is not None
    assert (newest.version, newest.definition_hash, newest.created_by) == (3, FIRST.definition_hash, "ana")
    assert newest.created_at.tzinfo is not None
    assert await definitions.get(SECOND.definition_hash) == SECOND


async def test_two_puts_of_one_name_at_once_are_two_versions(
    definitions: Definitions, sql: Sql, database_url: str
) -> None:
    await put(definitions, FIRST)
    async with connected(database_url) as other:
        async with other.transaction():
            await other.execute(
                b"select pg_advisory_xact_lock("
                b"hashtextextended(jsonb_build_array('workflow', 'default', 'embed-text')::text, 0))"
            )
            await other.execute(
                b"""insert into workflow (tenant_id, name, version, definition_hash, created_by)
                    values ('default', 'embed-text', 2, '\\x09', 'bob')"""
            )
            waiting = asyncio.create_task(put(definitions, SECOND))
            await until_blocked(sql, waiting)

        assert await waiting == (3, True)


async def test_many_puts_of_the_same_change_make_one_version(definitions: Definitions) -> None:
    await put(definitions, FIRST)

    answers = await asyncio.gather(*(put(definitions, SECOND) for _ in range(10)))

    assert sorted(answers) == [(2, False)] * 9 + [(2, True)]


async def test_workflows_are_listed_by_name_with_their_newest_version(definitions: Definitions) -> None:
    for name in ("b", "a", "d", "c"):
        await put(definitions, FIRST, name)
    await put(definitions, SECOND, "c")
    await definitions.put_workflow(FIRST, tenant_id="stranger", name="e", created_by="eve")

    async def listed(limit: int, after: str | None = None) -> list[tuple[str, int]]:
        found = await definitions.workflows("default", limit=limit, after=after)
        return [(workflow.name, workflow.version) for workflow in found]

    assert await listed(10) == [("a", 1), ("b", 1), ("c", 2), ("d", 1)]
    assert await listed(2) == [("a", 1), ("b", 1)]
    assert await listed(2, after="b") == [("c", 2), ("d", 1)]
    assert await listed(2, after="d") == []


async def test_another_tenants_workflow_is_unknown(definitions: Definitions) -> None:
    await put(definitions, FIRST)

    assert await definitions.workflow("stranger", "embed-text") is None
    assert await definitions.workflows("stranger", limit=10) == []
