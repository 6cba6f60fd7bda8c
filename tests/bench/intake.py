"""Intake: records that are on the broker, until they are rows."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from streams.dev.processes import ChildProcess
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
from tests.bench.raw_insert import BATCH_RECORDS, insert_runs
from tests.bench.servers import BenchDatabase, BenchTopics
from tests.bench.watcher import BenchFailed, Watcher
from tests.bench.workload import WorkRequest, requests

TOPIC: Final = "intake"
_UNIT: Final = "row"
_COUNT_SECONDS: Final = 60.0

_READ: Final = b"select coalesce(sum(next_offset), 0) from intake_position"
_QUEUED: Final = b"select count(*) from run where status = 'QUEUED'"

Encode = Callable[[WorkRequest, BenchTopics], bytes]


def intake_points(bench: Bench, records: int) -> list[Point]:
    """The raw insert, Faust that counts, and a worker on plain JSON and on framed Protobuf."""
    sent, more = requests(records), requests(TIMES_AS_MUCH * records)
    worker = partial(_of_worker, bench, sent)
    return [
        Point(TOPIC, f"raw insert, {BATCH_RECORDS} a commit", _UNIT, Kind.STORE, partial(_of_insert, bench, more)),
        Point(TOPIC, "raw Faust, an agent that counts", _UNIT, Kind.WIRE, partial(_of_faust, bench, more)),
        Point(TOPIC, "worker, plain JSON", _UNIT, Kind.WORKER, partial(worker, _as_json)),
        Point(TOPIC, "worker, framed Protobuf", _UNIT, Kind.WORKER, partial(worker, _as_protobuf)),
    ]


def _as_json(request: WorkRequest, topics: BenchTopics) -> bytes:
    return request.json_value()


def _as_protobuf(request: WorkRequest, topics: BenchTopics) -> bytes:
    return request.protobuf_value(topics.schema_id)


def _of_insert(bench: Bench, requests: Sequence[WorkRequest]) -> Sample:
    with bench.servers.database() as database:
        return measure_here(bench, len(requests), database, lambda: insert_runs(database.url, requests))


def _of_worker(bench: Bench, requests: Sequence[WorkRequest], encode: Encode) -> Sample:
    def fill(database: BenchDatabase, topics: BenchTopics) -> None:
        _produce(bench, requests, topics, encode)

    def finish(watcher: Watcher) -> float:
        ended_at = watcher.wait_for(_READ, len(requests), pause_seconds=SECONDS_BETWEEN_LOOKS)
        if (queued := watcher.number(_QUEUED)) != len(requests):
            raise BenchFailed(f"{queued:g} of {len(requests)} runs are queued")
        return ended_at

    return measure_worker(bench, WorkerTask("intake", len(requests), fill, finish))


def _of_faust(bench: Bench, requests: Sequence[WorkRequest]) -> Sample:
    servers, meter = bench.servers, bench.meter
    topics = servers.topics()
    arguments = (
        servers.broker.bootstrap,
        topics.requests,
        topics.requests,
        len(requests),
        servers.session_seconds,
        servers.folder,
    )
    with servers.process("counter", ["tests.bench.raw_consume", *map(str, arguments)]) as counter:
        counter.start(ready=lambda: "ready" in counter.tail(), deadline_seconds=_COUNT_SECONDS)
        counter.pause()
        _produce(bench, requests, topics, _as_json)
        before = meter.read(counter.pid)
        counter.resume()
        ended_at = _counted_at(counter)
        after = meter.read(counter.pid)
    return meter.sample(len(requests), ended_at - before.at, before, after, transactions=0)


def _counted_at(counter: ChildProcess) -> float:
    def told() -> re.Match[str] | None:
        return re.search(r"^\d+\.\d+$", counter.tail(), re.MULTILINE)

    counter.wait_until(lambda: told() is not None, deadline_seconds=_COUNT_SECONDS)
    found = told()
    assert found is not None
    return float(found[0])


def _produce(bench: Bench, requests: Sequence[WorkRequest], topics: BenchTopics, encode: Encode) -> None:
    records = [(str(request.job_id).encode(), encode(request, topics)) for request in requests]
    bench.servers.produce(topics.requests, records)
