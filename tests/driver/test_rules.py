"""Runs whose messages break the rules of their types, by a whole worker on a real database and a real child process."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streams.evaluator.child_evaluator import ChildEvaluator
from tests.driver.stories import TOKENIZE, embed_text
from tests.driver.world import World


@pytest.fixture
async def evaluator() -> AsyncIterator[ChildEvaluator]:
    evaluator = ChildEvaluator()
    yield evaluator
    await evaluator.close()


def ruled(rule: str) -> dict[str, Any]:
    """The story, whose first response must keep a rule: the service answers one token."""
    document = embed_text()
    [(name, text)] = document["schema"]["sources"].items()
    text = text.replace("package text.v1;", 'package text.v1;\nimport "buf/validate/validate.proto";')
    text = text.replace("repeated string tokens = 1;", f"repeated string tokens = 1 [(buf.validate.field){rule}];")
    document["schema"]["sources"] = {name: text}
    document["steps"] = [{**document["steps"][0], "validate": True}, document["steps"][1]]
    return document


@pytest.mark.spec(62)
async def test_what_breaks_a_rule_fails_the_run_at_its_first_try(world: World, evaluator: ChildEvaluator) -> None:
    job_id = await world.run(ruled(".repeated = {min_items: 2, items: {string: {min_len: 2}}}"))

    async with world.worker(evaluator=evaluator):
        row = await world.until_status(job_id, "FAILED")

    assert row["error"] == (
        "VALIDATION: tokens: must contain at least 2 item(s); tokens[0]: must be at least 2 characters"
    )
    assert (row["attempt"], row["checkpoints"], row["next_target"]) == (1, [], None)
    assert len(world.server.calls(TOKENIZE)) == 1
    assert await world.log(job_id) == ["ACCEPTED", "FAILED tokenize"]
    told = await world.sql.execute("select detail from event where job_id = %s and seq = 2", [job_id])
    detail = json.loads((await told.fetchall())[0]["detail"])
    assert [(violation["path"], violation["ruleId"]) for violation in detail["violations"]] == [
        ("tokens", "repeated.min_items"),
        ("tokens[0]", "string.min_len"),
    ]


async def test_a_rule_that_gives_no_answer_fails_the_run_as_a_defect(world: World, evaluator: ChildEvaluator) -> None:
    job_id = await world.run(ruled(".cel = {id: 'third', message: 'no', expression: \"this[2] == ''\"}"))

    async with world.worker(evaluator=evaluator):
        row = await world.until_status(job_id, "FAILED")

    assert row["error"].startswith("WORKFLOW: a rule of text.v1.Tokens gives no answer: error evaluating third: ")
    assert row["attempt"] == 1


async def test_what_keeps_its_rules_goes_on(world: World, evaluator: ChildEvaluator) -> None:
    job_id = await world.run(ruled(".repeated.min_items = 1"))

    async with world.worker(evaluator=evaluator):
        assert (await world.until_status(job_id, "COMPLETED"))["attempt"] == 0
