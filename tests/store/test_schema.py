"""The tables that all migrations together make, compared with tests/golden/schema.txt.

After a migration: `python -m tests.store.test_schema URL > tests/golden/schema.txt`, on a freshly migrated database.
"""

import asyncio
import difflib
import sys
from pathlib import Path

from tests.store.samples import Sql, connected, select

GOLDEN = Path(__file__).parents[1] / "golden" / "schema.txt"

COLUMNS = """
    select class.relname as owner, case class.relkind when 'v' then 'view' else 'table' end as kind,
           attname || ' ' || format_type(atttypid, atttypmod) || case when attnotnull then ' not null' else '' end
             || case attidentity when 'a' then ' identity' else '' end
             || coalesce(' default ' || pg_get_expr(adbin, adrelid), '') as line
      from pg_attribute
      join pg_class class on class.oid = attrelid
      left join pg_attrdef on adrelid = attrelid and adnum = attnum
     where class.relnamespace = 'workflow_runs'::regnamespace and class.relkind in ('r', 'v')
       and attnum > 0 and not attisdropped
     order by class.relname, attnum"""
CONSTRAINTS = """
    select conrelid::regclass::text as owner, conname || ': ' || pg_get_constraintdef(oid) as line
      from pg_constraint
     where connamespace = 'workflow_runs'::regnamespace and contype <> 'n'
     order by owner, conname"""
INDEXES = """
    select tablename as owner, regexp_replace(indexdef, '^CREATE (.*)INDEX (\\S+) ON \\S+ (.*)$', '\\1\\2 \\3') as line
      from pg_indexes
     where schemaname = 'workflow_runs'
     order by tablename, indexname"""
FUNCTIONS = """
    select proname || '(' || pg_get_function_arguments(oid) || ') returns ' || pg_get_function_result(oid) as line
      from pg_proc
     where pronamespace = 'workflow_runs'::regnamespace
     order by proname"""


async def described(sql: Sql) -> str:
    """Every table and view with its columns, constraints and indexes, then the functions, as text."""
    lines: dict[str, list[str]] = {}
    for row in await select(sql, COLUMNS):
        lines.setdefault(row["owner"], [f"{row['kind']} {row['owner']}"]).append(f"  {row['line']}")
    for title, query in (("constraint", CONSTRAINTS), ("index", INDEXES)):
        for row in await select(sql, query):
            lines[row["owner"]].append(f"  {title} {row['line']}")
    functions = [f"function {row['line']}" for row in await select(sql, FUNCTIONS)]
    return "\n\n".join(["\n".join(block) for block in lines.values()] + functions) + "\n"


async def test_the_migrations_make_the_schema_that_was_agreed(sql: Sql) -> None:
    agreed, made = GOLDEN.read_text(encoding="utf-8"), await described(sql)

    assert list(difflib.unified_diff(agreed.splitlines(), made.splitlines(), "agreed", "made", n=0, lineterm="")) == []


async def _print(url: str) -> None:
    async with connected(url) as sql:
        print(await described(sql), end="")


if __name__ == "__main__":
    asyncio.run(_print(sys.argv[1]))
