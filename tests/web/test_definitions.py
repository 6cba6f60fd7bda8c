"""The verbs that look at definitions, or run them without keeping anything, over HTTP on a whole worker."""

import asyncio
import json
import time
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest

from schemas.errors import SettingsInvalid
from tests.driver.stories import EMBED, embed_only, embed_reviewed_text, embed_text
from tests.fixtures.eventually import eventually
from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.fixtures.plain_listener import TLS_HANDSHAKE, listening
from tests.handlers.steps import SOURCE
from tests.web.conftest import Door, opened_door

TEXT = {"text": "a"}
VALIDATE = ' import "buf/validate/validate.proto";'
TOKENIZE_STEP, EMBED_STEP = embed_text()["steps"]


async def test_a_sound_definition_has_no_findings_and_nothing_of_it_is_stored(door: Door) -> None:
    assert await door.ok("check-workflow", {"workflow": embed_reviewed_text()}) == {"ok": True, "findings": []}
    assert (await door.ok("list-workflows", {}))["workflows"] == []


async def test_every_finding_is_told_at_once_with_step_kind_place_and_way_out(door: Door) -> None:
    broken = embed_text(
        steps=[
            {**TOKENIZE_STEP, "rules": ["txt = input.text"], "when": "size(input.text)", "vaildate": True},
            {**EMBED_STEP, "method": "text.v1.Embedder/Embedd", "target": "http://embedder"},
        ]
    )
    broken["output"]["rules"] = ["text = nowhere.text"]

    answer = await door.ok("check-workflow", {"workflow": broken})

    assert answer["ok"] is False
    found = {(finding["step"], finding["kind"], finding["pointer"]): finding["error"] for finding in answer["findings"]}
    assert set(found) == {
        ("tokenize", "workflow", "/steps/0/vaildate"),
        ("tokenize", "when", "/steps/0/when"),
        ("tokenize", "rule", "/steps/0/rules/0"),
        ("embed", "workflow", "/steps/1/target"),
        ("embed", "workflow", "/steps/1/method"),
        ("", "output", "/output/rules/0"),
    }
    assert "did you mean text?" in found["tokenize", "rule", "/steps/0/rules/0"]
    assert "it has: Embed" in found["embed", "workflow", "/steps/1/method"]


async def test_a_stored_workflow_is_checked_described_and_run_by_name(door: Door) -> None:
    await door.ok("put-workflow", {"workflow": embed_text()})

    by_name = {"workflowName": "embed-text"}
    assert await door.ok("check-workflow", by_name) == {"ok": True, "findings": []}
    assert (await door.ok("describe-workflow", by_name))["name"] == "embed-text"
    assert (await door.ok("run-workflow", {**by_name, "input": TEXT}))["ok"] is True
    for verb in ("check-workflow", "describe-workflow", "run-workflow"):
        more: dict[str, Any] = {"input": {}} if verb == "run-workflow" else {}
        refused = await door.ok(verb, {"workflowName": "nobody-s", **more})
        assert (refused["ok"], refused["code"]) == (False, "unknown-workflow")
        for sources in ({}, {**by_name, "workflow": embed_text()}):
            status, problem = await door.post(verb, {**sources, **more})
            assert (status, problem["error"]) == (400, "invalid-input")


async def test_a_synchronous_run_makes_real_calls_answers_its_output_and_keeps_nothing(
    door: Door, grpc_server: ScriptedServer
) -> None:
    steps = [{**TOKENIZE_STEP, "name": "never", "when": "input.text == 'b'"}, TOKENIZE_STEP, EMBED_STEP]

    answer = await door.ok("run-workflow", {"workflow": embed_text(steps=steps), "input": TEXT})

    assert answer == {
        "ok": True,
        "outputType": "text.v1.Result",
        "output": {"text": "a", "vector": [1.0]},
        "steps": [
            {"name": "never", "skipped": True},
            {"name": "tokenize", "skipped": False},
            {"name": "embed", "skipped": False},
        ],
    }
    tokenize, embed = grpc_server.calls()
    assert tokenize.request == b"\n\x01a"
    assert (tokenize.metadata["step-name"], embed.metadata["step-name"]) == ("tokenize", "embed")
    assert uuid.UUID(tokenize.metadata["job-id"]) == uuid.UUID(embed.metadata["job-id"])
    assert (await door.ok("list-jobs", {}))["jobs"] == []


