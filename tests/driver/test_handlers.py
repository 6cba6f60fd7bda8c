"""Steps that handlers in Python serve, by a whole worker on a real database."""

import asyncio
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import pytest

from streams.handlers.jobs import job_definition
from tests.driver.python_steps import STEPS, asking, calling
from tests.driver.world import World, until
from tests.handlers.steps import SEEN

HANDLERS = (STEPS,)
IN_PROCESS = ("Sync", "Async")
EVERYWHERE = (*IN_PROCESS, "Child", "AsyncChild")


@pytest.fixture(autouse=True)
def _seen() -> Iterator[None]:
    SEEN.reset()
    yield
    SEEN.gate.set()


async def run(world: World, method: str, does: str, **changes: int) -> UUID:
    known = {"deadline_ms", "step_deadline_ms"}
    document = calling(method, **{key: value for key, value in changes.items() if key in known})
    return await world.run(document, input=asking(does), **{k: v for k, v in changes.items() if k not in known})


@pytest.mark.parametrize("method", EVERYWHERE)
async def test_a_handler_serves_a_step_wherever_it_runs(world: World, method: str) -> None:
    job_id = await run(world, method, "reply")

    async with world.worker(handlers=HANDLERS) as worker:
        row = await world.until_status(job_id, "COMPLETED")

    assert row["result"] == {"text": "Ask reply", "ratio": 0}
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT work", "COMPLETED"]
    assert worker.count("steps_total", code="OK") == 1


