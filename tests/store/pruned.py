"""Settled runs to prune, and what the tables have of a run."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from store.database import Database
from store.prune import Prune
from tests.store.given import Given, finished
from tests.store.samples import Sql, select_one

DAY = timedelta(days=1)
TABLES = ("run", "run_input", "run_outcome", "checkpoint", "item", "event", "record", "relay_queue")


def pruning(database: Database, **changes: Any) -> Prune:
    """Pruning as by default: a week, a month, a minute."""
    values: dict[str, Any] = {"prune_after_seconds": 7 * 86_400, "remember_seconds": 30 * 86_400, **changes}
    return Prune(database, **values)


async def time_of(sql: Sql) -> datetime:
    now = await select_one(sql, "select now()")
    assert isinstance(now, datetime)
    return now


async def settled(given: Given, **changes: Any) -> UUID:
    """A completed run with rows in every table, all of it published."""
    run = await given.held(**changes)
    await given.moves.checkpoint(run, finished())
    await given.moves.complete(run, result={"ok": True}, verdict="1 steps, output x")
    await published(given.sql)
    job_id = {"job_id": run.job_id}
    await given.sql.execute(
        b"""insert into item (job_id, step, item_index, status, fence, attempt, input_hash, response)
            values (%(job_id)s, 's', 0, 'COMPLETED', 1, 1, 'h', '{}')""",
        job_id,
    )
    await given.sql.execute(b"insert into record values (%(job_id)s, 2, 0, 't', 'a.A', 'k', 'v', '[]')", job_id)
    return run.job_id


async def published(sql: Sql) -> None:
    """Everything that waits for the relay is acknowledged."""
    await sql.execute(b"delete from relay_queue")


async def left(sql: Sql, job_id: UUID) -> dict[str, int]:
    """How many rows of a run the tables still have."""
    found = {
        table: await select_one(sql, f"select count(*) from {table} where job_id = %(id)s", {"id": job_id})
        for table in TABLES
    }
    return {table: count for table, count in found.items() if count}


async def pruned_away(prune: Prune, sql: Sql) -> datetime:
    """Both phases, eight days on; returns the time of the second."""
    now = await time_of(sql) + 8 * DAY
    await prune.step(now=now)
    now += timedelta(minutes=2)
    await prune.step(now=now)
    return now
