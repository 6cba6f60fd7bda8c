"""Runs whose steps have gates and CEL rules, by a whole worker on a real database and a real child process."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from streams.evaluator.child_evaluator import ChildEvaluator
from tests.driver.stories import EMBED, TOKENIZE, embed_reviewed_text, embed_text
from tests.driver.world import World


@pytest.fixture
async def evaluator() -> AsyncIterator[ChildEvaluator]:
    evaluator = ChildEvaluator()
    yield evaluator
    await evaluator.close()


def with_keys(document: dict[str, Any], step: str, **keys: object) -> dict[str, Any]:
    """The document with more keys in one of its steps."""
    steps = [{**given, **keys} if given["name"] == step else given for given in document["steps"]]
    return {**document, "steps": steps}


async def test_a_skipped_step_has_a_checkpoint_without_a_response_and_is_told(
    world: World, evaluator: ChildEvaluator
) -> None:
    document = with_keys(embed_reviewed_text(), "review", when="size(input.text) > 100")
    job_id = await world.run(document)

    async with world.worker(evaluator=evaluator):
        row = await world.until_status(job_id, "COMPLETED")

    assert row["result"] == {"text": "a", "vector": [1.0]}
    assert row["verdict"] == "3 steps, output text.v1.Result"
    assert [(kept["step"], kept["skipped"], kept["response"]) for kept in row["checkpoints"]] == [
        ("tokenize", False, {"tokens": ["a"]}),
        ("review", True, None),
        ("embed", False, {"vector": [1.0]}),
    ]
    assert "STEP_CHECKPOINT review" in await world.log(job_id)
    assert not any(told.startswith("WAITING") for told in await world.log(job_id))


async def test_a_skipped_step_stays_skipped_for_the_worker_that_goes_on(
    world: World, evaluator: ChildEvaluator
) -> None:
    document = with_keys(embed_reviewed_text(), "tokenize", when="input.text != 'a'")
    document = with_keys(document, "embed", celRules=[{"target": "tokens", "selector": "tokenize.tokens + ['z']"}])
    job_id = await world.run(document)

    async with world.worker(evaluator=evaluator):
        await world.until_status(job_id, "WAITING")
    await world.answers().answer(tenant_id="default", job_id=job_id, step="review", response={"approved": True})
    async with world.worker("worker-b:1", evaluator=evaluator):
        await world.until_status(job_id, "COMPLETED")

    assert world.server.calls(TOKENIZE) == []
    [call] = world.server.calls(EMBED)
    assert call.request == b"\n\x01z"


@pytest.mark.spec(41)
@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"when": "1 / (size(input.text) - 1) == 1"}, "GATE: when '1 / (size(input.text) - 1) == 1': divide by zero"),
        (
            {"celRules": [{"target": "tokens", "selector": "[string(1 / (size(input.text) - 1))]"}]},
            "MAPPING: celRules[0] tokens = '[string(1 / (size(input.text) - 1))]': divide by zero",
        ),
    ],
)
async def test_an_expression_that_fails_fails_the_run_at_once_and_is_never_tried_again(
    keys: dict[str, object], error: str, world: World, evaluator: ChildEvaluator
) -> None:
    job_id = await world.run(with_keys(embed_text(), "embed", **keys))

    async with world.worker(evaluator=evaluator):
        row = await world.until_status(job_id, "FAILED")

    assert (row["error"], row["attempt"]) == (error, 1)
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "FAILED embed"]
    assert world.server.calls(EMBED) == []


async def test_a_worker_that_cannot_evaluate_hands_the_run_back_and_counts_nothing(
    world: World, evaluator: ChildEvaluator
) -> None:
    job_id = await world.run(with_keys(embed_text(), "embed", when="size(tokenize.tokens) == 1"))
    broken = ChildEvaluator(python="/nowhere/python")

    async with world.worker(evaluator=broken, backoff_base_seconds=0.5):
        row = await world.until_row(job_id, lambda row: row["status"] == "QUEUED" and row["fence"] > 0)
    assert (row["attempt"], row["lost_leases"], row["error"]) == (0, 0, None)

    async with world.worker("worker-b:1", evaluator=evaluator):
        await world.until_status(job_id, "COMPLETED")
