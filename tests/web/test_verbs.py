"""The verbs, over HTTP, on a worker that drives runs."""

import uuid
from typing import Any

import pytest

from tests.driver.stories import TOKENIZE, embed_reviewed_text, embed_text
from tests.fixtures.grpc_server import ScriptedServer
from tests.web.conftest import Door, opened_door

REVIEWED = embed_reviewed_text()
TEXT = {"text": "a"}


async def submitted(door: Door, document: dict[str, Any] = REVIEWED, **more: object) -> str:
    answer = await door.ok("submit-workflow", {"workflow": document, "input": TEXT, **more})
    assert answer["ok"], answer
    return str(answer["jobId"])


async def parked(door: Door) -> str:
    job_id = await submitted(door)
    await door.until_status(job_id, "WAITING")
    return job_id


async def test_a_stored_workflow_is_submitted_by_name_and_runs_to_its_result(door: Door) -> None:
    put = await door.ok("put-workflow", {"workflow": embed_text()})
    assert (put["ok"], put["name"], put["version"], put["created"]) == (True, "embed-text", 1, True)
    again = await door.ok("put-workflow", {"workflow": embed_text()})
    assert (again["version"], again["created"]) == (1, False)
    listed = await door.ok("list-workflows", {})
    assert [workflow["name"] for workflow in listed["workflows"]] == ["embed-text"]

    call = {"workflowName": "embed-text", "input": TEXT, "businessKey": "order-7", "labels": {"region": "north"}}
    answer = await door.ok("submit-workflow", call)
    assert (answer["ok"], answer["status"], answer["created"]) == (True, "QUEUED", True)
    job = await door.until_status(answer["jobId"], "COMPLETED")

    assert job["result"] == {"text": "a", "vector": [1.0]}
    assert job["verdict"] == "2 steps, output text.v1.Result"
    assert (job["businessKey"], job["labels"]) == ("order-7", {"region": "north"})
    assert [checkpoint["step"] for checkpoint in job["checkpoints"]] == ["tokenize", "embed"]
    assert job["createdAt"].endswith("Z")
    assert all(checkpoint["createdAt"].endswith("Z") for checkpoint in job["checkpoints"])


@pytest.mark.spec(56)
async def test_the_same_id_answers_the_stored_run_and_other_content_is_a_conflict(door: Door) -> None:
    job_id = str(uuid.uuid4())
    await submitted(door, jobId=job_id)
    job = await door.until_status(job_id, "WAITING")

    again = await door.ok("submit-workflow", {"workflow": REVIEWED, "input": TEXT, "jobId": job_id})
    assert again == {"ok": True, "jobId": job_id, "status": "WAITING", "created": False}
    status, problem = await door.post(
        "submit-workflow", {"workflow": REVIEWED, "input": {"text": "b"}, "jobId": job_id}
    )

    assert (status, problem["error"], problem["details"]) == (409, "conflict", {"jobId": job_id})
    assert await door.job(job_id) == job


@pytest.mark.spec(103)
async def test_both_or_neither_source_of_a_definition_is_refused(door: Door) -> None:
    for sources in ({}, {"workflow": embed_text(), "workflowName": "embed-text"}):
        status, problem = await door.post("submit-workflow", {**sources, "input": TEXT})
        assert (status, problem["error"]) == (400, "invalid-input")
        assert "workflowName" in problem["message"]
    assert (await door.ok("list-jobs", {}))["jobs"] == []


@pytest.mark.spec(57)
async def test_a_workflow_or_an_input_that_is_not_valid_stores_nothing(door: Door) -> None:
    broken = embed_text(steps=[{**embed_text()["steps"][0], "rules": ["text = nowhere.text", "nothing = input.text"]}])
    answer = await door.ok("submit-workflow", {"workflow": broken, "input": TEXT})
    assert (answer["ok"], answer["failedStep"]) == (False, "tokenize")
    assert len(answer["findings"]) >= 2

    unfit = await door.ok("submit-workflow", {"workflow": embed_text(), "input": {"txt": "a"}})
    assert (unfit["ok"], unfit["code"]) == (False, "input")
    assert "txt" in unfit["error"]
    unknown = await door.ok("submit-workflow", {"workflowName": "nobody-s", "input": TEXT})
    assert (unknown["ok"], unknown["code"]) == (False, "unknown-workflow")
    no_uuid = await door.ok("submit-workflow", {"workflow": embed_text(), "input": TEXT, "jobId": "17"})
    assert (no_uuid["ok"], no_uuid["code"]) == (False, "invalid-job-id")
    refused = await door.ok("put-workflow", {"workflow": broken})
    assert refused["ok"] is False

    assert (await door.ok("list-jobs", {}))["jobs"] == []
    assert (await door.ok("list-workflows", {}))["workflows"] == []


