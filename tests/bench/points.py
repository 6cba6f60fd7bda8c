"""What is measured, and how: a point is one figure, taken again in every round."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.bench.measure import Meter, Sample
from tests.bench.servers import BenchDatabase, BenchTopics, Servers
from tests.bench.watcher import BenchFailed, Watcher

SECONDS_BETWEEN_LOOKS: Final = 0.05
"""How late the end of some work may be noticed, where the database does not say when it was."""

TIMES_AS_MUCH: Final = 3
"""A raw store is so much faster that it gets more to do: a figure of half a second would say little."""


class Kind(StrEnum):
    """What a point stands for within its topic: one of the two limits, or the product."""

    STORE = "store"  # the raw limit of Postgres
    WIRE = "wire"  # the raw limit of what brings the work in, or carries it out
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Point:
    """One figure. `unit` is what a rate counts; `measure` does the work once."""

    topic: str
    name: str
    unit: str
    kind: Kind
    measure: Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Bench:
    """What every point works with."""

    servers: Servers
    meter: Meter


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Work for one worker process: *fill* brings it there, *finish* waits until it is done and says when it was."""

    roles: str
    units: int
    fill: Callable[[BenchDatabase, BenchTopics], None]
    finish: Callable[[Watcher], float]


def measure_worker(bench: Bench, task: WorkerTask) -> Sample:
    """Let a worker do *task* from a standing start: it is ready and stands still until all of the work is there."""
    meter, servers = bench.meter, bench.servers
    topics = servers.topics()
    with servers.database() as database:
        with (
            servers.worker(database, task.roles, topics) as worker,
            Watcher(database.url, lambda: worker.running) as watcher,
        ):
            worker.pause()
            task.fill(database, topics)
            transactions = meter.transactions_so_far(database.name)
            before = meter.read(worker.pid)
            watcher.notify()
            worker.resume()
            try:
                ended_at = task.finish(watcher)
            except BenchFailed as error:
                raise BenchFailed(f"{error}:\n{worker.tail()}") from error
            after = meter.read(worker.pid)
        transactions = meter.transactions(database.name) - transactions - watcher.looks
    return meter.sample(task.units, ended_at - before.at, before, after, transactions=transactions)


def measure_here(bench: Bench, units: int, database: BenchDatabase | None, work: Callable[[], float]) -> Sample:
    """Measure *work*, which runs in this process and answers how many seconds it took, connecting left out."""
    meter = bench.meter
    started = meter.transactions_so_far(database.name) if database is not None else 0
    before = meter.read(None)
    seconds = work()
    after = meter.read(None)
    transactions = meter.transactions(database.name) - started if database is not None else 0
    return meter.sample(units, seconds, before, after, transactions=transactions)
