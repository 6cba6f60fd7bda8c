"""Waits, deadlines, reminders and what steps send, by whole workers on a real database."""

from datetime import timedelta
from typing import Any

import grpc
import pytest

from schemas.ids import key_of
from store.answers import AnswerOutcome
from tests.driver.stories import EMBED, TOKENIZE, VECTOR, embed_only, embed_reviewed_text, embed_text
from tests.driver.world import World, until
from tests.fixtures.grpc_server import Answer
from tests.store.samples import select, select_one
from tests.workflow.notices import ask, notices, tell, wait

UNAVAILABLE = Answer(status=grpc.StatusCode.UNAVAILABLE, details="try later")
ABORTED = Answer(status=grpc.StatusCode.ABORTED, details="again")

ORDER = '{"number": "o-7", "readyAt": "2020-01-01T00:00:00Z"}'


async def test_a_wait_holds_nothing_and_its_worker_goes_on_when_it_is_over(world: World) -> None:
    job_id = await world.run(notices(steps=[wait(wait={"forMs": 500}), tell()]), input=ORDER)
    async with world.worker() as worker:
        parked = await world.until_status(job_id, "WAITING")
        assert (parked["outstanding_step"], parked["due_move"]) == ("pause", "wake")
        await world.until_idle(worker)
        row = await world.until_status(job_id, "COMPLETED")
        assert worker.count("due_runs_total", move="wake") == 1
    query = "select occurred_at from event where job_id = %(id)s and type = 2 and step = 'pause'"
    woken_at = await select_one(world.sql, query, {"id": job_id})
    assert timedelta() <= woken_at - parked["due_at"] < timedelta(seconds=5)
    assert [entry["step"] for entry in row["checkpoints"]] == ["pause", "tell"]
    assert await world.log(job_id) == [
        "ACCEPTED",
        "WAITING pause",
        "STEP_CHECKPOINT pause",
        "STEP_CHECKPOINT tell",
        "COMPLETED",
    ]


async def test_a_wait_whose_time_has_come_parks_nothing(world: World) -> None:
    job_id = await world.run(notices(steps=[wait(wait={"until": "input.ready_at"})]), input=ORDER)
    async with world.worker():
        await world.until_status(job_id, "COMPLETED")
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT pause", "COMPLETED"]


async def test_a_wait_outlives_its_worker(world: World) -> None:
    job_id = await world.run(notices(steps=[wait(wait={"forMs": 300})]), input=ORDER)
    async with world.worker():
        await world.until_status(job_id, "WAITING")
    async with world.worker("worker-b:1"):
        await world.until_status(job_id, "COMPLETED")


async def test_what_steps_send_says_for_whom_it_is_and_an_answer_goes_on(world: World) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    document = notices(steps=[tell(publish={"key": "input.number"}), ask(), tell("again", rules=["text = ask.note"])])
    job_id = await world.run(document, input=ORDER, trace_context=trace)
    async with world.worker():
        row = await world.until_status(job_id, "WAITING")
        assert (row["outstanding_step"], row["composed_request"]) == ("ask", {"number": "o-7"})
        answer = {"approved": True, "note": "fine"}
        told = await world.answers().answer(tenant_id="default", job_id=job_id, step="ask", response=answer)
        assert told.outcome is AnswerOutcome.APPLIED
        await world.until_status(job_id, "COMPLETED")

    first, question, again = await select(world.sql, "select * from record order by seq")
    assert [(r["topic"], r["type"], r["step_index"]) for r in (first, question, again)] == [
        ("notices", "notice.v1.Notice", 0),
        ("questions", "notice.v1.Question", 1),
        ("notices", "notice.v1.Notice", 2),
    ]
    assert [bytes(r["key"]) for r in (first, question, again)] == [b"o-7", key_of(job_id), key_of(job_id)]
    assert [bytes(r["value"]) for r in (first, question, again)] == [b"\x12\x03o-7", b"\n\x03o-7", b"\n\x04fine"]
    headers = dict(question["headers"])
    assert (headers["job-id"], headers["step-name"], headers["traceparent"]) == (str(job_id), "ask", trace)
    assert len({dict(r["headers"])["ce_id"] for r in (first, question, again)}) == 3
    queued = await select(world.sql, "select kind, seq from relay_queue order by id")
    kinds = [(row["kind"], row["seq"]) for row in queued]
    assert kinds == [
        ("event", 1),
        ("record", 2),
        ("event", 2),
        ("record", 3),
        ("event", 3),
        ("event", 4),
        ("record", 5),
        ("event", 5),
        ("event", 6),
    ]


