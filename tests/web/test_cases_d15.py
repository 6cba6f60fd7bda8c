"""D15: NaN and the infinities. In a double they are values; anywhere else they are refused where they come in."""

import json
from typing import Any

import pytest

from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.web.conftest import Door
from tests.web.parcels import ACCEPT, REPLIES, parcel, parcels, submitted

pytestmark = pytest.mark.case("D15")

NO_JSON = [
    ('{"ratio": NaN}', "NaN at /input/ratio is not a JSON number"),
    ('{"ratio": -Infinity}', "-Infinity at /input/ratio is not a JSON number"),
    ('{"extras": {"score": NaN}}', "NaN at /input/extras/score is not a JSON number"),
    ('{"ratio": 1e400}', "1e400 at /input/ratio is beyond the range of a double"),
]


@pytest.mark.parametrize(("given", "says"), NO_JSON)
async def test_d15_an_input_with_a_token_that_is_no_json_is_a_bad_call(door: Door, given: str, says: str) -> None:
    call = f'{{"workflow": {json.dumps(parcels())}, "input": {given}}}'

    status, problem = await door.post("submit-workflow", call.encode())

    assert (status, problem["error"]) == (400, "invalid-input")
    assert says in problem["message"]
    assert (await door.ok("list-jobs", {}))["jobs"] == []


async def test_d15_a_double_may_be_none_of_the_numbers_all_the_way(door: Door, grpc_server: ScriptedServer) -> None:
    grpc_server.script(ACCEPT, Answer(REPLIES["nan_in_double"]))
    again = parcels("ratio = input.ratio", "tare = input.tare")
    step = {**again["steps"][0], "name": "again", "rules": ["ratio = accept.ratio", "tare = input.tare"]}
    again["steps"][1:] = [step]

    job_id = await submitted(door, again, {"ratio": "NaN", "tare": "-Infinity"})
    job = await door.until_status(job_id, "COMPLETED")

    assert job["input"] == {"ratio": "NaN", "tare": "-Infinity"}
    assert [checkpoint["response"]["ratio"] for checkpoint in job["checkpoints"]] == ["NaN", "NaN"]
    assert job["result"]["ratio"] == "NaN"
    requests = [parcel(call.request) for call in grpc_server.calls(ACCEPT)]
    assert [str(request.ratio) for request in requests] == ["nan", "nan"]
    assert [request.tare for request in requests] == [float("-inf")] * 2


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
async def test_d15_text_in_a_struct_stays_text(door: Door, grpc_server: ScriptedServer, value: str) -> None:
    grpc_server.script(ACCEPT, Answer())
    job_id = await submitted(door, parcels("extras = input.extras"), {"extras": {"score": value}})
    job = await door.until_status(job_id, "WAITING")

    [request] = grpc_server.calls(ACCEPT)
    assert parcel(request.request).extras["score"] == value
    assert job["input"] == {"extras": {"score": value}}


async def test_d15_a_reply_with_nan_in_a_struct_fails_its_run_at_once_naming_step_and_field(
    door: Door, grpc_server: ScriptedServer
) -> None:
    grpc_server.script(ACCEPT, Answer(REPLIES["nan_in_struct"]))
    job = await door.until_status(await submitted(door, parcels(), {}), "FAILED")

    assert job["error"].startswith("WORKFLOW: the response of accept cannot be kept as JSON: /extras/score ")
    assert len(grpc_server.calls(ACCEPT)) == 1


async def test_d15_a_rule_that_would_put_nan_into_a_struct_fails_naming_step_and_rule(
    door: Door, grpc_server: ScriptedServer
) -> None:
    job = await door.until_status(await submitted(door, parcels("extras.k = input.ratio"), {"ratio": "NaN"}), "FAILED")

    assert job["error"].startswith("MAPPING: ")
    assert "extras.k = input.ratio" in job["error"]
    assert grpc_server.calls(ACCEPT) == []


@pytest.mark.parametrize("answer", ['{"extras": {"score": NaN}}', '{"ratio": Infinity}', '{"ratio": 1e400}'])
async def test_d15_an_answer_that_is_no_json_is_refused_and_the_run_still_waits(
    door: Door, grpc_server: ScriptedServer, answer: str
) -> None:
    grpc_server.script(ACCEPT, Answer())
    job_id = await submitted(door, parcels(), {})
    await door.until_status(job_id, "WAITING")

    call = f'{{"jobId": "{job_id}", "stepName": "desk", "response": {answer}}}'
    status, problem = await door.post("complete-step", call.encode())
    assert (status, problem["error"]) == (400, "invalid-input")
    job: dict[str, Any] = await door.job(job_id)
    assert job["status"] == "WAITING"
