"""The testing kit tells what workers do: the same events, outcomes and calls, run by run."""

from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from streams.testing import InvalidArgument, Unavailable, Workflow
from tests.driver.stories import (
    EMBED,
    TOKENIZE,
    TOKENS,
    VECTOR,
    embed_after_a_pause,
    embed_each,
    embed_reviewed_text,
    embed_text,
    embed_text_reviewed_within,
)
from tests.driver.world import World
from tests.fixtures.grpc_server import Answer

AWAY = Answer(status=grpc.StatusCode.UNAVAILABLE, details="away")
WRONG = Answer(status=grpc.StatusCode.INVALID_ARGUMENT, details="wrong")
REPLIES: dict[Answer, Any] = {
    AWAY: Unavailable("away"),
    WRONG: InvalidArgument("wrong"),
    TOKENS: {"tokens": ["a"]},
    VECTOR: {"vector": [1.0]},
}


@dataclass(frozen=True)
class Story:
    """A workflow, how its services answer, and the answer of a person if there is one."""

    document: dict[str, Any]
    tokenize: list[Answer] = field(default_factory=lambda: [TOKENS])
    embed: list[Answer] = field(default_factory=lambda: [VECTOR])
    review: dict[str, Any] | None = None
    ends: str = "COMPLETED"


def gated(document: dict[str, Any], step: str, when: str) -> dict[str, Any]:
    return {**document, "steps": [{**one, "when": when} if one["name"] == step else one for one in document["steps"]]}


def told() -> dict[str, Any]:
    """As `embed_text`, with a step that publishes behind it."""
    document = embed_text()
    tell = {"name": "tell", "publish": {"topic": "texts", "type": "text.v1.Text"}, "rules": ["text = input.text"]}
    return {**document, "steps": [*document["steps"], tell]}


STORIES = {
    "two calls": Story(embed_text()),
    "a failure that passes": Story(embed_text(), embed=[AWAY, AWAY, VECTOR]),
    "a failure that does not pass": Story(embed_text(), embed=[AWAY], ends="DEAD"),
    "a failure for good": Story(embed_text(), tokenize=[WRONG], ends="FAILED"),
    "an answer": Story(embed_reviewed_text(), review={"approved": True}),
    "no answer": Story(embed_reviewed_text(), ends="WAITING"),
    "no answer in time": Story(embed_text_reviewed_within(40), ends="FAILED"),
    "no answer by the run's deadline": Story({**embed_reviewed_text(), "runDeadlineMs": 1_500}, ends="FAILED"),
    "a gate that is false": Story(gated(embed_reviewed_text(), "review", "size(tokenize.tokens) > 1")),
    "a gate that fails": Story(gated(embed_text(), "embed", "1 / (size(input.text) - 1) > 0"), ends="FAILED"),
    "an item": Story(embed_each(), tokenize=[AWAY, TOKENS]),
    "an item that fails": Story(embed_each(), tokenize=[WRONG], ends="FAILED"),
    "a wait": Story(embed_after_a_pause(20)),
    "a record": Story(told()),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_run_of_the_kit_is_that_of_a_worker(world: World, story: Story) -> None:
    world.server.script(TOKENIZE, *story.tokenize)
    world.server.script(EMBED, *story.embed)
    job_id = await world.run(story.document)
    async with world.worker(backoff_base_seconds=0.01):
        if story.review is not None:
            await world.until_status(job_id, "WAITING")
            await world.answers().answer(tenant_id="default", job_id=job_id, step="review", response=story.review)
        row = await world.until_status(job_id, story.ends)
        events = await world.log(job_id)

    run = Workflow.load(story.document).run(
        {"text": "a"},
        calls={
            method.removeprefix("/"): [REPLIES[answer] for answer in answers] + [REPLIES[answers[-1]]] * 9
            for method, answers in ((TOKENIZE, story.tokenize), (EMBED, story.embed))
            if any(step.get("method") == method.removeprefix("/") for step in story.document["steps"])
        },
        answers={"review": story.review} if story.review is not None else {},
        job_id=job_id,
    )

    assert run.events == events
    assert (run.status, run.result, run.verdict) == (row["status"], row["result"], row["verdict"])
    assert run.claims == row["fence"]
    assert run.waiting_for == row["outstanding_step"]
    assert without_times(run.error) == without_times(row["error"])
    assert run.calls("tokenize") == len(world.server.calls(TOKENIZE))
    assert run.calls("embed") == len(world.server.calls(EMBED))
    kept = {entry["step"]: entry["response"] for entry in row["checkpoints"] if not entry["skipped"]}
    assert run.responses == kept
    assert run.skipped == [entry["step"] for entry in row["checkpoints"] if entry["skipped"]]


def without_times(error: str | None) -> str | None:
    """An error of a deadline names the moment, which is another one for each run."""
    if error is None or not error.startswith("DEADLINE: "):
        return error
    before, _, after = error.partition(" by 20")
    return f"{before} by {after.partition(' ')[2]}"
