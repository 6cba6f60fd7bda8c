"""Runs from QUEUED to where they rest, by a whole worker on a real database and real services."""

import asyncio
import logging
from typing import Any

import grpc
import pytest

from streams.calls.grpc_calls import CallContext
from streams.workflow.runner import CallRequest
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, embed_only, embed_reviewed_text, embed_text
from tests.driver.world import World
from tests.fixtures.grpc_server import Answer

UNAVAILABLE = Answer(status=grpc.StatusCode.UNAVAILABLE, details="try later")


@pytest.mark.spec(58)
async def test_a_run_is_driven_to_its_result_and_every_step_is_told(world: World) -> None:
    job_id = await world.run()

    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")

    assert row["result"] == {"text": "a", "vector": [1.0]}
    assert row["verdict"] == "2 steps, output text.v1.Result"
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED"]
    assert [call.metadata["attempt"] for call in world.server.calls()] == ["1", "1"]


async def test_a_submitted_run_is_started_without_waiting_for_the_poll(world: World) -> None:
    async with world.worker() as worker:
        job_id = await world.run()
        await world.until_status(job_id, "COMPLETED")
        assert worker.count("claims_total") == 1


@pytest.mark.spec(59)
async def test_a_retryable_failure_is_put_off_with_its_reason_in_the_row(world: World) -> None:
    world.server.script(TOKENIZE, UNAVAILABLE, TOKENS)
    job_id = await world.run()

    async with world.worker(backoff_base_seconds=300):
        await world.until_status(job_id, "RUNNING")
        row = await world.until_status(job_id, "QUEUED")

    assert (row["attempt"], row["attempt_step"]) == (1, "tokenize")
    assert (row["lease_owner"], row["next_target"]) == (None, "tokenizer")
    assert row["last_error"] == "GRPC: UNAVAILABLE: try later"
    assert 300 <= (row["run_after"] - row["updated_at"]).total_seconds() <= 330
    assert await world.log(job_id) == ["ACCEPTED"]


@pytest.mark.spec(61)
async def test_a_step_that_failed_is_tried_again_and_the_finished_one_is_not(world: World) -> None:
    world.server.script(EMBED, UNAVAILABLE, UNAVAILABLE, VECTOR)
    job_id = await world.run()

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    assert len(world.server.calls(TOKENIZE)) == 1
    assert [call.metadata["attempt"] for call in world.server.calls(EMBED)] == ["1", "2", "3"]


@pytest.mark.spec(60)
async def test_the_last_try_makes_a_run_dead_with_the_error_verbatim(world: World) -> None:
    world.server.script(TOKENIZE, UNAVAILABLE)
    job_id = await world.run(max_attempts=2)

    async with world.worker():
        row = await world.until_status(job_id, "DEAD")

    assert row["error"] == "GRPC: UNAVAILABLE: try later"
    assert row["attempt"] == 2
    assert await world.log(job_id) == ["ACCEPTED", "DEAD tokenize"]
    assert len(world.server.calls(TOKENIZE)) == 2


async def test_tries_of_one_step_do_not_count_for_the_next(world: World) -> None:
    world.server.script(TOKENIZE, UNAVAILABLE, TOKENS)
    world.server.script(EMBED, UNAVAILABLE, VECTOR)
    job_id = await world.run(max_attempts=2)

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")


@pytest.mark.spec(64)
async def test_a_failure_that_another_try_cannot_help_fails_the_run_at_once(world: World) -> None:
    world.server.script(TOKENIZE, Answer(status=grpc.StatusCode.INVALID_ARGUMENT, details="no such language"))
    job_id = await world.run()

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    assert row["error"] == "GRPC: INVALID_ARGUMENT: no such language"
    assert await world.log(job_id) == ["ACCEPTED", "FAILED tokenize"]
    assert len(world.server.calls()) == 1


async def test_an_error_text_that_no_database_takes_is_made_readable(world: World) -> None:
    world.server.script(TOKENIZE, Answer(status=grpc.StatusCode.INTERNAL, details="a\0b"))
    job_id = await world.run()

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    assert row["error"] == "GRPC: INTERNAL: a\N{REPLACEMENT CHARACTER}b"


async def test_a_run_rests_at_a_step_that_somebody_answers_and_goes_on_from_there(world: World) -> None:
    job_id = await world.run(embed_reviewed_text())

    async with world.worker() as worker:
        row = await world.until_status(job_id, "WAITING")
        assert (row["outstanding_step"], row["composed_request"]) == ("review", {"text": "a"})
        assert row["resume_target"] == "embedder"
        assert worker.count("held_runs") == 0
        await world.answers().answer(tenant_id="default", job_id=job_id, step="review", response={"approved": True})
        await world.until_status(job_id, "COMPLETED")

    assert len(world.server.calls(TOKENIZE)) == 1
    assert (await world.log(job_id))[2:] == [
        "WAITING review",
        "STEP_CHECKPOINT review",
        "STEP_CHECKPOINT embed",
        "COMPLETED",
    ]


@pytest.mark.spec(75)
async def test_a_run_whose_steps_are_all_done_completes_without_a_call(world: World) -> None:
    job_id = await world.run()
    done = [("tokenize", {"tokens": ["b"]}), ("embed", {"vector": [2.0]})]
    await world.finish_steps(job_id, done)

    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")

    assert row["result"] == {"text": "a", "vector": [2.0]}
    assert world.server.calls() == []


