"""The raw limit of the store: the statements of as many runs, in groups over two connections, and nothing else."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import psycopg
import uvloop

from tests.bench.statements import OPTIONS, sql
from tests.bench.workload import STEPS, TARGET

GROUP: Final = 64
CONNECTIONS: Final = 2

_Connection = psycopg.AsyncConnection[tuple[Any, ...]]


def drive_runs(url: str) -> float:
    """Claim, checkpoint and complete every queued run, and return how many seconds that took."""
    return uvloop.run(_drive(url))


async def _drive(url: str) -> float:
    connections = [
        await psycopg.AsyncConnection.connect(url, autocommit=True, options=OPTIONS, prepare_threshold=0)
        for _ in range(CONNECTIONS)
    ]
    began = time.perf_counter()
    await asyncio.gather(*(_lane(connection, f"raw-{number}") for number, connection in enumerate(connections)))
    seconds = time.perf_counter() - began
    for connection in connections:
        await connection.close()
    return seconds


async def _lane(connection: _Connection, owner: str) -> None:
    while True:
        claimed = await connection.execute(sql("claim"), {"target": TARGET, "most": GROUP, "owner": owner})
        runs = await claimed.fetchall()
        if not runs:
            return
        for index, step in enumerate(STEPS):
            named = f'"step_index":{index},"step":"{step}"'
            await _move(connection, "checkpoint", runs, owner, seq=index + 2, more=f",{named}")
        await _move(connection, "complete", runs, owner, seq=len(STEPS) + 2)


async def _move(
    connection: _Connection, statement: str, runs: Sequence[tuple[Any, ...]], owner: str, *, seq: int, more: str = ""
) -> None:
    """Make one move of each of *runs* in one commit. A step answers what the run was given."""
    moves = ",".join(
        f'{{"job_id":"{job_id}","seq":{seq},"event_id":"{uuid4()}","response":{given}{more}}}' for job_id, given in runs
    )
    params: Mapping[str, str] = {"moves": f"[{moves}]", "owner": owner}
    cursor = await connection.execute(sql(statement), params)
    assert cursor.rowcount == len(runs)
