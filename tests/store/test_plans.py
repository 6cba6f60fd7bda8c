"""Every statement: prepared against the real tables, and planned so that its cost does not grow with them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from store.statements import sql as statement_text
from store.statements import statement_names
from tests.store.samples import Sql, select

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
    parameters: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in parameters:
            parameters.append(found[1])
        return f"${parameters.index(found[1]) + 1}"

    text = _PARAMETER.sub(number, body(name)).replace("%%", "%")
    await sql.execute(b"set plan_cache_mode = force_generic_plan")
    await sql.execute(f"prepare checked as {text}".encode())
    nulls = f"({', '.join('null' for _ in parameters)})" if parameters else ""
    [row] = await select(sql, f"explain (format json, verbose) execute checked{nulls}")
    found = row["QUERY PLAN"]
    [explained] = json.loads(found) if isinstance(found, str) else found
    assert [read for node in nodes(explained["Plan"]) if (read := whole_read(node))] == []


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
