"""Rules at the door: submitted inputs and answers that break the rules of their types."""

import asyncio
from typing import Any

import pytest

from tests.driver.stories import embed_reviewed_text
from tests.web.conftest import Door

VIOLATION = {"path": "", "ruleId": "review.reason", "message": "a refusal needs a reason"}


def ruled(**keys: Any) -> dict[str, Any]:
    """The reviewed story: texts of 3 characters at most, and refusals with a reason."""
    document = embed_reviewed_text()
    [(name, text)] = document["schema"]["sources"].items()
    for plain, changed in {
        "package text.v1;": 'package text.v1;\nimport "buf/validate/validate.proto";',
        "Text { string text = 1; }": "Text { string text = 1 [(buf.validate.field).string.max_len = 3]; }",
        "bool approved = 1;": "bool approved = 1; string reason = 2; option (buf.validate.message).cel = {id: "
        "'review.reason', message: 'a refusal needs a reason', expression: \"this.approved || this.reason != ''\"};",
    }.items():
        assert plain in text
        text = text.replace(plain, changed)
    document["schema"]["sources"] = {name: text}
    document["steps"] = [{**step, "validate": True} if step["name"] == "review" else step for step in document["steps"]]
    return {**document, "validate": True, **keys}


async def parked(door: Door) -> str:
    answer = await door.ok("submit-workflow", {"workflow": ruled(), "input": {"text": "a"}})
    await door.until_status(answer["jobId"], "WAITING")
    return str(answer["jobId"])


def answered(job_id: str, **response: object) -> dict[str, object]:
    return {"jobId": job_id, "stepName": "review", "response": response}


@pytest.mark.spec(88)
async def test_an_answer_that_breaks_its_rules_fails_the_run_without_a_checkpoint(door: Door) -> None:
    job_id = await parked(door)
    before = [kept["step"] for kept in (await door.job(job_id))["checkpoints"]]

    assert await door.ok("complete-step", answered(job_id, approved=False)) == {
        "ok": False,
        "code": "rejected",
        "error": "VALIDATION: a refusal needs a reason",
        "status": "FAILED",
        "violations": [VIOLATION],
        "violationsTotal": 1,
    }

    job = await door.job(job_id)
    assert (job["status"], job["error"]) == ("FAILED", "VALIDATION: a refusal needs a reason")
    assert [kept["step"] for kept in job["checkpoints"]] == before
    late = await door.ok("complete-step", answered(job_id, approved=True))
    assert (late["ok"], late["code"], late["status"]) == (False, "wrong-state", "FAILED")


async def test_an_answer_whose_rules_give_no_answer_fails_the_run_as_a_defect(door: Door) -> None:
    document = ruled()
    [(name, text)] = document["schema"]["sources"].items()
    document["schema"]["sources"] = {name: text.replace("this.reason != ''", "1 / size(this.reason) > 0")}
    submitted = await door.ok("submit-workflow", {"workflow": document, "input": {"text": "a"}})
    await door.until_status(job_id := submitted["jobId"], "WAITING")

    answer = await door.ok("complete-step", answered(job_id, approved=False))

    assert (answer["ok"], answer["code"], answer["status"]) == (False, "rejected", "FAILED")
    assert answer["error"].startswith("WORKFLOW: a rule of text.v1.Review gives no answer: ")
    assert (await door.job(job_id))["error"] == answer["error"]


async def test_an_answer_that_keeps_its_rules_goes_on(door: Door) -> None:
    job_id = await parked(door)
    assert (await door.ok("complete-step", answered(job_id, approved=False, reason="no")))["ok"] is True
    await door.until_status(job_id, "COMPLETED")


async def test_of_many_answers_at_once_one_decides_and_the_others_are_told(door: Door) -> None:
    job_id = await parked(door)
    calls = [answered(job_id, approved=number % 2 == 0) for number in range(8)]

    told = await asyncio.gather(*(door.ok("complete-step", call) for call in calls))

    first = [answer for answer in told if "alreadyDone" not in answer and answer.get("code") != "wrong-state"]
    assert len(first) == 1
    job = await door.until(job_id, lambda job: job["status"] in ("COMPLETED", "FAILED"))
    assert (job["status"] == "COMPLETED") == first[0]["ok"]


async def test_an_input_that_breaks_its_rules_is_refused_and_nothing_is_stored(door: Door) -> None:
    refused = await door.ok("submit-workflow", {"workflow": ruled(), "input": {"text": "abcd"}})
    assert (refused["ok"], refused["code"], refused["error"]) == (
        False,
        "input",
        "VALIDATION: input: text: must be at most 3 characters",
    )
    assert refused["violations"] == [
        {"path": "text", "ruleId": "string.max_len", "message": "must be at most 3 characters"}
    ]

    assert (await door.ok("put-workflow", {"name": "ruled", "workflow": ruled()}))["ok"]
    by_name = await door.ok("submit-workflow", {"workflowName": "ruled", "input": {"text": "abcd"}})
    assert by_name["error"] == refused["error"]
    one_step = ruled(steps=ruled()["steps"][:1])
    del one_step["output"]
    tried = await door.ok("run-workflow", {"workflow": one_step, "input": {"text": "abcd"}})
    assert (tried["error"], tried["violations"]) == (refused["error"], refused["violations"])
    assert (await door.ok("list-jobs", {}))["jobs"] == []


async def test_a_broken_rule_is_a_finding_when_a_workflow_is_checked_stored_or_submitted(door: Door) -> None:
    document = ruled()
    [(name, text)] = document["schema"]["sources"].items()
    document["schema"]["sources"] = {name: text.replace("this.approved ||", "this.approved |")}
    for verb, call in {"put-workflow": {}, "submit-workflow": {"input": {"text": "a"}}, "check-workflow": {}}.items():
        answer = await door.ok(verb, {"workflow": document, **call})
        [finding] = answer["findings"]
        assert (answer["ok"], finding["step"], finding["pointer"]) == (False, "review", "/steps/1/validate")
        assert "a rule is broken: text.v1.Review: failed to compile expression review.reason" in finding["error"]
