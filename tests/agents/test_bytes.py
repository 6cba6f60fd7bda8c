"""What intake holds in memory is bounded by bytes, however large the records are."""

import pytest

from streams.kafka.assignment import Assignment
from tests.agents.bench import IntakeBench, request_value

RECORD_BYTES = 1_000_000


async def test_records_of_a_megabyte_are_held_in_memory_no_more_than_a_batch_and_a_fetch_at_a_time(
    intake: IntakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake.batch_bytes = 3 << 20
    peak = 0
    buffered = Assignment.buffered

    def noted(assignment: Assignment, size: int) -> None:
        nonlocal peak
        buffered(assignment, size)
        peak = max(peak, assignment.unstored_bytes)

    monkeypatch.setattr(Assignment, "buffered", noted)
    # The store is held up at first, so that whatever may be read ahead is.
    await intake.execute("ALTER TABLE run ADD CONSTRAINT nobody CHECK (false) NOT VALID")
    intake.produce(*[request_value(input={"text": "a" * (RECORD_BYTES - 1_000)}) for _ in range(24)])
    async with intake.worker() as worker:
        await worker.ready()
        await intake.execute("ALTER TABLE run DROP CONSTRAINT nobody")
        await intake.has_runs(24)
        await intake.has_committed(24)
        assert worker.count("intake_batch_seconds_count") >= 24 / 4
    assert RECORD_BYTES < peak <= 2 * intake.batch_bytes + RECORD_BYTES