async def test_what_cannot_be_run_is_refused_before_any_call(door: Door, grpc_server: ScriptedServer) -> None:
    broken = await door.ok("run-workflow", {"workflow": embed_text(steps=[]), "input": TEXT})
    assert (broken["ok"], broken["code"]) == (False, "findings")
    wrong = await door.ok("run-workflow", {"workflow": embed_text(), "input": {"txt": "a"}})
    assert (wrong["ok"], wrong["code"], "/txt" in wrong["error"]) == (False, "input", True)
    status, problem = await door.post("run-workflow", {"workflow": embed_text()})
    assert (status, problem["details"]["pointer"]) == (400, "/input")
    elsewhere = embed_text(steps=[{**TOKENIZE_STEP, "target": "10.9.8.7:9000"}, EMBED_STEP])
    away = await door.ok("run-workflow", {"workflow": elsewhere, "input": TEXT})
    assert (away["ok"], away["code"], "TARGETS_ALLOWED" in away["error"]) == (False, "not-served", True)
    assert grpc_server.calls() == []


async def test_an_input_that_breaks_its_rules_is_refused_before_any_call(
    door: Door, grpc_server: ScriptedServer
) -> None:
    ruled = embed_text(steps=[{**TOKENIZE_STEP, "validate": True}, EMBED_STEP])
    source = ruled["schema"]["sources"]["text.proto"].replace("package text.v1;", f"package text.v1;{VALIDATE}", 1)
    source = source.replace("string text = 1;", "string text = 1 [(buf.validate.field).string.max_len = 3];", 1)
    ruled = {**ruled, "validate": True, "schema": {"sources": {"text.proto": source}}}

    refused = await door.ok("run-workflow", {"workflow": ruled, "input": {"text": "four"}})

    assert (refused["ok"], refused["error"].partition(":")[0]) == (False, "VALIDATION")
    assert [violation["path"] for violation in refused["violations"]] == ["text"]
    assert grpc_server.calls() == []
    assert (await door.ok("run-workflow", {"workflow": ruled, "input": TEXT}))["ok"] is True
    described = await door.ok("describe-workflow", {"workflow": ruled})
    assert (described["validate"], "validate" in described["steps"][0]) == (True, False)  # a response has no rules


async def test_a_failed_call_is_told_with_its_step_and_not_tried_again(door: Door, grpc_server: ScriptedServer) -> None:
    grpc_server.script(EMBED, Answer(status=grpc.StatusCode.UNAVAILABLE, details="gone fishing"))

    answer = await door.ok("run-workflow", {"workflow": embed_text(), "input": TEXT})

    assert (answer["ok"], answer["failedStep"]) == (False, "embed")
    assert answer["error"] == "GRPC: UNAVAILABLE: gone fishing"
    assert len(grpc_server.calls(EMBED)) == 1


@pytest.mark.spec(52)
@pytest.mark.parametrize(
    "parks",
    [
        {"method": "text.v1.Desk/Decide", "completion": "external", "rules": ["text = input.text"]},
        {"ask": {"topic": "questions", "requestType": "text.v1.Text", "responseType": "text.v1.Review"}},
        {"publish": {"topic": "texts", "type": "text.v1.Text"}, "rules": ["text = input.text"]},
        {"wait": {"forMs": 1}},
    ],
)
async def test_a_step_that_needs_a_kept_run_is_refused_pointing_at_submission(
    parks: dict[str, object], door: Door, grpc_server: ScriptedServer
) -> None:
    step = {"name": "late", **parks}
    document = embed_text(steps=[TOKENIZE_STEP, step, EMBED_STEP])

    refused = await door.ok("run-workflow", {"workflow": document, "input": TEXT})

    assert (refused["ok"], refused["failedStep"]) == (False, "late")
    assert refused["error"].startswith("EXTERNAL: ")
    assert "submit-workflow" in refused["error"]
    assert grpc_server.calls() == []  # it was bound to be reached

    gated = embed_text(steps=[TOKENIZE_STEP, {**step, "when": "input.text == 'b'"}, EMBED_STEP])
    assert (await door.ok("run-workflow", {"workflow": gated, "input": TEXT}))["ok"] is True
    reached = await door.ok("run-workflow", {"workflow": gated, "input": {"text": "b"}})
    assert (reached["ok"], reached["failedStep"], "submit-workflow" in reached["error"]) == (False, "late", True)


