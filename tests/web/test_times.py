"""What callers see of waits, deadlines and of steps that send."""

from tests.driver.stories import embed_after_a_pause, embed_text_reviewed_within
from tests.web.conftest import Door
from tests.workflow.notices import notices, tell

TEXT = {"text": "a"}


async def test_nobody_answers_a_wait_and_it_is_shown_until_when_it_lasts(door: Door) -> None:
    document = {**embed_after_a_pause(3_600_000), "runDeadlineMs": 7_200_000}
    submitted = await door.ok("submit-workflow", {"workflow": document, "input": TEXT})
    await door.until_status(submitted["jobId"], "WAITING")
    job = await door.job(submitted["jobId"])
    assert (job["outstandingStep"], job["dueMove"]) == ("pause", "wake")
    assert job["updatedAt"] < job["dueAt"] < job["deadlineAt"]

    answer = {"jobId": submitted["jobId"], "stepName": "pause", "response": {}}
    refused = await door.ok("complete-step", answer)
    assert (refused["ok"], refused["code"]) == (False, "wrong-state")
    assert refused["error"].endswith("waits at 'pause' until its time has come: a wait is not answered")
    assert (await door.job(submitted["jobId"]))["status"] == "WAITING"
    assert (await door.ok("cancel-job", {"jobId": submitted["jobId"], "reason": "no"}))["ok"]


async def test_a_stored_workflow_gives_its_runs_their_deadline(door: Door) -> None:
    document = {**embed_text_reviewed_within(3_600_000), "runDeadlineMs": 1_500}
    await door.ok("put-workflow", {"workflow": document})
    submitted = await door.ok("submit-workflow", {"workflowName": "embed-text", "input": TEXT})
    await door.until_status(submitted["jobId"], "WAITING")
    assert "answerBy" in await door.job(submitted["jobId"])
    await door.until_status(submitted["jobId"], "FAILED")
    assert (await door.job(submitted["jobId"]))["error"].endswith("(runDeadlineMs)")


async def test_a_step_that_would_send_to_a_topic_of_the_workers_is_refused(door: Door) -> None:
    document = notices(steps=[tell(publish={"topic": "workflow-run-events"})])
    for verb, given in (("put-workflow", {}), ("submit-workflow", {"input": {"number": "7"}})):
        answer = await door.ok(verb, {"workflow": document, **given})
        assert answer["ok"] is False
        [finding] = answer["findings"]
        assert finding["pointer"] == "/steps/0/publish/topic"
