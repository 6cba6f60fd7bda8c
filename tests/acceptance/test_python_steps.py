"""Real workers whose steps are handlers in Python: whatever those do, the worker and its other runs go on."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka.admin import AdminClient

from schemas.events import EventType
from tests.acceptance.bench import Bench
from tests.acceptance.fleet import Fleet
from tests.acceptance.forked import Forked
from tests.acceptance.processes import health_of
from tests.acceptance.producer import Request
from tests.acceptance.waiting import until
from tests.driver.python_steps import calling
from tests.driver.stories import EMBED, embed_only
from tests.fixtures.grpc_server import Hold
from tests.store.samples import select, select_one

HANDLERS = "tests.acceptance.python_handlers"
BLOCKED_SECONDS = 7


def calls(folder: Path) -> Counter[tuple[str, str]]:
    """How often each run's call has begun, ended or been cancelled."""
    file = folder / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter((line.split()[0], line.split()[1]) for line in lines)


def text(folder: Path, does: str) -> str:
    return json.dumps({"does": does, "folder": str(folder)})


async def runs(bench: Bench, count: int, method: str, asked: str, **changes: int) -> list[UUID]:
    """Queued runs of one call of a handler."""
    document = calling(method, deadline_ms=60_000)
    given = json.dumps({"text": asked})
    return await bench.runs(count, document, target=f"local:steps.v1.Steps/{method}", input=given, **changes)