async def test_a_synchronous_run_ends_with_its_definition_s_deadline(door: Door, grpc_server: ScriptedServer) -> None:
    with grpc_server.holding(EMBED) as hold:
        started = time.monotonic()
        answer = await door.ok("run-workflow", {"workflow": embed_only(deadline_ms=500), "input": TEXT})
        took = time.monotonic() - started
        hold.release()

    assert (answer["ok"], answer["failedStep"]) == (False, "embed")
    assert "DEADLINE" in answer["error"]
    assert 0.4 < took < 10


async def test_no_more_than_sixteen_are_under_way_at_once(door: Door, grpc_server: ScriptedServer) -> None:
    call = {"workflow": embed_only(), "input": TEXT}
    with grpc_server.holding(EMBED) as hold:
        posts = [asyncio.create_task(door.post("run-workflow", call)) for _ in range(24)]
        refused, others = set[asyncio.Task[tuple[int, Any]]](), set(posts)
        while len(refused) < 8:  # the others are held, or stand in line for a permit
            ended, others = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            refused |= ended
        hold.release()
    for status, problem in [task.result() for task in refused]:
        assert (status, "submit-workflow" in problem["message"]) == (429, True)
    assert sorted(status for status, _ in await asyncio.gather(*posts)) == [200] * 16 + [429] * 8
    assert (await door.ok("run-workflow", call))["ok"] is True


async def test_a_handler_serves_a_synchronous_run_unless_it_writes_with_a_checkpoint(database_url: str) -> None:
    def document(method: str) -> dict[str, Any]:
        step = {"name": "step", "target": "local", "method": f"steps.v1.Steps/{method}", "rules": ["text = input.text"]}
        return {"schema": {"sources": {"steps.proto": SOURCE}}, "inputType": "steps.v1.Ask", "steps": [step]}

    async with opened_door(
        database_url=database_url, roles="runs,web", handlers="tests.handlers.steps,tests.handlers.transactional"
    ) as door:
        answer = await door.ok("run-workflow", {"workflow": document("Sync"), "input": {"text": "reply"}})
        assert answer["ok"] is True, answer
        refused = await door.ok("run-workflow", {"workflow": document("Write"), "input": {"text": "reply"}})
        assert (refused["ok"], "submit-workflow" in refused["error"]) == (False, True)
        nobody = await door.ok("run-workflow", {"workflow": document("Nobody"), "input": {"text": "reply"}})
        assert (nobody["ok"], nobody["code"], "HANDLERS" in nobody["error"]) == (False, "not-served", True)


async def test_a_folder_of_definitions_in_yaml_and_json_is_stored_at_the_start(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "text.proto").write_text(embed_text()["schema"]["sources"]["text.proto"])
    in_yaml = "name: in-yaml\nschema: {protoFiles: [text.proto]}\ninputType: text.v1.Text\nsteps:\n  - name: pause\n"
    (tmp_path / "one.yaml").write_text(f"{in_yaml}    wait: {{forMs: 1}}\n")
    (tmp_path / "two.json").write_text(json.dumps(embed_text()))
    (tmp_path / "README.md").write_text("no definition")
    settings = {"database_url": database_url, "roles": "runs,web", "workflows_dir": tmp_path}

    async with opened_door(**settings) as door:
        await eventually(lambda: "starting" not in {service.detail for service in door.worker.health()})
        listed = (await door.ok("list-workflows", {}))["workflows"]
        assert [workflow["name"] for workflow in listed] == ["embed-text", "in-yaml"]

    (tmp_path / "three.yml").write_text(f"{in_yaml}    wait: yes\n")
    with pytest.raises(SettingsInvalid, match=r"WORKFLOWS_DIR: .*three\.yml: line 6: yes means different things"):
        async with opened_door(**settings):
            pass