@pytest.mark.parametrize(
    ("later", "word"),
    [
        ({"when": "1 + 1"}, "when"),
        ({"celRules": [{"selector": "nothing", "target": "text"}]}, "celRules"),
        ({"structured": {"targetType": "text.v1.Tokens", "model": "m"}}, "call it from a service"),
        ({"streamJoin": {}}, "join them in a service"),
        ({"retry": {"attempts": 0}}, "retry"),
    ],
)
async def test_what_this_version_does_not_know_is_refused_by_name(
    door: Door, later: dict[str, object], word: str
) -> None:
    document = embed_text(steps=[{**embed_text()["steps"][0], **later}])
    answer = await door.ok("put-workflow", {"workflow": document})
    assert answer["ok"] is False
    assert any(word in finding["error"] or word in finding.get("pointer", "") for finding in answer["findings"])


@pytest.mark.spec(83)
async def test_a_run_parks_with_its_question_and_cannot_be_claimed(door: Door, grpc_server: ScriptedServer) -> None:
    job = await door.job(await parked(door))
    assert (job["status"], job["outstandingStep"], job["composedRequest"]) == ("WAITING", "review", {"text": "a"})
    assert "leaseOwner" not in job
    assert "nextTarget" not in job
    assert len(grpc_server.calls(TOKENIZE)) == 1


@pytest.mark.spec(84, 85)
async def test_the_right_answer_goes_on_and_the_same_again_changes_nothing(door: Door) -> None:
    job_id = await parked(door)
    call = {"jobId": job_id, "stepName": "review", "response": {"approved": True}}
    assert await door.ok("complete-step", call) == {"ok": True, "status": "QUEUED"}
    job = await door.until_status(job_id, "COMPLETED")
    assert [checkpoint["step"] for checkpoint in job["checkpoints"]] == ["tokenize", "review", "embed"]

    again = await door.ok("complete-step", call)
    assert again == {"ok": True, "status": "COMPLETED", "alreadyDone": True, "same": True}
    other = await door.ok("complete-step", {**call, "response": {"approved": False}})
    assert other == {"ok": True, "status": "COMPLETED", "alreadyDone": True, "same": False}
    assert await door.job(job_id) == job


@pytest.mark.spec(86)
async def test_an_answer_to_the_wrong_step_is_told_what_the_run_waits_for(door: Door) -> None:
    job_id = await parked(door)
    answer = await door.ok("complete-step", {"jobId": job_id, "stepName": "embed", "response": {"vector": []}})
    assert (answer["ok"], answer["status"], answer["outstandingStep"]) == (False, "WAITING", "review")


@pytest.mark.spec(87)
@pytest.mark.parametrize("response", [{"approved": "perhaps"}, {"aproved": True}, {"approved": 1}, "yes", [], 7])
async def test_a_malformed_answer_is_invalid_input_and_the_run_still_waits(door: Door, response: object) -> None:
    job_id = await parked(door)
    status, problem = await door.post("complete-step", {"jobId": job_id, "stepName": "review", "response": response})
    assert (status, problem["error"]) == (400, "invalid-input")
    assert problem["details"]["pointer"].startswith("/response")
    assert (await door.job(job_id))["status"] == "WAITING"


@pytest.mark.spec(104)
async def test_cancel_ends_a_run_once_and_refuses_a_settled_one(door: Door, grpc_server: ScriptedServer) -> None:
    waiting = await parked(door)
    with grpc_server.holding(TOKENIZE) as hold:
        running = await submitted(door)
        await hold.arrived()
        call = grpc_server.calls(TOKENIZE)[-1]
        for job_id in (waiting, running):
            answer = await door.ok("cancel-job", {"jobId": job_id, "reason": "changed my mind"})
            assert answer == {"ok": True, "status": "CANCELLED"}
        assert await call.was_cut()
    queued = await submitted(door, embed_text(steps=[{**step, "target": "nobody-s"} for step in REVIEWED["steps"]]))
    assert (await door.ok("cancel-job", {"jobId": queued, "reason": "no"}))["ok"] is True

    for job_id in (waiting, running, queued):
        job = await door.job(job_id)
        assert (job["status"], "completedAt" in job) == ("CANCELLED", True)
        refused = await door.ok("cancel-job", {"jobId": job_id, "reason": "again"})
        assert (refused["ok"], refused["status"]) == (False, "CANCELLED")
        late = await door.ok("complete-step", {"jobId": job_id, "stepName": "review", "response": {"approved": True}})
        assert (late["ok"], late["status"]) == (False, "CANCELLED")
        assert await door.job(job_id) == job


