"""A raw limit is one only while it writes what the product writes."""

import asyncio

from tests.bench.raw_insert import insert_runs
from tests.bench.raw_moves import GROUP, drive_runs
from tests.bench.servers import prepare_database
from tests.bench.watcher import Watcher
from tests.bench.workload import STEPS, requests

RUNS = 2 * GROUP + 5


async def test_the_raw_statements_drive_every_run_to_its_end_with_every_row_that_a_run_has(database_url: str) -> None:
    await prepare_database(database_url)
    insert_runs(database_url, requests(RUNS))
    await asyncio.to_thread(drive_runs, database_url)
    events = len(STEPS) + 2
    with Watcher(database_url, lambda: True) as watcher:
        assert {
            "runs": watcher.number(b"select count(*) from workflow_run where status = 'COMPLETED' and seq = 5"),
            "inputs": watcher.number(b"select count(*) from run_input"),
            "checkpoints": watcher.number(b"select count(*) from checkpoint where response->>'text' <> ''"),
            "outcomes": watcher.number(b"select count(*) from run_outcome where result->>'text' <> ''"),
            "events": watcher.number(b"select count(*) from event where seq between 1 and 5"),
            "queued events": watcher.number(b"select count(*) from relay_queue join event using (job_id, seq)"),
        } == {
            "runs": RUNS,
            "inputs": RUNS,
            "checkpoints": RUNS * len(STEPS),
            "outcomes": RUNS,
            "events": RUNS * events,
            "queued events": RUNS * events,
        }


def test_a_record_has_about_three_hundred_bytes_in_either_format() -> None:
    [request] = requests(1)
    assert 280 <= len(request.json_value()) <= 320
    assert 240 <= len(request.protobuf_value(1)) <= 320