@pytest.mark.parametrize("method", EVERYWHERE)
async def test_a_handler_is_told_whose_call_it_is_and_tells_how_far_it_is(
    world: World, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = await run(world, method, "tells")

    with caplog.at_level(logging.INFO):
        async with world.worker(handlers=HANDLERS):
            row = await world.until_status(job_id, "COMPLETED")

    assert row["result"]["text"] == f"{job_id} default work 1 UTC"
    assert (row["items_done"], row["items_total"]) == (2, 3)
    assert f"handlers.steps.v1.Steps.{method}" in {record.name for record in caplog.records}


async def test_a_run_waits_for_a_worker_that_serves_its_handler(world: World) -> None:
    job_id = await run(world, "Nobody", "reply")
    other = await run(world, "Sync", "reply")

    async with world.worker(handlers=HANDLERS):
        await world.until_status(other, "COMPLETED")

    assert (await world.row(job_id))["next_target"] == "local:steps.v1.Steps/Nobody"
    assert (await world.row(job_id))["fence"] == 0


UNKEEPABLE = {
    "nothing": "returned nothing (None), not a message of steps.v1.Reply",
    "a list": "returned a list, not a message of steps.v1.Reply",
    "an odd dict": "returned is no steps.v1.Reply: /txt",
    "nan in dict": "returned is no steps.v1.Reply: /ratio",
    "inf in dict": "returned is no steps.v1.Reply: /extras/score",
    "another type": "returned steps.v1.Other, not steps.v1.Reply",
    "nan in struct": "the response of work cannot be kept as JSON: /extras/score",
    "inf in struct": "the response of work cannot be kept as JSON: /extras/score",
    "nul": "the response of work cannot be kept as JSON: /text",
}
EXCEPTIONS = {
    "error": "raised ValueError: no good",
    "error with nul": "raised ValueError: no",
    "unshowable": "raised _Unshowable: an exception that cannot be shown",
    "time-out": "raised TimeoutError: mine",
}
NO_EXCEPTIONS = {
    "sys.exit": "SystemExit: 3",
    "interrupt": "KeyboardInterrupt",
    "odd": "Odd: odd",
    "cancelled": "Cancelled",
}


@pytest.mark.case("D14", "D15")
@pytest.mark.parametrize("method", EVERYWHERE)
async def test_d14_d15_what_cannot_be_kept_fails_its_run_at_once_naming_step_and_field(
    world: World, method: str
) -> None:
    jobs = {does: await run(world, method, does) for does in [*UNKEEPABLE, "nan", "a dict"]}

    async with world.worker(handlers=HANDLERS):
        for does, error in UNKEEPABLE.items():
            row = await world.until_status(jobs[does], "FAILED")
            assert row["error"].startswith("WORKFLOW: ")
            assert error in row["error"]
            assert await world.log(jobs[does]) == ["ACCEPTED", "FAILED work"]
        kept = await world.until_status(jobs["nan"], "COMPLETED")
        as_json = await world.until_status(jobs["a dict"], "COMPLETED")

    assert kept["result"]["ratio"] == "NaN", "a double has a JSON form for it"
    assert as_json["result"] == {"text": "a", "ratio": 0, "extras": {"score": 1}}


@pytest.mark.case("D14")
@pytest.mark.parametrize("method", EVERYWHERE)
async def test_d14_an_exception_fails_its_run_at_once_with_a_readable_error(world: World, method: str) -> None:
    jobs = {does: await run(world, method, does) for does in EXCEPTIONS}

    async with world.worker(handlers=HANDLERS) as worker:
        for does, error in EXCEPTIONS.items():
            row = await world.until_status(jobs[does], "FAILED")
            assert row["error"].startswith(f"WORKFLOW: the handler of steps.v1.Steps/{method} {error}")

    assert worker.count("steps_total", code="WORKFLOW") == len(EXCEPTIONS)


@pytest.mark.case("D06")
@pytest.mark.parametrize("method", EVERYWHERE)
async def test_d06_what_is_no_exception_is_a_failed_try_and_the_worker_goes_on(world: World, method: str) -> None:
    jobs = {does: await run(world, method, does) for does in NO_EXCEPTIONS}

    async with world.worker(handlers=HANDLERS) as worker:
        for does, raised in NO_EXCEPTIONS.items():
            row = await world.until_status(jobs[does], "DEAD")
            assert f"the handler of steps.v1.Steps/{method} raised {raised}" in row["error"]
            assert row["error"].endswith(", in try 3")
            assert (row["attempt"], row["fence"]) == (3, 3)
            assert await world.log(jobs[does]) == ["ACCEPTED", "DEAD work"]
        await world.until_status(await run(world, method, "reply"), "COMPLETED")
        assert not worker.driving.done()


@pytest.mark.case("D06")
@pytest.mark.parametrize("method", ["Child", "AsyncChild"])
@pytest.mark.parametrize(
    ("does", "end"), [("_exit", "ended with exit code 137"), ("overflow", "was killed by SIGSEGV")]
)
async def test_d06_a_child_that_dies_is_a_failed_try_of_its_own_run_alone(
    world: World, method: str, does: str, end: str
) -> None:
    job_id = await run(world, method, does)
    others = [await run(world, method, "reply") for _ in range(3)]

    async with world.worker(handlers=HANDLERS):
        row = await world.until_status(job_id, "DEAD")
        for other in others:
            assert (await world.until_status(other, "COMPLETED"))["fence"] == 1

    assert row["error"] == f"WORKFLOW: the process of the handler of steps.v1.Steps/{method} {end}, in try 3"
    assert (row["attempt"], row["lost_leases"]) == (3, 0)
    assert await world.log(job_id) == ["ACCEPTED", "DEAD work"]


@pytest.mark.parametrize("method", EVERYWHERE)
async def test_a_handler_gets_another_try_when_it_says_and_none_for_what_it_rejects(world: World, method: str) -> None:
    job_id = await run(world, method, "fails twice")
    later = await run(world, method, "retry")
    rejected = await run(world, method, "reject")

    async with world.worker(handlers=HANDLERS, backoff_base_seconds=100):
        await world.until_status(job_id, "COMPLETED")
        row = await world.until_error(later)
        assert (await world.until_status(rejected, "FAILED"))["error"] == "VALIDATION: not in our region"

    assert row["last_error"] == f"WORKFLOW: the handler of steps.v1.Steps/{method} asks for another try: busy"
    assert 290 < (row["run_after"] - row["updated_at"]).total_seconds() < 310


@pytest.mark.parametrize("method", IN_PROCESS)
async def test_a_handler_that_is_out_of_time_is_told_and_the_step_is_tried_again(world: World, method: str) -> None:
    job_id = await run(world, method, "waits", step_deadline_ms=50)

    async with world.worker(handlers=HANDLERS, backoff_base_seconds=300):
        row = await world.until_error(job_id)
        await until(lambda: SEEN.stopped == ["work"])

    assert row["last_error"] == f"DEADLINE: the handler of steps.v1.Steps/{method} did not end within 0.05 s"


async def test_a_child_that_is_out_of_time_is_killed(world: World) -> None:
    job_id = await run(world, "AsyncChild", "forever", step_deadline_ms=400)
    other = await run(world, "AsyncChild", "reply")

    async with world.worker(handlers=HANDLERS, backoff_base_seconds=300):
        row = await world.until_error(job_id)
        await world.until_status(other, "COMPLETED")

    assert row["last_error"] == "DEADLINE: the handler of steps.v1.Steps/AsyncChild did not end within 0.4 s"


async def test_a_thread_that_overruns_keeps_its_permit_until_it_has_returned(world: World) -> None:
    """Its handler has two permits and a time-out of 0.1 s."""
    blocked = [await run(world, "Narrow", "blocks") for _ in range(2)]

    async with world.worker(handlers=HANDLERS, backoff_base_seconds=300) as worker:
        for job_id in blocked:
            await world.until_error(job_id)
        waiting = await run(world, "Narrow", "reply")
        other = await run(world, "Sync", "reply")
        await world.until_status(other, "COMPLETED")
        assert worker.count("handlers_left_behind") == 2
        assert "2 calls overran and are still at work" in worker.handlers.calls.health().detail
        assert (await world.row(waiting))["status"] == "QUEUED"
        SEEN.gate.set()
        await world.until_status(waiting, "COMPLETED")
        assert worker.count("handlers_left_behind") == 0

    assert SEEN.most == 2


@pytest.mark.parametrize("method", IN_PROCESS)
async def test_a_cancelled_run_stops_its_handler(world: World, method: str) -> None:
    job_id = await run(world, method, "waits")

    async with world.worker(handlers=HANDLERS) as worker:
        await until(SEEN.arrived.is_set)
        await world.control().cancel(tenant_id="default", job_id=job_id, reason="enough")
        await until(lambda: SEEN.stopped == ["work"])
        await world.until_idle(worker)

    assert (await world.row(job_id))["status"] == "CANCELLED"
    assert await world.log(job_id) == ["ACCEPTED", "CANCELLED"]


@pytest.mark.case("D04")
async def test_d04_an_async_handler_that_blocks_its_loop_is_named_and_the_worker_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    blocking = await run(world, "Async", "sleeps")
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.01)

    async with world.worker(handlers=HANDLERS) as worker:
        ticking = asyncio.create_task(tick())
        await until(lambda: bool(SEEN.calls))
        other = await run(world, "Sync", "reply")
        await world.until_status(other, "COMPLETED")
        assert (await world.row(blocking))["status"] == "RUNNING"
        await until(lambda: "held up" in caplog.text)
        assert worker.count("handler_loop_lag_seconds") >= 1
        assert "held up for" in worker.handlers.calls.health().detail
        await world.until_status(blocking, "COMPLETED")
        ticking.cancel()

    assert f"by the handler of steps.v1.Steps/Async for run {blocking}, at " in caplog.text
    assert "steps.py:" in caplog.text
    assert max(after - before for before, after in itertools.pairwise(ticks)) < 1.0


