"""D07: a back-off that overflows."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from tests.acceptance.bench import Bench
from tests.acceptance.waiting import until
from tests.driver.stories import TOKENIZE, embed_text
from tests.fixtures.grpc_server import Answer
from tests.store.samples import select, select_one

pytestmark = [pytest.mark.embedded, pytest.mark.case("D07")]

AWAY = Answer(status=grpc.StatusCode.UNAVAILABLE, details="try later")
BASE_SECONDS = 5
CAP_SECONDS = 3_600
"""What docs/settings.md says of BACKOFF_CAP_SECONDS."""


async def test_d07_however_many_tries_failed_the_next_is_within_the_cap_and_the_last_is_the_end(bench: Bench) -> None:
    bench.server.script(TOKENIZE, AWAY)
    failed = (30, 45, 62, 64, 1_100, 1_999)
    jobs = await bench.runs(len(failed), embed_text(), max_attempts=2_000)
    for job_id, attempt in zip(jobs, failed, strict=True):
        await bench.sql.execute(
            "update run set attempt = %s, attempt_step = 'tokenize' where job_id = %s", [attempt, job_id]
        )
    *put_off, last = jobs
    with closing(bench.worker(backoff_base_seconds=BASE_SECONDS)) as worker:
        await until(lambda: all_failed(bench, len(jobs)), lambda: worker.log)
        got = {str(job_id): (await worker.call("get-job", {"jobId": str(job_id)}))["job"] for job_id in jobs}
        listed = {job["jobId"]: job for job in (await worker.call("list-jobs", {}))["jobs"]}

    now = datetime.now(UTC)
    for job_id, attempt in zip(put_off, failed, strict=False):
        for shown in (got[str(job_id)], listed[str(job_id)]):
            assert (shown["status"], shown["attempt"]) == ("QUEUED", attempt + 1)
            assert now < datetime.fromisoformat(shown["runAfter"]) <= now + timedelta(seconds=CAP_SECONDS)
        assert got[str(job_id)]["lastError"] == "GRPC: UNAVAILABLE: try later"
    for shown in (got[str(last)], listed[str(last)]):
        assert (shown["status"], shown["attempt"], shown["error"]) == ("DEAD", 2_000, "GRPC: UNAVAILABLE: try later")
    assert set(got) == set(listed)


async def test_d07_runs_that_fail_together_do_not_come_back_together(bench: Bench) -> None:
    bench.server.script(TOKENIZE, AWAY)
    jobs = await bench.runs(200, embed_text())
    with closing(bench.worker(backoff_base_seconds=BASE_SECONDS)) as worker:
        await until(lambda: all_failed(bench, len(jobs)), lambda: worker.log)

    # From each one's own failure on, so that what spreads them is the delay and not the time their calls took.
    rows = await select(
        bench.sql,
        "select extract(epoch from run_after - last_error_at)::float as delay from run join run_outcome using (job_id)",
    )
    delays = sorted(row["delay"] for row in rows)
    assert BASE_SECONDS <= delays[0] < delays[-1] <= BASE_SECONDS * 1.1
    within = max(sum(1 for other in delays if delay <= other < delay + 0.1) for delay in delays)
    assert within < len(jobs) / 2, "due in the same 100 ms"


async def all_failed(bench: Bench, count: int) -> bool:
    query = "select count(*) from run join run_outcome using (job_id) where coalesce(last_error, error) is not null"
    return bool(await select_one(bench.sql, query) == count)
