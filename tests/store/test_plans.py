"""Every statement: prepared against the real tables, and planned so that its cost does not grow with them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from store.statements import sql as statement_text
from store.statements import statement_names
from tests.store.samples import Sql, connected, select

_PARAMETER = re.compile(r"%\((\w+)\)s")
_PLANNED = ("select", "with", "insert", "update", "delete")
_SMALL_TABLES = {"upkeep", "shard", "migration", "relay_worker"}
"""Tables that never grow: reading all of them is the cheapest way."""


def body(name: str) -> str:
    """The statement without the comment above it."""
    lines = statement_text(name).decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--")).strip()


NAMES = sorted(statement_names())
PLANNED = [name for name in NAMES if body(name).lower().startswith(_PLANNED)]


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_says_why_it_is_and_has_a_percent_sign_only_before_a_parameter(name: str) -> None:
    text = statement_text(name).decode()
    assert text.startswith("-- ")
    assert text.endswith("\n")
    comments = "\n".join(line for line in text.splitlines() if line.lstrip().startswith("--"))
    assert "%" not in comments
    assert "%" not in _PARAMETER.sub("", text).replace("%%", "")


@pytest.mark.parametrize("name", PLANNED)
async def test_a_statement_reads_by_index_whatever_its_parameters_are(sql: Sql, name: str) -> None:
    parameters = await prepare(sql, name)
    nulls = f"({', '.join('null' for _ in parameters)})" if parameters else ""
    plan = await explained(sql, f"explain (format json, verbose) execute checked{nulls}")
    assert [read for node in nodes(plan) if (read := whole_read(node))] == []


@pytest.mark.parametrize("name", ["relay_queue/events", "relay_queue/letters"])
@pytest.mark.parametrize("rows", [0, 1_000, 200_000])
async def test_a_look_at_the_queue_reads_no_more_than_it_returns_however_much_waits_and_without_statistics(
    sql: Sql, name: str, rows: int
) -> None:
    await queue_events(sql, rows)

    plan = await looked(sql, name)

    [limit] = [node for node in nodes(plan) if node["Node Type"] == "Limit"]
    [scan] = limit["Plans"]
    assert scan["Node Type"] == "Index Scan"
    assert scan.get("Rows Removed by Filter", 0) == 0
    assert scan["Actual Rows"] * scan["Actual Loops"] <= LIMIT * SHARDS


@pytest.mark.parametrize("name", ["relay_queue/events", "relay_queue/letters", "relay_queue/lease_shards"])
async def test_a_look_from_a_mark_on_passes_over_no_deleted_rows_that_cannot_be_cleared_away(
    sql: Sql, database_url: str, name: str
) -> None:
    await queue_events(sql, 50_000)
    async with connected(database_url) as elsewhere, elsewhere.transaction():
        await elsewhere.execute(b"set transaction isolation level repeatable read")
        await elsewhere.execute(b"select from upkeep")
        await sql.execute(b"delete from relay_queue")

        assert blocks_of(await looked(sql, name, low=50_001)) < 500
        if name != "relay_queue/letters":  # of these, none was deleted
            assert blocks_of(await looked(sql, name)) > 5_000


LIMIT, SHARDS = 62, 16


async def queue_events(sql: Sql, rows: int) -> None:
    """Fill the queue, which nobody analyzes or vacuums; the log has nothing of it."""
    await sql.execute(b"alter table relay_queue set (autovacuum_enabled = false)")
    await sql.execute(
        b"""
        insert into relay_queue (shard, job_id, seq)
        select number %% 16, gen_random_uuid(), 1 from generate_series(1, %(rows)s) number""",
        {"rows": rows},
    )


async def looked(sql: Sql, name: str, *, low: int = 0) -> dict[str, Any]:
    """The plan of one look at all shards that was carried out, and planned without knowing its parameters."""
    shards, lows = (f"'{{{','.join(map(str, numbers))}}}'" for numbers in (range(SHARDS), [low] * SHARDS))
    given = {"shards": shards, "low_shards": shards, "low": lows, "limit": str(LIMIT), "skip": "'{}'", "owner": "'a'"}
    values = ", ".join({**given, "lease_seconds": "10", "now": "null"}[name] for name in await prepare(sql, name))
    return await explained(sql, f"explain (format json, analyze, buffers) execute checked({values})")


def blocks_of(plan: dict[str, Any]) -> int:
    """How many blocks the statement read, from memory or from disk."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


async def prepare(sql: Sql, name: str) -> list[str]:
    """Prepare a statement as `checked`, to be planned once for all values; return its parameters in their order."""
    parameters: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in parameters:
            parameters.append(found[1])
        return f"${parameters.index(found[1]) + 1}"

    text = _PARAMETER.sub(number, body(name)).replace("%%", "%")
    await sql.execute(b"deallocate all")
    await sql.execute(b"set plan_cache_mode = force_generic_plan")
    await sql.execute(f"prepare checked as {text}".encode())
    return parameters


async def explained(sql: Sql, explain: str) -> dict[str, Any]:
    """The plan that an EXPLAIN answers."""
    [row] = await select(sql, explain)
    found = row["QUERY PLAN"]
    [answer] = json.loads(found) if isinstance(found, str) else found
    plan: dict[str, Any] = answer["Plan"]
    return plan


def nodes(node: dict[str, Any], limited: bool = False) -> Iterator[dict[str, Any]]:
    """Every node of a plan; those whose rows are counted by a Limit above them are marked."""
    node["limited"] = limited
    yield node
    passes_on = node["Node Type"] in ("Limit", "LockRows", "Result", "Subquery Scan")
    for child in node.get("Plans", ()):
        yield from nodes(child, node["Node Type"] == "Limit" or (limited and passes_on))


def whole_read(node: dict[str, Any]) -> str | None:
    """Name the table that *node* may read from end to end."""
    table = node.get("Relation Name")
    if table is None or node.get("Schema") != "workflow_runs" or table in _SMALL_TABLES:
        return None
    kind = node["Node Type"]
    if kind in ("Index Scan", "Index Only Scan"):
        return None if "Index Cond" in node or node["limited"] else f"all of an index of {table}"
    if kind == "Bitmap Heap Scan":
        return None if "Recheck Cond" in node else f"all of {table}"
    return f"all of {table}" if "Scan" in kind else None