@pytest.mark.spec(102)
async def test_a_limit_of_0_means_50_and_one_above_500_means_500(door: Door) -> None:
    steps = [{**step, "target": "nobody-s"} for step in embed_text()["steps"]]
    await door.ok("put-workflow", {"workflow": embed_text(steps=steps)})
    for _ in range(52):
        await door.ok("submit-workflow", {"workflowName": "embed-text", "input": TEXT})

    async def listed(limit: object) -> int:
        return len((await door.ok("list-jobs", {"limit": limit}))["jobs"])

    assert [await listed(0), await listed(None), await listed(7), await listed(100_000)] == [50, 50, 7, 52]
    for limit in (-1, 1.5, "7", True):
        status, problem = await door.post("list-jobs", {"limit": limit})
        assert (status, problem["error"], problem["details"]["pointer"]) == (400, "invalid-input", "/limit")


async def test_a_list_goes_on_where_its_cursor_points_and_filters(door: Door) -> None:
    ids = [await parked(door) for _ in range(3)]
    first = await door.ok("list-jobs", {"limit": 2, "status": "WAITING"})
    rest = await door.ok("list-jobs", {"limit": 2, "status": "WAITING", "cursor": first["nextCursor"]})
    assert [job["jobId"] for job in first["jobs"] + rest["jobs"]] == ids[::-1]
    assert "nextCursor" not in rest
    assert (await door.ok("list-jobs", {"status": "DEAD"}))["jobs"] == []
    for bad in ({"status": "LOST"}, {"cursor": "%"}, {"offset": -1}):
        status, problem = await door.post("list-jobs", bad)
        assert (status, problem["error"]) == (400, "invalid-input")


async def test_an_unknown_id_is_told_and_a_blank_or_odd_one_is_invalid(door: Door) -> None:
    unknown = str(uuid.uuid4())
    for verb, more in (
        ("get-job", {}),
        ("complete-step", {"stepName": "review", "response": {}}),
        ("cancel-job", {"reason": "no"}),
    ):
        answer = await door.ok(verb, {"jobId": unknown, **more})
        assert (answer["ok"], answer["code"]) == (False, "unknown-job")
        for odd in ("", "17", 17, None, "🙂" * 36):
            status, problem = await door.post(verb, {"jobId": odd, **more})
            assert (status, problem["error"], problem["details"]["pointer"]) == (400, "invalid-input", "/jobId")
        status, problem = await door.post(verb, {"jobId": "\0", **more})
        assert (status, problem["error"]) == (400, "invalid-input")
        assert "U+0000 at /jobId" in problem["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"a"', b"null", b'{"limit": NaN}', b'{"limit": 1, "limit": 2}', b"\xff", b"[" * 100_000],
)
async def test_a_body_that_is_no_json_object_is_invalid_input(door: Door, body: bytes) -> None:
    status, problem = await door.post("list-jobs", body)
    assert (status, problem["error"]) == (400, "invalid-input")
    assert (await door.post("list-jobs", {}))[0] == 200


async def test_the_door_opens_to_this_machine_alone(door: Door) -> None:
    assert (await door.post("list-jobs", {}, Host="evil.example"))[0] == 403
    assert (await door.post("list-jobs", {}, Origin="https://evil.example"))[0] == 403
    assert (await door.post("list-jobs", {}, Origin="http://localhost:3000"))[0] == 200
    assert (await door.post("list-jobs", {}, **{"Content-Type": "text/plain"}))[0] == 400


async def test_an_unknown_verb_and_an_unknown_field_name_the_way_out(door: Door) -> None:
    status, problem = await door.post("submit", {})
    assert (status, problem["error"]) == (404, "unknown-action")
    assert "submit-workflow" in problem["message"]
    status, problem = await door.post("list-jobs", {"lmit": 3})
    assert (status, problem["details"]["pointer"]) == (400, "/lmit")
    assert "limit" in problem["message"]


@pytest.mark.spec(101)
async def test_without_a_store_every_verb_is_unavailable_whatever_it_is_asked() -> None:
    async with opened_door(roles="web") as door:
        for verb in ("submit-workflow", "get-job", "list-jobs", "complete-step", "cancel-job", "put-workflow"):
            for call in ({}, {"jobId": "17"}, {"nonsense": True}):
                status, problem = await door.post(verb, call)
                assert (status, problem["error"]) == (503, "unavailable")
                assert "WORKFLOW_RUNS_DATABASE_URL" in problem["message"]
