"""A service that steps call goes away and comes back: its runs wait for it, and no others."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

import grpc
import pytest

from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE, VECTOR, embed_only
from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.outages.stand import KAFKA_SECONDS, STORE_SECONDS, Stand

pytestmark = pytest.mark.asyncio(loop_scope="package")


@contextmanager
def stopped(stand: Stand) -> Iterator[None]:
    stand.fleet.server.stop()
    yield
    stand.fleet.server.start()


@contextmanager
def refused(stand: Stand) -> Iterator[None]:
    with stand.refused(stand.to_target):
        yield


async def until_tried(stand: Stand, jobs: list[UUID], *, times: int) -> None:
    """Wait until the call of each of *jobs* has failed so often."""

    async def all_tried() -> bool:
        rows = await stand.fleet.rows("select attempt from run where job_id = any (%(jobs)s)", jobs=jobs)
        return len(rows) == len(jobs) and all(row["attempt"] >= times for row in rows)

    await until(all_tried, lambda: f"not every run was tried {times} times")


@pytest.mark.case("D22")
@pytest.mark.parametrize("outage", [stopped, refused])
async def test_d22_runs_of_a_service_that_is_down_are_done_soon_after_it_is_up(
    stand: Stand, outage: Callable[[Stand], AbstractContextManager[None]]
) -> None:
    worker = await stand.worker()
    async with stand.watching(worker) as watch:
        with outage(stand):
            jobs = await stand.fleet.produce(10)
            await stand.fleet.until_stored(jobs)

            await until_tried(stand, jobs, times=4)
            assert await worker.count("steps_total", code="UNAVAILABLE") >= 40
        await stand.until_finished(jobs, runs=STORE_SECONDS, events=KAFKA_SECONDS)
        # The worker itself lacks nothing: it is ready all along.
        assert all(look.ready for look in watch.looks)
    for job_id in jobs:
        row = await stand.fleet.row(job_id)
        assert (row["lost_leases"], row["attempt"]) == (0, 0), row


@pytest.mark.case("D22")
async def test_d22_the_first_job_after_a_restart_of_an_idle_service_takes_two_tries_at_most(stand: Stand) -> None:
    await stand.worker()
    await stand.until_finished(await stand.fleet.produce(1), runs=STORE_SECONDS, events=KAFKA_SECONDS)
    for _ in range(3):
        stand.fleet.server.stop()
        stand.fleet.server.start()
        [job_id] = await stand.fleet.produce(1)
        await stand.fleet.until_all([job_id], "COMPLETED", seconds=STORE_SECONDS)
        assert (await stand.fleet.row(job_id))["fence"] <= 2


@pytest.mark.case("D22")
async def test_d22_a_service_that_never_answers_costs_the_time_of_its_step_and_is_tried_again(stand: Stand) -> None:
    worker = await stand.worker()
    await stand.fleet.store({**embed_only(step_deadline_ms=1_000), "name": "impatient"}, "impatient")
    with stand.fleet.server.holding(EMBED) as held:
        began = time.monotonic()
        [job_id] = await stand.fleet.produce(1, workflow="impatient")
        await held.arrived()
        await held.arrived()
        assert 1.0 < time.monotonic() - began < STORE_SECONDS
        assert await stand.fleet.calls(EMBED, job_id)[0].was_cut()
        assert "DEADLINE_EXCEEDED" in (await stand.fleet.row(job_id))["last_error"]
    await stand.fleet.until_all([job_id], "COMPLETED", seconds=STORE_SECONDS)
    assert await worker.count("steps_total", code="DEADLINE_EXCEEDED") >= 1


@pytest.mark.case("D22")
async def test_d22_a_service_that_never_answers_outlasts_neither_the_time_of_a_segment_nor_that_of_the_run(
    stand: Stand,
) -> None:
    await stand.worker()
    await stand.fleet.store({**embed_only(deadline_ms=1_000), "name": "hurried"}, "hurried")
    whole_run = {**embed_only(step_deadline_ms=1_000), "name": "overdue", "runDeadlineMs": 2_500}
    await stand.fleet.store(whole_run, "overdue")
    with stand.fleet.server.holding(EMBED):
        [hurried] = await stand.fleet.produce(1, workflow="hurried")
        [overdue] = await stand.fleet.produce(1, workflow="overdue")
        await until_tried(stand, [hurried], times=1)
        assert "DEADLINE" in (await stand.fleet.row(hurried))["last_error"]
        await stand.fleet.until_all([overdue], "FAILED", seconds=2.5 + STORE_SECONDS)
    row = await stand.fleet.row(overdue)
    assert row["error"].startswith("DEADLINE")
    assert "runDeadlineMs" in row["error"]
    assert (row["completed_at"] - row["created_at"]).total_seconds() < 2.5 + STORE_SECONDS
    await stand.fleet.until_all([hurried], "COMPLETED", seconds=STORE_SECONDS)


@pytest.mark.case("D22")
async def test_d22_a_service_that_moved_is_found_at_its_new_address(stand: Stand) -> None:
    await stand.worker()
    moved = ScriptedServer()
    moved.script(TOKENIZE, Answer(b"\n\x01a"))
    moved.script(EMBED, VECTOR)
    moved.start()
    file = stand.fleet.folder / "proxied-targets.yaml"
    before = file.read_text()
    try:
        stand.fleet.server.stop()
        [job_id] = await stand.fleet.produce(1)
        await stand.fleet.until_stored([job_id])
        file.write_text(json.dumps({name: {"address": moved.target} for name in json.loads(before)}))
        await stand.fleet.until_all([job_id], "COMPLETED", seconds=STORE_SECONDS)
        assert len(moved.calls(EMBED)) == 1
    finally:
        file.write_text(before)
        stand.fleet.server.start()
        moved.stop()
    # Back at its old address, which was given up meanwhile.
    await asyncio.sleep(1.1)  # the file is read once a second
    await stand.until_finished(await stand.fleet.produce(1), runs=STORE_SECONDS, events=KAFKA_SECONDS)


@pytest.mark.case("D22")
async def test_d22_every_status_is_told_word_for_word_and_only_some_are_tried_again(stand: Stand) -> None:
    await stand.worker()
    await stand.fleet.store({**embed_only(), "name": "one-call"}, "one-call")
    codes = [grpc.StatusCode[name] for name in ("UNKNOWN", "INTERNAL", "UNAUTHENTICATED", "ABORTED", "CANCELLED")]
    again = [grpc.StatusCode[name] for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")]
    try:
        for code in (*codes, *again):
            stand.fleet.server.script(EMBED, Answer(status=code, details=f"{code.name} as told"), VECTOR)
            [job_id] = await stand.fleet.produce(1, workflow="one-call")
            await stand.fleet.until_all([job_id], "FAILED" if code in codes else "COMPLETED", seconds=STORE_SECONDS)
            row = await stand.fleet.row(job_id)
            told = row["error"] if code in codes else row["last_error"]
            assert told == f"GRPC: {code.name}: {code.name} as told"
            assert row["fence"] == (1 if code in codes else 2)
    finally:
        stand.fleet.server.script(EMBED, VECTOR)


async def test_a_call_in_a_black_hole_ends_with_its_deadline_and_the_run_goes_on_when_the_network_does(
    stand: Stand,
) -> None:
    await stand.worker()
    await stand.fleet.store({**embed_only(step_deadline_ms=1_500), "name": "impatient"}, "impatient")
    with stand.black_hole(stand.to_target):
        jobs = await stand.fleet.produce(5, workflow="impatient")

        await until_tried(stand, jobs, times=1)
    await stand.fleet.until_all(jobs, "COMPLETED", seconds=STORE_SECONDS)
    await stand.fleet.until_told(jobs, ["ACCEPTED", "STEP_CHECKPOINT embed", "COMPLETED"])
