"""Runs of three steps: queued runs, until they are complete, and until their events are published."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.bench.measure import Sample
from tests.bench.points import (
    SECONDS_BETWEEN_LOOKS,
    TIMES_AS_MUCH,
    Bench,
    Kind,
    Point,
    WorkerTask,
    measure_here,
    measure_worker,
)
from tests.bench.raw_calls import make_calls
from tests.bench.raw_insert import insert_runs
from tests.bench.raw_moves import CONNECTIONS, GROUP, drive_runs
from tests.bench.servers import IN_FLIGHT, BenchDatabase, BenchTopics
from tests.bench.watcher import BenchFailed, Watcher
from tests.bench.workload import STEPS, WorkRequest, requests

TOPIC: Final = "runs"
_UNIT: Final = "run"
_SECONDS_BETWEEN_COUNTS: Final = 0.1

_COMPLETED: Final = b"select count(*) from run_outcome"
_LAST_COMPLETED_AT: Final = b"select extract(epoch from max(completed_at)) from run where status = 'COMPLETED'"
_EVENTS: Final = b"select count(*) from event"
_UNPUBLISHED: Final = b"select count(*) from (select from relay_queue limit 1) queued"


def runs_points(bench: Bench, runs: int) -> list[Point]:
    """The raw store, the raw calls, and a worker without and with a relay beside it."""
    queued, more = requests(runs), requests(TIMES_AS_MUCH * runs)
    worker = partial(_of_worker, bench, queued)
    store = f"raw store, {CONNECTIONS} connections, groups of {GROUP}"
    return [
        Point(TOPIC, store, _UNIT, Kind.STORE, partial(_of_store, bench, more)),
        Point(TOPIC, f"raw gRPC, {len(STEPS)} calls", _UNIT, Kind.WIRE, partial(_of_calls, bench, queued)),
        Point(TOPIC, "worker, runs", _UNIT, Kind.WORKER, partial(worker, "runs")),
        Point(TOPIC, "worker, runs and relay", _UNIT, Kind.WORKER, partial(worker, "runs,relay")),
    ]


def _of_store(bench: Bench, requests: Sequence[WorkRequest]) -> Sample:
    with bench.servers.database() as database:
        insert_runs(database.url, requests)
        sample = measure_here(bench, len(requests), database, lambda: drive_runs(database.url))
        with Watcher(database.url, lambda: True) as watcher:
            _check(watcher, len(requests))
        return sample


def _of_calls(bench: Bench, requests: Sequence[WorkRequest]) -> Sample:
    return measure_here(bench, len(requests), None, lambda: make_calls(bench.servers.service, requests, IN_FLIGHT))


def _of_worker(bench: Bench, requests: Sequence[WorkRequest], roles: str) -> Sample:
    def fill(database: BenchDatabase, topics: BenchTopics) -> None:
        insert_runs(database.url, requests)

    def finish(watcher: Watcher) -> float:
        watcher.wait_for(_COMPLETED, len(requests), pause_seconds=_SECONDS_BETWEEN_COUNTS)
        ended_at = watcher.number(_LAST_COMPLETED_AT)
        if "relay" in roles:
            ended_at = watcher.wait_for(_UNPUBLISHED, 0, pause_seconds=SECONDS_BETWEEN_LOOKS)
        _check(watcher, len(requests))
        return ended_at

    return measure_worker(bench, WorkerTask(roles, len(requests), fill, finish))


def _check(watcher: Watcher, runs: int) -> None:
    """Refuse a figure of runs that were not driven to their end, with ACCEPTED, one event a step, and COMPLETED."""
    completed, events = watcher.number(_COMPLETED), watcher.number(_EVENTS)
    if (completed, events) != (runs, runs * (len(STEPS) + 2)):
        raise BenchFailed(f"{completed:g} of {runs} runs are complete, with {events:g} events")
