"""One run whose step calls a service for each of a thousand items, until it is complete."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import grpc
import grpc.aio
import uvloop

from streams.parts.store import open_verbs
from streams.settings import load_settings
from tests.bench.measure import Sample
from tests.bench.points import SECONDS_BETWEEN_LOOKS, Bench, Kind, Point, WorkerTask, measure_here, measure_worker
from tests.bench.servers import BenchDatabase, BenchTopics
from tests.bench.watcher import BenchFailed, Watcher
from tests.bench.workload import FAN_OUT_NAME, ITEM, ITEMS, ITEMS_IN_FLIGHT, METHOD

TOPIC: Final = "items"
_CALL_SECONDS: Final = 30.0

_COMPLETED: Final = b"select count(*) from run where status = 'COMPLETED'"
_LAST_COMPLETED_AT: Final = b"select extract(epoch from max(completed_at)) from run where status = 'COMPLETED'"
_KEPT: Final = b"select count(*) from item where status = 'COMPLETED'"


def items_points(bench: Bench) -> list[Point]:
    """The raw calls, and a worker that keeps what comes of each."""
    wire = f"raw gRPC, {ITEMS_IN_FLIGHT} in flight"
    return [
        Point(TOPIC, wire, "item", Kind.WIRE, partial(_of_calls, bench)),
        Point(TOPIC, f"worker, a run of {ITEMS:,} items", "item", Kind.WORKER, partial(_of_worker, bench)),
    ]


def _of_calls(bench: Bench) -> Sample:
    return measure_here(bench, ITEMS, None, lambda: uvloop.run(_call_all(bench.servers.service)))


async def _call_all(address: str) -> float:
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        waiting = iter(range(ITEMS))
        began = time.perf_counter()
        await asyncio.gather(*(_call_each(channel, waiting) for _ in range(ITEMS_IN_FLIGHT)))
        return time.perf_counter() - began


async def _call_each(channel: grpc.aio.Channel, waiting: Iterator[int]) -> None:
    call = channel.unary_unary(f"/{METHOD}", request_serializer=None, response_deserializer=None)
    for _ in waiting:
        assert await call(ITEM, timeout=_CALL_SECONDS) == ITEM


def _of_worker(bench: Bench) -> Sample:
    def fill(database: BenchDatabase, topics: BenchTopics) -> None:
        asyncio.run(_submit(database.url))

    def finish(watcher: Watcher) -> float:
        watcher.wait_for(_COMPLETED, 1, pause_seconds=SECONDS_BETWEEN_LOOKS)
        if (kept := watcher.number(_KEPT)) != ITEMS:
            raise BenchFailed(f"{kept:g} of {ITEMS} items are done")
        return watcher.number(_LAST_COMPLETED_AT)

    return measure_worker(bench, WorkerTask("runs", ITEMS, fill, finish))


async def _submit(url: str) -> None:
    async with open_verbs(load_settings(database_url=url)) as verbs:
        answer = await verbs.call("submit-workflow", {"workflowName": FAN_OUT_NAME, "input": {"text": "a"}})
    if answer["ok"] is not True:
        raise BenchFailed(f"the run is refused: {answer}")