async def test_threads_of_handlers_are_not_those_of_the_loops_default_pool(world: World) -> None:
    """A hundred blocked handlers would else stop name look-ups and files."""
    jobs = [await run(world, "Sync", "blocks") for _ in range(4)]

    async with world.worker(handlers=HANDLERS):
        await until(lambda: len(SEEN.calls) == 4)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: threading.current_thread().name), 5)
        assert len([thread for thread in threading.enumerate() if thread.name == "handler"]) >= 4
        SEEN.gate.set()
        for job_id in jobs:
            await world.until_status(job_id, "COMPLETED")


@pytest.fixture(params=["reindex", "reindex-apart"])
async def reindex(world: World, request: pytest.FixtureRequest) -> Callable[[str], Awaitable[UUID]]:
    """Ask for a run of a job type, with an input of this JSON text."""

    async def ask(given: str) -> UUID:
        return await world.run(job_definition(request.param), input=given)

    return ask


async def test_a_job_type_takes_json_and_returns_json(world: World, reindex: Callable[[str], Awaitable[UUID]]) -> None:
    job_id = await reindex('{"deep": [1, 2.5, {"a": null}], "big": 9007199254740991, "text": "ä"}')
    nothing = await reindex('{"do": "nothing"}')
    empty = await reindex("{}")

    async with world.worker(handlers=HANDLERS):
        row = await world.until_status(job_id, "COMPLETED")
        assert (await world.until_status(nothing, "COMPLETED"))["result"] == {"value": None}
        assert (await world.until_status(empty, "COMPLETED"))["result"]["value"]["given"] == {}

    given = {"deep": [1, 2.5, {"a": None}], "big": 9007199254740991, "text": "ä"}
    assert row["result"] == {"value": {"given": given, "pages": 3}}
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT job", "COMPLETED"]


