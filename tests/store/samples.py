"""Submissions, records and letters to write, and plain SQL to look at what was written."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import conninfo
from psycopg.rows import dict_row

from store.records import DeadLetter, PositionMove, RecordIdentity, Submission
from store.submit import IntakeRecord

_COUNTED = ("run", "run_input", "run_outcome", "event", "relay_queue", "dead_letter", "intake_position")

GROUP = "workflow-runs"
TOPIC = "workflow-run-requests"

Sql = psycopg.AsyncConnection[dict[str, Any]]


class Woken:
    """Keeps what commits announced."""

    def __init__(self) -> None:
        self.payloads: list[Collection[str]] = []

    def __call__(self, payloads: Collection[str]) -> None:
        self.payloads.append(payloads)


def submission(job_id: UUID | None = None, **changes: Any) -> Submission:
    """A valid request of tenant `default` for `embed-text`; one with another `input` has another fingerprint."""
    text = changes.get("input", '{"text": "a"}')
    values: dict[str, Any] = {
        "job_id": job_id or uuid4(),
        "tenant_id": "default",
        "workflow_name": "embed-text",
        "fingerprint": hashlib.sha256(text.encode()).digest(),
        "definition_hash": b"\1" * 32,
        "engine_level": 1,
        "steps_total": 3,
        "max_attempts": 3,
        "target": "tokenizer",
        "input": text,
    }
    return Submission(**{**values, **changes})


# Recent: a broker removes records by their own time, and ours looks for those every second.
LETTER_TIME_MS = (int(time.time()) - 3_600) * 1_000


def letter(offset: int = 0, **changes: Any) -> DeadLetter:
    """The record at *offset* of partition 0 of the request topic."""
    key, value = changes.get("key", b"k"), changes.get("value", b"\0\1\2")
    identity = {
        "cluster_id": "cluster",
        "topic_id": "topic-1",
        "topic": TOPIC,
        "partition": 0,
        "offset": offset,
        "timestamp_ms": LETTER_TIME_MS,
        "content_hash": hashlib.sha256((key or b"") + (value or b"")).digest(),
    }
    known = {name: changes.pop(name) for name in list(changes) if name in identity}
    values: dict[str, Any] = {"key": key, "value": value, "headers": (), "code": "bad-json", "reason": "not JSON"}
    return DeadLetter(identity=RecordIdentity(**{**identity, **known}), **{**values, **changes})


def record(request: Submission, offset: int = 0) -> IntakeRecord:
    return IntakeRecord(request, letter(offset, value=request.input.encode()))


def position(
    next_offset: int, expected: int | None = None, *, partition: int = 0, topic_id: str = "t1"
) -> PositionMove:
    return PositionMove(TOPIC, partition, topic_id, expected, next_offset)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Sql]:
    """A connection beside the store: it sees what was committed, and holds transactions open."""
    found = conninfo.make_conninfo(url, options="-c search_path=workflow_runs -c TimeZone=UTC")
    async with await psycopg.AsyncConnection.connect(found, autocommit=True, row_factory=dict_row) as connection:
        yield connection


async def select(sql: Sql, query: str, params: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
    return await (await sql.execute(query.encode(), params)).fetchall()


async def select_one(sql: Sql, query: str, params: Mapping[str, object] | None = None) -> Any:
    """The single value of the single row."""
    [row] = await select(sql, query, params)
    [value] = row.values()
    return value


async def counts(sql: Sql) -> dict[str, int]:
    """How many rows the tables that intake writes have; empty ones are left out."""
    found = {table: await select_one(sql, f"select count(*) from {table}") for table in _COUNTED}
    return {table: count for table, count in found.items() if count}


async def until_blocked(sql: Sql, *tasks: "asyncio.Task[Any]") -> None:
    """Return once as many statements wait for a lock as there are *tasks*; fail when one ends without that."""
    blocked = """
        select count(*) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock' and state = 'active'"""
    while await select_one(sql, blocked) < len(tasks):
        assert not any(task.done() for task in tasks), "nothing had to be waited for"
        await asyncio.sleep(0.005)
