"""D20: replies and answers that the pinned schema does not know: kept where they can be, else the run fails at once."""

import json
from typing import Any

import pytest

from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.web.conftest import Door
from tests.web.parcels import ACCEPT, REPLIES, SCHEMAS, parcel, parcels, submitted

pytestmark = pytest.mark.case("D20")

KEPT = ["any_of_workflow_type", "enum_number_7", "nan_in_double", "empty"]
KEPT_IN_PART = ["unknown_field_300", "wrong_wire_type"]
REFUSED = {
    "any_of_unknown_type": "/attachment",
    "timestamp_year_10000": "/packedAt",
    "nan_in_struct": "/extras/score",
    "bad_utf8_in_string": "/label is not UTF-8",
    "cut_short": "/label is cut short",
}


def test_d20_every_reply_is_tried() -> None:
    assert {*KEPT, *KEPT_IN_PART, *REFUSED, "nul_in_string"} == set(REPLIES)  # NUL is D14's


@pytest.mark.parametrize("name", [*KEPT, *KEPT_IN_PART])
async def test_d20_a_reply_that_can_be_kept_is_replayed_to_an_equal_message(
    door: Door, grpc_server: ScriptedServer, name: str
) -> None:
    grpc_server.script(ACCEPT, Answer(REPLIES[name]))
    document = parcels()
    # The park in between makes the last step read its source from the stored checkpoint.
    rules = [f"{field} = accept.{field}" for field in ("label", "ratio", "lane", "attachment")]
    document["steps"].append({**document["steps"][0], "name": "last", "rules": rules})
    job_id = await submitted(door, document, {})
    waiting = await door.until_status(job_id, "WAITING")
    assert (await door.ok("complete-step", {"jobId": job_id, "stepName": "desk", "response": {}}))["ok"]
    await door.until_status(job_id, "COMPLETED")

    known = parcel(REPLIES[name])
    kept = waiting["checkpoints"][0]["response"]
    _, replayed = grpc_server.calls(ACCEPT)
    for message in (SCHEMAS.parse_json("depot.Parcel", kept), parcel(replayed.request)):
        assert message.SerializeToString(deterministic=True) == known.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", REFUSED)
async def test_d20_any_other_reply_fails_its_run_at_once_naming_step_and_field(
    door: Door, grpc_server: ScriptedServer, name: str
) -> None:
    grpc_server.script(ACCEPT, Answer(REPLIES[name]))
    job = await door.until_status(await submitted(door, parcels(), {}), "FAILED")

    assert job["error"].startswith("WORKFLOW: ")
    assert "accept" in job["error"]
    assert REFUSED[name] in job["error"]
    assert job["checkpoints"] == []
    assert len(grpc_server.calls(ACCEPT)) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"lane": "LANE_ORBIT"}, "/lane takes a value of depot.Lane"),
        ({"person": "Ada", "locker": 4}, "exclude each other"),
        ({"lane": 7}, None),
        ({"label": None, "hint": None, "weight": None, "floor": None}, None),
    ],
    ids=["unknown enum", "two of oneof", "number of an enum", "null fields"],
)
async def test_d20_an_answer_is_kept_as_it_is_or_refused_naming_the_field(
    door: Door, grpc_server: ScriptedServer, answer: dict[str, Any], says: str | None
) -> None:
    grpc_server.script(ACCEPT, Answer())
    job_id = await submitted(door, parcels(), {})
    await door.until_status(job_id, "WAITING")
    call = {"jobId": job_id, "stepName": "desk", "response": answer}

    if says is not None:
        status, problem = await door.post("complete-step", call)
        assert (status, problem["error"]) == (400, "invalid-input")
        assert says in problem["message"]
        assert (await door.job(job_id))["status"] == "WAITING"
        return
    assert (await door.ok("complete-step", call))["ok"]
    job = await door.until_status(job_id, "COMPLETED")
    expected = SCHEMAS.parse_json("depot.Parcel", json.loads(json.dumps(answer)))
    assert SCHEMAS.parse_json("depot.Parcel", job["result"]) == expected