async def test_what_a_job_returns_that_is_no_json_fails_its_run_naming_the_field(
    world: World, reindex: Callable[[str], Awaitable[UUID]]
) -> None:
    errors = {
        '{"do": "nan"}': "WORKFLOW: what the job returned is not JSON: /value/ratio",
        '{"do": "a set"}': "WORKFLOW: what the job returned is not JSON: /value",
    }
    jobs = {given: await reindex(given) for given in errors}

    async with world.worker(handlers=HANDLERS):
        for given, error in errors.items():
            assert error in (await world.until_status(jobs[given], "FAILED"))["error"]


@pytest.mark.case("D13")
async def test_d13_a_slow_handler_starves_no_other_and_faults_leak_none_of_its_permits(world: World) -> None:
    slow = [await run(world, "Slow", "waits") for _ in range(40)]
    fast = [await run(world, "Sync", "reply") for _ in range(40)]

    async with world.worker(handlers=HANDLERS, in_flight=8, lease_seconds=5) as worker:
        async with asyncio.timeout(5):
            for job_id in fast:
                await world.until_status(job_id, "COMPLETED")
        assert (SEEN.now, SEEN.most) == (2, 2)
        for job_id in slow[:12]:
            await world.control().cancel(tenant_id="default", job_id=job_id, reason="enough")
        await until(lambda: len(SEEN.stopped) >= 2)
        SEEN.gate.set()
        for job_id in slow[12:]:
            row = await world.until_status(job_id, "COMPLETED")
            assert (row["fence"], row["attempt"], row["lost_leases"]) == (1, 0, 0)
        SEEN.gate.clear()
        faults = [await run(world, "Slow", does, step_deadline_ms=50) for does in ("error", "waits", "sys.exit") * 6]
        for job_id in faults:
            await world.until_settled(job_id)
        held_up = [await run(world, "Slow", "waits") for _ in range(6)]
        await until(lambda: SEEN.now == 2)
        await worker.driver.drain(0)

    async with world.worker("worker-b:1", handlers=HANDLERS, in_flight=8):
        await until(lambda: SEEN.now == 2)
        SEEN.gate.set()
        for job_id in held_up:
            assert (await world.until_status(job_id, "COMPLETED"))["attempt"] == 0
    assert SEEN.most == 2