async def test_a_resumed_run_goes_on_at_its_first_missing_checkpoint(world: World) -> None:
    job_id = await world.run()
    await world.finish_steps(job_id, [("tokenize", {"tokens": ["b"]})])

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    assert [call.method for call in world.server.calls()] == [EMBED]
    assert world.server.calls()[0].request == b"\n\x01b"


@pytest.mark.spec(68)
async def test_an_exception_nobody_expected_fails_the_run_in_that_very_try(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def __call__(self, request: CallRequest, context: CallContext) -> bytes:
            raise ZeroDivisionError("a bug")

    job_id = await world.run()
    with caplog.at_level(logging.WARNING):
        async with world.worker(call=lambda calls: Broken()):
            row = await world.until_status(job_id, "FAILED")

    assert row["error"] == "WORKFLOW: unexpected ZeroDivisionError: a bug"
    assert row["lost_leases"] == 0
    assert await world.log(job_id) == ["ACCEPTED", "FAILED tokenize"]
    assert any("raise ZeroDivisionError" in (record.exc_text or "") for record in caplog.records)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"definition_hash": b"\7" * 32}, f"WORKFLOW: the store has no definition {'07' * 32}"),
        ({"input": '{"txt": "a"}'}, "MAPPING: the stored input cannot be read: "),
    ],
)
async def test_a_run_that_can_no_longer_be_read_fails_and_says_why(
    world: World, changes: dict[str, Any], error: str
) -> None:
    job_id = await world.run(**changes)

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    assert row["error"].startswith(error)
    assert await world.log(job_id) == ["ACCEPTED", "FAILED"]


async def test_a_checkpoint_that_disagrees_with_the_definition_fails_the_run(world: World) -> None:
    job_id = await world.run()
    await world.finish_steps(job_id, [("embed", {"vector": [1.0]})])

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    assert row["error"].startswith("WORKFLOW: ")
    assert "embed" in row["error"]
    assert "tokenize" in row["error"]


async def test_a_response_that_postgres_refuses_fails_its_run_alone(world: World) -> None:
    world.server.script(TOKENIZE, Answer(b"\n\x03a\x00b"), TOKENS)
    poisoned = await world.run()
    async with world.worker():
        row = await world.until_status(poisoned, "FAILED")
        healthy = await world.run()
        await world.until_status(healthy, "COMPLETED")

    assert row["error"].startswith("WORKFLOW: ")
    assert await world.log(poisoned) == ["ACCEPTED", "FAILED tokenize"]


@pytest.mark.spec(47)
@pytest.mark.parametrize(("step_ms", "most_seconds"), [(250, 0.25), (600_000, 10)])
async def test_a_step_shortens_the_time_of_its_call_and_never_extends_it(
    world: World, step_ms: int, most_seconds: float
) -> None:
    job_id = await world.run(embed_only(step_deadline_ms=step_ms, deadline_ms=10_000))

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    [call] = world.server.calls(EMBED)
    assert call.seconds_left is not None
    assert 0 < call.seconds_left <= most_seconds + 0.05  # gRPC rounds what it sends up, and its clocks are coarse


@pytest.mark.spec(48)
async def test_a_budget_spent_in_step_one_refuses_step_two_and_leaves_no_call_open(world: World) -> None:
    slow = Answer(TOKENS.payload, delay_seconds=0.3)
    world.server.script(TOKENIZE, slow)

    class Late:
        """Connecting takes longer than the budget: step 1 is called all the same."""

        def __init__(self, calls: Any) -> None:
            self._calls = calls

        async def __call__(self, request: CallRequest, context: CallContext) -> bytes:
            response: bytes = await self._calls(request, context)
            await asyncio.sleep(0.5)
            return response

    job_id = await world.run(embed_text(deadline_ms=400), max_attempts=1)
    async with world.worker(call=Late):
        row = await world.until_status(job_id, "DEAD")

    assert row["error"].startswith("DEADLINE: ")
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "DEAD embed"]
    assert world.server.calls(EMBED) == []
    assert all(call.answered for call in world.server.calls())


@pytest.mark.spec(51)
async def test_a_run_that_finds_every_channel_in_use_is_tried_again(world: World) -> None:
    world.targets["embedder"] = {"address": world.server.target.replace("127.0.0.1", "localhost")}
    first = await world.run()
    with world.server.holding(TOKENIZE) as held:
        async with world.worker(most_channels=1) as worker:
            await held.arrived()
            second = await world.run(embed_only())
            row = await world.until_error(second)
            assert row["last_error"].startswith("GRPC: RESOURCE_EXHAUSTED: all 1 channels")
            held.release()
            await world.until_status(first, "COMPLETED")
            await world.until_status(second, "COMPLETED")
            assert worker.count("steps_total", code="RESOURCE_EXHAUSTED") >= 1


async def test_metrics_count_calls_and_moves(world: World) -> None:
    world.server.script(TOKENIZE, UNAVAILABLE, TOKENS)
    job_id = await world.run()

    async with world.worker() as worker:
        await world.until_status(job_id, "COMPLETED")
        await world.until_idle(worker)

    assert worker.count("steps_total", code="OK") == 2
    assert worker.count("steps_total", code="UNAVAILABLE") == 1
    assert worker.count("moves_total", move="retry", result="applied") == 1
    assert worker.count("moves_total", move="complete", result="applied") == 1
    assert worker.count("step_seconds_count") == 3
