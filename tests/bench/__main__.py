"""Measures the product beside its raw limits: `make bench`, or `python -m tests.bench --help`. Asserts nothing."""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from streams.dev.processes import StartFailed
from tests.bench import idle, intake, items, runs
from tests.bench.measure import Meter, Sample
from tests.bench.points import Bench, Point
from tests.bench.report import document, table
from tests.bench.servers import Servers
from tests.bench.watcher import BenchFailed

_TOPICS: Final = (intake.TOPIC, runs.TOPIC, items.TOPIC, idle.TOPIC)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done for one figure, and how often."""

    records: int
    runs: int
    idle_seconds: int
    rounds: int


FULL: Final = Size(records=12_000, runs=2_500, idle_seconds=20, rounds=3)
QUICK: Final = Size(records=4_000, runs=800, idle_seconds=5, rounds=1)


class Progress:
    """Tells how far it is, on standard error, so that standard output has the table alone."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:4.0f} s  {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line says and print it; 1 when something did not do its work."""
    options = _parser().parse_args(arguments)
    size = QUICK if options.quick else FULL
    rounds = options.rounds or size.rounds
    progress = Progress()
    try:
        with Servers(options.kafka) as servers, Meter(servers.postgres.url()) as meter:
            progress.tell(f"Postgres, {servers.kafka_kind} Kafka, registry and service are up")
            facts = servers.facts()
            samples = _measure(_points(Bench(servers, meter), size, options.only), rounds, progress)
    except (BenchFailed, StartFailed) as error:
        print(error, file=sys.stderr)
        return 1
    print(table(samples))
    if options.json is not None:
        options.json.write_text(document(samples, facts | {"size": asdict(size), "rounds": rounds}))
    return 0


def _points(bench: Bench, size: Size, only: str | None) -> list[Point]:
    points = [
        *intake.intake_points(bench, size.records),
        *runs.runs_points(bench, size.runs),
        *items.items_points(bench),
        idle.idle_point(bench, size.idle_seconds),
    ]
    return [point for point in points if only in (None, point.topic)]


def _measure(points: Sequence[Point], rounds: int, progress: Progress) -> dict[Point, list[Sample]]:
    """Take every point once a round; every other round backwards, so that no point always follows the same one."""
    samples: dict[Point, list[Sample]] = {point: [] for point in points}
    for number in range(rounds):
        for point in points if number % 2 == 0 else reversed(points):
            if point.topic == idle.TOPIC and samples[point]:
                continue  # it takes long, and does not depend on how fast the machine is
            sample = point.measure()
            samples[point].append(sample)
            told = f"{sample.rate:,.0f} {point.unit}s/s" if point.topic != idle.TOPIC else "measured"
            progress.tell(f"round {number + 1} of {rounds}  {point.topic}: {point.name}  {told}")
    return samples


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round, in less than a minute")
    parser.add_argument("--rounds", type=int, help=f"how often each figure is taken (default: {FULL.rounds})")
    parser.add_argument("--only", choices=_TOPICS, help="measure this alone")
    parser.add_argument(
        "--kafka", choices=("apache", "embedded"), help="the broker; without it Apache Kafka where it can run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
