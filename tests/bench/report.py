"""Figures for people and for programs: medians over the rounds, each worker beside the raw limits of the same round."""

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from tests.bench import idle
from tests.bench.measure import Sample
from tests.bench.points import Kind, Point

Samples = Mapping[Point, Sequence[Sample]]

_HEAD: Final = (
    "what",
    "unit",
    "units/s (min-max)",
    "of raw store",
    "of raw wire",
    "CPU ms: Postgres",
    "worker",
    "beside",
    "commits",
    "transactions",
    "WAL B",
    "others",
)


def table(samples: Samples) -> str:
    """One table in Markdown, aligned; every figure but the rate is per unit."""
    rows = [_HEAD, *(_row(point, taken, samples) for point, taken in samples.items() if taken)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], _line(["-" * width for width in widths], widths), *lines[1:], *_notes(samples)])


def document(samples: Samples, facts: Mapping[str, object]) -> str:
    """Everything that was measured, as JSON: each sample of each round, and what it was measured on."""
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    points = [
        {
            "topic": point.topic,
            "name": point.name,
            "unit": point.unit,
            "kind": point.kind,
            "of_raw_store": _ratio(point, Kind.STORE, samples),
            "of_raw_wire": _ratio(point, Kind.WIRE, samples),
            "samples": [{**asdict(sample), "rate": sample.rate} for sample in taken],
        }
        for point, taken in samples.items()
    ]
    return json.dumps({"facts": {**machine, **facts}, "points": points}, indent=1)


def _row(point: Point, taken: Sequence[Sample], samples: Samples) -> Sequence[str]:
    def per_unit(figure: Callable[[Sample], float]) -> float:
        return statistics.median(figure(sample) / sample.units for sample in taken)

    rates = [sample.rate for sample in taken]
    spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
    uses_store = any(sample.transactions for sample in taken)
    return (
        point.name,
        point.unit,
        "" if point.topic == idle.TOPIC else spread,
        _shown(_ratio(point, Kind.STORE, samples)),
        _shown(_ratio(point, Kind.WIRE, samples)),
        f"{per_unit(lambda sample: 1000 * sample.cpu.postgres):.3f}" if uses_store else "",
        f"{per_unit(lambda sample: 1000 * sample.cpu.worker):.3f}",
        f"{per_unit(lambda sample: 1000 * sample.cpu.beside):.3f}",
        f"{per_unit(lambda sample: sample.commits):.3f}" if uses_store else "",
        f"{per_unit(lambda sample: sample.transactions):.3f}" if uses_store else "",
        f"{per_unit(lambda sample: sample.wal_bytes):,.0f}" if uses_store else "",
        f"{statistics.median(sample.others for sample in taken):.0%}",
    )


def _ratio(point: Point, kind: Kind, samples: Samples) -> float | None:
    """The median over the rounds of a worker's rate by the limit's of the same round."""
    limits = [other for other in samples if other.topic == point.topic and other.kind is kind]
    if point.kind is not Kind.WORKER or not limits:
        return None
    [limit] = limits
    pairs = zip(samples[point], samples[limit], strict=True)
    return statistics.median(sample.rate / raw.rate for sample, raw in pairs)


def _shown(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join([first, *others])} |"


def _notes(samples: Samples) -> Sequence[str]:
    for point, taken in samples.items():
        if point.topic == idle.TOPIC and taken:
            ten = 10 * statistics.median(sample.transactions / sample.seconds for sample in taken)
            return ["", f"Ten such idle workers: {ten:.1f} queries/s; together they should stay under 3."]
    return []