@pytest.mark.parametrize(
    ("retry", "answers", "status", "calls"),
    [
        ({"attempts": 2}, (UNAVAILABLE,), "DEAD", 2),
        ({"attempts": 5}, (UNAVAILABLE,) * 4 + (VECTOR,), "COMPLETED", 5),
        ({"codes": ["ABORTED"]}, (ABORTED, VECTOR), "COMPLETED", 2),
        ({"codes": ["ABORTED"]}, (UNAVAILABLE,), "FAILED", 1),
    ],
)
async def test_a_step_says_what_is_tried_again_and_how_often(
    world: World, retry: dict[str, Any], answers: tuple[Answer, ...], status: str, calls: int
) -> None:
    world.server.script(EMBED, *answers)
    document = embed_only()
    document["steps"][0]["retry"] = {"delaysMs": [1], **retry}
    job_id = await world.run(document, max_attempts=3)
    async with world.worker(backoff_base_seconds=300):
        await world.until_status(job_id, status)
    assert len(world.server.calls(EMBED)) == calls


async def test_delays_of_a_step_stand_in_for_the_back_off(world: World) -> None:
    world.server.script(EMBED, UNAVAILABLE)
    document = embed_only()
    document["steps"][0]["retry"] = {"attempts": 9, "delaysMs": [0, 40_000]}
    job_id = await world.run(document)
    async with world.worker(backoff_base_seconds=300):
        row = await world.until_row(job_id, lambda row: row["attempt"] == 2 and row["status"] == "QUEUED")
    assert row["run_after"] - row["last_error_at"] == timedelta(seconds=40)


def is_too_late(row: dict[str, Any]) -> bool:
    by = row["deadline_at"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return bool(row["error"] == f"DEADLINE: the run was not done by {by}Z (runDeadlineMs)")


@pytest.mark.case("D22")
async def test_d22_the_deadline_of_a_run_holds_where_a_service_never_answers(world: World) -> None:
    job_id = await world.run({**embed_text(), "runDeadlineMs": 1_000})
    async with world.worker():
        with world.server.holding(EMBED) as hold:
            await hold.arrived()
            row = await world.until_status(job_id, "FAILED")
    assert is_too_late(row)
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "FAILED embed"]
    [call] = world.server.calls(EMBED)
    assert call.seconds_left is not None
    assert call.seconds_left <= 1.5
    assert await call.was_cut()


async def test_the_deadline_of_a_run_ends_its_tries(world: World) -> None:
    world.server.script(TOKENIZE, UNAVAILABLE)
    document = {**embed_text(), "runDeadlineMs": 700}
    document["steps"] = [{**step, "retry": {"attempts": 1_000, "delaysMs": [50]}} for step in document["steps"]]
    job_id = await world.run(document)
    async with world.worker():
        row = await world.until_status(job_id, "FAILED")
    assert is_too_late(row)
    assert (await world.log(job_id))[-1] == "FAILED tokenize"


async def test_the_deadline_of_a_run_ends_it_where_nobody_serves_it(world: World) -> None:
    job_id = await world.run({**embed_text(), "runDeadlineMs": 200}, target="nowhere")
    async with world.worker():
        row = await world.until_status(job_id, "FAILED")
    assert is_too_late(row)
    assert await world.log(job_id) == ["ACCEPTED", "FAILED"]


async def test_a_run_that_is_done_in_time_has_nothing_to_fear(world: World) -> None:
    job_id = await world.run({**embed_text(), "runDeadlineMs": 60_000})
    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")
    assert row["deadline_at"] - row["created_at"] == timedelta(minutes=1)


async def test_a_step_that_is_not_answered_is_told_again_and_fails_in_the_end(world: World) -> None:
    document = embed_reviewed_text()
    document["steps"][1] |= {"remindAfterMs": 100, "answerWithinMs": 400}
    job_id = await world.run(document)
    async with world.worker() as worker:
        row = await world.until_status(job_id, "FAILED")
        await until(lambda: worker.count("due_runs_total", move="overdue") == 1)
    assert row["error"].startswith("DEADLINE: review was not answered by ")
    assert await world.log(job_id) == [
        "ACCEPTED",
        "STEP_CHECKPOINT tokenize",
        "WAITING review",
        "WAITING review",
        "FAILED review",
    ]
    assert len(world.server.calls(TOKENIZE)) == 1


async def test_any_number_of_workers_wake_each_run_once(world: World) -> None:
    jobs = [await world.run(notices(steps=[wait(wait={"forMs": 300})]), input=ORDER) for _ in range(10)]
    async with world.worker("a:1") as first, world.worker("b:1") as second:
        for job_id in jobs:
            await world.until_status(job_id, "COMPLETED")
        assert sum(worker.count("due_runs_total", move="wake") for worker in (first, second)) == 10
    for job_id in jobs:
        assert await world.log(job_id) == ["ACCEPTED", "WAITING pause", "STEP_CHECKPOINT pause", "COMPLETED"]
