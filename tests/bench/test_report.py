"""What the report makes of samples."""

import json

from tests.bench.measure import Cpu, Sample
from tests.bench.points import Kind, Point
from tests.bench.report import document, table


def sample(rate: int) -> Sample:
    cpu = Cpu(postgres=0.5, worker=1.0, beside=0.25, machine=2.0)
    return Sample(rate, 1.0, cpu, commits=2 * rate, transactions=3 * rate, wal_bytes=100 * rate, others=0.5)


def point(kind: Kind, name: str) -> Point:
    return Point("runs", name, "run", kind, lambda: sample(1))


RAW, WIRE, WORKER = point(Kind.STORE, "raw store"), point(Kind.WIRE, "raw wire"), point(Kind.WORKER, "worker")
SAMPLES = {
    RAW: [sample(100), sample(1000), sample(200)],
    WIRE: [sample(50), sample(50), sample(50)],
    WORKER: [sample(50), sample(100), sample(20)],
}


def test_a_ratio_is_the_median_of_what_each_round_gave_and_not_a_ratio_of_medians() -> None:
    told = {entry["name"]: entry for entry in json.loads(document(SAMPLES, {}))["points"]}
    assert told["worker"]["of_raw_store"] == 0.1  # of 0.5, 0.1 and 0.1; the medians would give 0.25
    assert told["worker"]["of_raw_wire"] == 1.0
    assert told["raw store"]["of_raw_store"] is None


def test_the_table_has_one_line_a_point_with_every_figure_per_unit() -> None:
    lines = table(SAMPLES).splitlines()
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert len(lines) == 2 + len(SAMPLES)
    assert cells == [
        *("worker", "run", "50 (20-100)", "0.10", "1.00"),
        *("10.000", "20.000", "5.000", "2.000", "3.000", "100", "50%"),
    ]
