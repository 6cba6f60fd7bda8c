"""D14: NUL characters, wherever they come from. What a program would read is refused; what people read is shown."""

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from tests.acceptance.bench import Bench
from tests.acceptance.fleet import Fleet
from tests.acceptance.processes import environment
from tests.acceptance.producer import Format, Request
from tests.fixtures.grpc_server import Answer
from tests.store.samples import select_one

pytestmark = [pytest.mark.embedded, pytest.mark.case("D14")]

ROOT = Path(__file__).parents[2]
ACCEPT = "/depot.Intake/Accept"
PARCEL = json.loads((ROOT / "tests/workflow/data/workflows/parcel.json").read_text().replace("TARGET", "desk"))
REPLIES = json.loads((ROOT / "tests/workflow/data/step_replies.json").read_text())
NUL = {"label": "left\0right", "extras": {"k\0ey": "v"}}
LOOKS_LIKE_NUL = {"label": r"left\u0000right"}
FORMATS: tuple[Format, ...] = ("protobuf", "json")


async def posted(url: str, verb: str, arguments: object) -> tuple[int, Any]:
    """Call a verb; the status and the JSON of its answer, whatever it is."""
    request = urllib.request.Request(
        f"{url}/verbs/{verb}", json.dumps(arguments).encode(), {"content-type": "application/json"}
    )

    def post() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(post)


async def commanded(fleet: Fleet, given: object) -> "subprocess.CompletedProcess[str]":
    """What `workflow-runs submit-workflow` does with this input."""
    file = fleet.folder / f"{uuid4()}.json"
    file.write_text(json.dumps(given))
    command = ["submit-workflow", "--name", "parcel-flow", "--input", f"@{file}", "--json"]
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "streams.cli", *command],
        env=environment({"database_url": fleet.database_url}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


async def test_d14_an_input_with_nul_is_refused_at_every_door_and_one_that_looks_like_it_passes(fleet: Fleet) -> None:
    await fleet.store(PARCEL, "parcel-flow")
    label = LOOKS_LIKE_NUL["label"].encode()
    fleet.server.script(ACCEPT, Answer(bytes([0x0A, len(label)]) + label))
    with closing(fleet.fork("worker")) as worker:
        bad = [(format, uuid4()) for format in FORMATS]
        good = [(format, uuid4()) for format in FORMATS]
        for requests, given in ((bad, NUL), (good, LOOKS_LIKE_NUL)):
            for format, job_id in requests:
                await fleet.send([Request(job_id, "parcel-flow", given)], format=format)
        refused, taken = await asyncio.gather(commanded(fleet, NUL), commanded(fleet, LOOKS_LIKE_NUL))
        await worker.ready()
        asked = {"workflowName": "parcel-flow", "input": LOOKS_LIKE_NUL}
        status, problem = await posted(worker.url, "submit-workflow", {**asked, "input": NUL})
        answer = await worker.call("submit-workflow", asked)

        passed = [job_id for _, job_id in good] + [UUID(answer["jobId"]), UUID(json.loads(taken.stdout)["jobId"])]
        born_failed = [job_id for _, job_id in bad]
        await fleet.until_all(born_failed, "FAILED")
        await fleet.until_all(passed, "WAITING")
        got = [(await worker.call("get-job", {"jobId": str(job_id)}))["job"] for job_id in passed]
        await fleet.until_told(born_failed, ["FAILED"])

    assert (status, problem["error"]) == (400, "invalid-input")
    assert (refused.returncode, refused.stdout) == (2, "")
    for text in (problem["message"], refused.stderr, *[(await fleet.row(job_id))["error"] for job_id in born_failed]):
        assert "U+0000" in text
        assert "\0" not in text
    for job in got:
        assert job["input"] == LOOKS_LIKE_NUL
        assert job["composedRequest"]["label"] == LOOKS_LIKE_NUL["label"]
    assert await fleet.one("select count(*) from run") == len(passed) + len(born_failed)


async def test_d14_a_reply_with_nul_fails_its_run_at_once_naming_step_and_field(bench: Bench) -> None:
    bench.server.script(ACCEPT, Answer(bytes.fromhex(REPLIES["nul_in_string"])))
    job_id = await bench.run(PARCEL, target="desk", input="{}")
    with closing(bench.worker()) as worker:
        await bench.until_status(job_id, worker, "FAILED")
        job = (await worker.call("get-job", {"jobId": str(job_id)}))["job"]

    assert job["error"].startswith("WORKFLOW: ")
    assert "accept" in job["error"]
    assert "/label holds the character U+0000" in job["error"]
    assert await bench.ledger(job_id) == ["ACCEPTED", "FAILED accept"]
    assert len(bench.server.calls(ACCEPT)) == 1


@pytest.mark.parametrize(
    ("status", "ends"), [(grpc.StatusCode.INVALID_ARGUMENT, "FAILED"), (grpc.StatusCode.UNAVAILABLE, "DEAD")]
)
async def test_d14_an_error_text_with_nul_settles_readably(bench: Bench, status: grpc.StatusCode, ends: str) -> None:
    bench.server.script(ACCEPT, Answer(status=status, details="left\0right"))
    job_id = await bench.run(PARCEL, target="desk", input="{}", max_attempts=2)
    with closing(bench.worker()) as worker:
        await bench.until_status(job_id, worker, ends)
        job = (await worker.call("get-job", {"jobId": str(job_id)}))["job"]

    assert job["error"] == f"GRPC: {status.name}: left\N{REPLACEMENT CHARACTER}right"
    assert await bench.ledger(job_id) == ["ACCEPTED", f"{ends} accept"]
    assert await select_one(bench.sql, "select error from event where seq = 2") == job["error"]


async def test_d14_an_answer_with_nul_is_refused_and_the_run_still_waits(bench: Bench) -> None:
    bench.server.script(ACCEPT, Answer())
    job_id = await bench.run(PARCEL, target="desk", input="{}")
    with closing(bench.worker()) as worker:
        await bench.until_status(job_id, worker, "WAITING")
        await worker.ready()
        answer = {"jobId": str(job_id), "stepName": "desk", "response": {"receiptId": "a\0b"}}
        status, problem = await posted(worker.url, "complete-step", answer)
        assert await bench.status(job_id) == "WAITING"
        right = {**answer, "response": {"receiptId": r"a\u0000b"}}
        assert (await worker.call("complete-step", right))["ok"]
        await bench.until_status(job_id, worker, "COMPLETED")
        job = (await worker.call("get-job", {"jobId": str(job_id)}))["job"]

    assert (status, problem["error"]) == (400, "invalid-input")
    assert "U+0000" in problem["message"]
    assert job["checkpoints"][-1]["response"]["receiptId"] == r"a\u0000b"