@pytest.mark.case("D04")
async def test_d04_steps_that_block_cost_no_rebalance_and_run_once_while_everything_goes_on(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Steps of at least 7 s under a lease and a session of 3 s stand for 40 s under 15 s and 10 s."""
    await fleet.store(calling("Sync", deadline_ms=60_000), "blocking")
    with closing(fleet.fork("worker", handlers=HANDLERS, lease_seconds=3, roles="intake,runs,relay,web")) as worker:
        asked = [text(tmp_path, does) for does in ("sleep", "spin") * 4]
        blocking = [Request(uuid4(), "blocking", {"text": one}) for one in asked]
        await fleet.send(blocking)
        await until(lambda: calls(tmp_path).total() == len(blocking), lambda: worker.log)
        began, members = time.monotonic(), group_members(fleet)

        ordinary = await fleet.produce(50)
        await fleet.until_stored(ordinary, seconds=10)
        took = [await seconds_of_get_job(worker, job_id) for job_id in ordinary[:4]]
        await asyncio.sleep(began + BLOCKED_SECONDS - time.monotonic())
        assert calls(tmp_path).total() == len(blocking), "all of them still block"
        (tmp_path / "go").touch()
        await fleet.until_all([*ordinary, *(request.job_id for request in blocking)], "COMPLETED")
        assert group_members(fleet) == members

    assert max(took) < 1, took
    once = {(what, str(request.job_id)): 1 for request in blocking for what in ("begun", "ended")}
    assert calls(tmp_path) == Counter(once)
    assert {(await fleet.row(request.job_id))["fence"] for request in blocking} == {1}


@pytest.mark.case("D06")
async def test_d06_steps_that_end_their_worker_are_dead_after_three_claims_and_the_others_go_on(
    bench: Bench, tmp_path: Path
) -> None:
    await bench.sql.execute("create table public.written (job_id uuid)")
    killers = [
        (await runs(bench, 1, "Sync", text(tmp_path, "exit")))[0],
        (await runs(bench, 1, "Sync", text(tmp_path, "overflow")))[0],
    ]
    [bystander] = await runs(bench, 1, "Write", "write")
    ended = set()
    while await worst(bench, killers) != "DEAD":
        await bench.let_leases_run_out()
        with closing(bench.worker(handlers=HANDLERS, roles="runs")) as worker:
            await until(partial(ended_or_dead, bench, worker, killers), lambda: worker.log)
            ended.add(worker.process.exitcode)
            if worker.process.is_alive():
                later = await runs(bench, 5, "Write", "write")
                for job_id in [bystander, *later]:
                    await bench.until_status(job_id, worker, "COMPLETED")

    assert ended >= {137, -signal.SIGSEGV}
    rows = await select(bench.sql, "select * from workflow_run where job_id = any (%(ids)s)", {"ids": killers})
    assert [(row["status"], row["lost_leases"], row["fence"], row["attempt"]) for row in rows] == [
        ("DEAD", 3, 3, 0)
    ] * 2
    assert all(row["error"].startswith("lease expired 3 times in a row, last held by worker/") for row in rows)
    told = await select(bench.sql, "select type from event where job_id = any (%(ids)s)", {"ids": killers})
    assert sorted(row["type"] for row in told) == [EventType.ACCEPTED] * 2 + [EventType.DEAD] * 2
    begun = calls(tmp_path)
    assert set(begun) == {("begun", str(job_id)) for job_id in killers}
    # Twice they are claimed together, and one may end the worker before the other has begun; then each alone.
    assert max(begun.values()) <= 3
    assert sum(begun.values()) >= 4


@pytest.mark.case("D08")
async def test_d08_with_a_grace_that_is_longer_than_the_steps_every_handler_finishes(
    bench: Bench, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"handlers": HANDLERS, "roles": "runs", "drain_grace_seconds": 60}
    with closing(bench.worker(**settings)) as worker, bench.server.holding(EMBED) as held:
        jobs = await two_of_each(bench, tmp_path)
        await all_at_work(bench, tmp_path, held, worker)
        worker.terminate()
        await until(lambda: "stopping" in worker.log, lambda: worker.log)
        later = await runs(bench, 1, "Write", "write")
        (tmp_path / "go").touch()
        held.release()
        assert await worker.wait(10) == 0

    statuses = {await bench.status(job_id) for job_id in jobs}
    assert (statuses, await bench.status(later[0])) == ({"COMPLETED"}, "QUEUED")


@pytest.mark.case("D08")
async def test_d08_handlers_that_outlast_their_grace_go_back_at_once_and_finish_on_the_next_worker(
    bench: Bench, tmp_path: Path
) -> None:
    """A grace of 1 s stands for 5 s, and steps that last until they are told to go on for 20 s."""
    with bench.server.holding(EMBED) as held:
        with closing(bench.worker(handlers=HANDLERS, roles="runs", drain_grace_seconds=1)) as worker:
            jobs = await two_of_each(bench, tmp_path)
            await all_at_work(bench, tmp_path, held, worker)
            worker.terminate()
            assert await worker.wait(8) == 0
        rows = await select(bench.sql, "select * from workflow_run where job_id = any (%(ids)s)", {"ids": jobs})
        back = [(row["status"], row["attempt"], row["lost_leases"], row["last_error"]) for row in rows]
        assert back == [("QUEUED", 0, 0, None)] * len(jobs)
        assert sum(count for (what, _), count in calls(tmp_path).items() if what == "cancelled") == 2
        (tmp_path / "go").touch()
        held.release()
    with closing(bench.worker(handlers=HANDLERS, roles="runs")) as heir:
        for job_id in jobs:
            await bench.until_status(job_id, heir, "COMPLETED")


@pytest.mark.parametrize("side", ["before_commit", "after_commit"])
async def test_a_worker_killed_at_the_commit_of_a_transactional_handler_has_its_writes_made_once(
    bench: Bench, side: str
) -> None:
    await bench.sql.execute("create table public.written (job_id uuid)")
    [job_id] = await runs(bench, 1, "Write", "write")
    with closing(bench.worker(handlers=HANDLERS, roles="runs", stop_at=f"transactional.{side}")) as victim:
        await victim.was_killed()
    written = await select_one(bench.sql, "select count(*) from public.written")
    assert written == (0 if side == "before_commit" else 1)

    await bench.let_leases_run_out()
    with closing(bench.worker(handlers=HANDLERS, roles="runs")) as heir:
        await bench.until_status(job_id, heir, "COMPLETED")
    assert await select_one(bench.sql, "select count(*) from public.written") == 1
    assert await bench.ledger(job_id) == ["ACCEPTED", "STEP_CHECKPOINT work", "COMPLETED"]


async def test_a_job_type_is_submitted_by_name_also_where_nobody_serves_it(bench: Bench) -> None:
    with closing(bench.worker(handlers=HANDLERS, worker_id="serving")) as serving:
        await serving.ready()
    with closing(bench.worker(worker_id="other")) as other:
        await other.ready()
        asked = {"workflowName": "reindex", "input": {"pages": 9007199254740991}}
        job_id = UUID((await other.call("submit-workflow", asked))["jobId"])
        shown = (await other.call("get-job", {"jobId": str(job_id)}))["job"]
        assert (shown["status"], shown["nextTarget"]) == ("QUEUED", "job:reindex")
        with closing(bench.worker(handlers=HANDLERS, worker_id="serving again")) as serving:
            await bench.until_status(job_id, other, "COMPLETED")
            status, health = await health_of(serving.health_url, "/healthz")
        done = (await other.call("get-job", {"jobId": str(job_id)}))["job"]
        workflows = (await other.call("list-workflows", {}))["workflows"]

    assert done["result"] == {"value": {"pages": 9007199254740991}}
    assert (done["itemsDone"], done["itemsTotal"]) == (3, 3)
    assert [(one["name"], one["version"]) for one in workflows] == [("reindex", 1)], "every worker stores the same"
    [served] = [service for service in health["services"] if service["name"] == "handlers"]
    assert (status, served["ready"]) == (200, True)
    assert "job:reindex, local:steps.v1.Steps/Async" in served["detail"]


async def two_of_each(bench: Bench, folder: Path) -> list[UUID]:
    """Runs with one try: two in a gRPC call, two in a thread, two in the loop of async handlers."""
    asked = text(folder, "wait")
    jobs = [*await runs(bench, 2, "Sync", asked, max_attempts=1), *await runs(bench, 2, "Async", asked, max_attempts=1)]
    return [*jobs, *await bench.runs(2, embed_only(deadline_ms=60_000), target="embedder", max_attempts=1)]


async def all_at_work(bench: Bench, folder: Path, held: Hold, worker: Forked) -> None:
    for _ in range(2):
        await held.arrived()
    await until(lambda: calls(folder).total() == 4, lambda: worker.log)


async def worst(bench: Bench, jobs: Sequence[UUID]) -> str:
    """DEAD once all of *jobs* are."""
    statuses = {await bench.status(job_id) for job_id in jobs}
    return "DEAD" if statuses == {"DEAD"} else "alive"


async def ended_or_dead(bench: Bench, worker: Forked, jobs: Sequence[UUID]) -> bool:
    return not worker.process.is_alive() or await worst(bench, jobs) == "DEAD"


async def seconds_of_get_job(worker: Forked, job_id: UUID) -> float:
    began = time.monotonic()
    assert (await worker.call("get-job", {"jobId": str(job_id)}))["ok"]
    return time.monotonic() - began


def group_members(fleet: Fleet) -> list[str]:
    """Who is in the group, under the names that the broker gave at their joining: another one after a lost session."""
    group = f"{fleet.name}.workers"
    admin = AdminClient({"bootstrap.servers": fleet.kafka.bootstrap, "log_level": 2})
    described = admin.describe_consumer_groups([group])
    return [member.member_id for member in described[group].result(30).members]
