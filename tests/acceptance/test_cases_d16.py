"""D16: 64-bit integers, exact from the request to the services, the row and the record, before and after a replay."""

import base64
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streams.workflow.descriptors import SchemaSet
from tests.acceptance.bench import Bench
from tests.fixtures.grpc_server import Answer
from tests.store.samples import select_one
from tests.workflow.samples import descriptor_set

pytestmark = [pytest.mark.embedded, pytest.mark.case("D16")]

ROOT = Path(__file__).parents[2]
ACCEPT = "/depot.Intake/Accept"
SCHEMAS = SchemaSet.from_bytes(descriptor_set("parcel_full"))
RULES = ["serial = {0}.serial", "checksum = {0}.checksum", "counts = {0}.counts"]
TEXT = '{"serial": "9007199254740993", "checksum": "18446744073709551615", "counts": {"a": "-9223372036854775808"}}'
NUMBERS = '{"serial": 9007199254740993, "checksum": 18446744073709551615, "counts": {"a": -9223372036854775808}}'
EXACT = json.loads(TEXT)


def parcel_flow() -> dict[str, Any]:
    """The case's workflow, with the numbers on their way through two calls, a record and a question."""
    document: dict[str, Any] = json.loads((ROOT / "tests/workflow/data/workflows/parcel.json").read_text())
    accept, desk = document["steps"]
    gate = "{}.serial > 9007199254740992 && {}.checksum == 18446744073709551615u"
    call = {**accept, "target": "desk"}
    document["steps"] = [
        {**call, "rules": reading("input"), "when": gate.format("input", "input")},
        {**call, "name": "again", "rules": reading("accept"), "when": gate.format("accept", "accept")},
        {
            "name": "tell",
            "publish": {"topic": "parcels", "type": "depot.Parcel"},
            "celRules": [{"target": name, "selector": f"accept.{name}"} for name in ("serial", "checksum", "counts")],
        },
        {**desk, "rules": reading("accept")},
    ]
    document["output"] = {"type": "depot.Parcel", "rules": reading("again")}
    return document


def reading(scope: str) -> list[str]:
    return [rule.format(scope) for rule in RULES]


def numbers(data: bytes) -> tuple[int, int, dict[str, int]]:
    parcel: Any = SCHEMAS.from_wire("depot.Parcel", data)
    return parcel.serial, parcel.checksum, dict(parcel.counts)


@pytest.mark.parametrize("given", [TEXT, NUMBERS], ids=["text", "numbers"])
async def test_d16_integers_are_exact_everywhere_before_and_after_a_replay(bench: Bench, given: str) -> None:
    reply = SCHEMAS.parse_json("depot.Parcel", EXACT).SerializeToString()
    bench.server.script(ACCEPT, Answer(reply))
    with closing(bench.worker(stop_at="checkpoint.after_commit")) as dying:
        job_id = await bench.run(parcel_flow(), target="desk", input=given)
        await dying.was_killed()
    assert await select_one(bench.sql, "select count(*) from checkpoint") == 1
    await bench.let_leases_run_out()

    with closing(bench.worker()) as worker:
        await bench.until_status(job_id, worker, "WAITING")
        await worker.ready()
        waiting = (await worker.call("get-job", {"jobId": str(job_id)}))["job"]
        answer = {"jobId": str(job_id), "stepName": "desk", "response": {"receiptId": "r"}}
        assert (await worker.call("complete-step", answer))["ok"]
        await bench.until_status(job_id, worker, "COMPLETED")
        job = (await worker.call("get-job", {"jobId": str(job_id)}))["job"]

    exact = (9007199254740993, 18446744073709551615, {"a": -9223372036854775808})
    assert [numbers(call.request) for call in bench.server.calls(ACCEPT)] == [exact, exact]
    responses = [checkpoint.get("response") for checkpoint in job["checkpoints"][:3]]
    for shown in (*responses, waiting["composedRequest"], job["result"]):
        assert {name: shown[name] for name in EXACT} == EXACT
    assert {name: str(value) for name, value in job["input"].items() if name != "counts"} == {
        name: value for name, value in EXACT.items() if name != "counts"
    }
    assert str(job["input"]["counts"]["a"]) == EXACT["counts"]["a"]
    record = await select_one(bench.sql, "select value from record where job_id = %(id)s", {"id": job_id})
    assert numbers(bytes(record)) == exact
    told = await select_one(bench.sql, "select detail from event where detail is not null")
    asked = json.loads(told)["request"]
    assert {name: asked[name] for name in EXACT} == EXACT


async def test_d16_an_integer_that_a_struct_cannot_hold_is_refused_naming_it(bench: Bench) -> None:
    given = {"extras": {"account": 9007199254740993}}
    with closing(bench.worker()) as worker:
        await worker.ready()
        answer = await worker.call("submit-workflow", {"workflow": parcel_flow(), "input": given})

    assert answer["ok"] is False
    assert "/extras/account is 9007199254740993, which a Struct cannot hold exactly" in answer["error"]
    assert await select_one(bench.sql, "select count(*) from run") == 0


def test_d16_the_schema_of_the_workflow_is_that_of_the_test() -> None:
    assert base64.b64decode(parcel_flow()["schema"]["descriptorSetBase64"]) == descriptor_set("parcel_full")