async def test_a_description_has_what_people_ask_and_a_chart(door: Door) -> None:
    document = embed_text(
        steps=[
            {**TOKENIZE_STEP, "when": 'input.text != "</>#&"', "retry": {"attempts": 5}, "deadlineMs": 250},
            {
                "name": "review",
                "method": "text.v1.Desk/Decide",
                "completion": "external",
                "celRules": [{"target": "text", "selector": "input.text"}],
            },
            {"name": "nap", "wait": {"forMs": 10}},
            {"name": "tell", "publish": {"topic": "texts", "type": "text.v1.Text"}, "rules": ["text = input.text"]},
            EMBED_STEP,
        ]
    )

    answer = await door.ok("describe-workflow", {"workflow": document})

    assert {key: answer[key] for key in ("ok", "name", "inputType", "outputType", "deadlineMs", "engineLevel")} == {
        "ok": True,
        "name": "embed-text",
        "inputType": "text.v1.Text",
        "outputType": "text.v1.Result",
        "deadlineMs": 30_000,
        "engineLevel": 2,
    }
    assert answer["outputRules"] == 2
    first, review, nap, tell, embed = answer["steps"]
    assert first == {
        "name": "tokenize",
        "kind": "call",
        "target": "tokenizer",
        "method": "text.v1.Tokenizer/Tokenize",
        "deadlineMs": 250,
        "requestType": "text.v1.Text",
        "rules": 1,
        "responseType": "text.v1.Tokens",
        "when": 'input.text != "</>#&"',
        "attempts": 5,
    }
    assert (review["kind"], review["requestType"], review["responseType"], review["rules"]) == (
        "external",
        "text.v1.Text",
        "text.v1.Review",
        1,
    )
    assert (nap["kind"], nap["forMs"]) == ("wait", 10)
    assert (tell["kind"], tell["topic"]) == ("publish", "texts")
    assert embed["target"] == "embedder"
    chart = answer["mermaid"].splitlines()
    assert chart[0] == "flowchart TD"
    assert '    when0{"input.text != #quot;#lt;/#gt;#35;#amp;#quot;"}' in chart
    assert "    when0 -->|yes| step0" in chart
    assert "    when0 -->|no| step1" in chart
    assert '    step1{{"review<br/>external"}}' in chart
    assert "    step4 --> output" in chart
    broken = await door.ok("describe-workflow", {"workflow": embed_text(steps=[])})
    assert (broken["ok"], broken["code"]) == (False, "findings")


async def test_definitions_that_come_along_need_no_store(grpc_server: ScriptedServer) -> None:
    grpc_server.script(EMBED, Answer(b""))
    document = embed_only()
    document["steps"][0]["target"] = grpc_server.target
    async with opened_door(roles="web") as door:
        assert (await door.ok("check-workflow", {"workflow": document}))["ok"] is True
        assert (await door.ok("describe-workflow", {"workflow": document}))["ok"] is True
        assert (await door.ok("run-workflow", {"workflow": document, "input": TEXT}))["ok"] is True
        for verb in ("check-workflow", "describe-workflow", "run-workflow"):
            status, problem = await door.post(
                verb, {"workflowName": "embed-text", "input": {}} if "run" in verb else {"workflowName": "embed-text"}
            )
            assert (status, problem["error"]) == (503, "unavailable")


@pytest.mark.spec(50)
@pytest.mark.parametrize("verb", ["run-workflow", "submit-workflow"])
async def test_no_way_to_run_a_workflow_gives_up_tls(verb: str, database_url: str, tmp_path: Path) -> None:
    with listening() as listener:
        (tmp_path / "targets.yaml").write_text(f'embedder: {{address: "{listener.address}"}}')
        document = embed_only()
        document["steps"][0].update(tls=True, retry={"attempts": 1})
        async with opened_door(
            database_url=database_url, roles="runs,web", targets_file=tmp_path / "targets.yaml"
        ) as door:
            answer = await door.ok(verb, {"workflow": document, "input": TEXT})
            if verb == "submit-workflow":
                job = await door.until(answer["jobId"], lambda job: job["status"] in ("DEAD", "FAILED"))
                answer = {"error": job["error"]}
            assert answer["error"].startswith("GRPC: UNAVAILABLE")

    assert {first[:2] for first in listener.heard} == {TLS_HANDSHAKE}
