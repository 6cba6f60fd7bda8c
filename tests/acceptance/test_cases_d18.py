"""D18: two editions of one .proto in one worker, and very many definitions."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import aiohttp
import pytest
from google.protobuf import descriptor_pb2

from schemas.messages import WorkflowRunEvent
from tests.acceptance.bench import Bench
from tests.acceptance.fleet import Fleet
from tests.acceptance.forked import Forked
from tests.fixtures.grpc_server import Answer
from tests.store.samples import select_one

pytestmark = [pytest.mark.embedded, pytest.mark.case("D18")]

T = TypeVar("T")
Post = Callable[[str, object], Awaitable[dict[str, Any]]]
"""A verb and its arguments; its answer. A refused call answers with problem details."""

DATA = Path(__file__).parents[1] / "workflow/data/workflows"
TOKENIZE = "/harbor.flow.Tokenizer/Tokenize"
EACH = 50
LOOPS = 8
DEFINITIONS = 3_000
SOURCES = 20
"""How many of them are sources that differ in a comment; the others are descriptor sets with a field of their own."""

MOST_GROWTH_KB = 100_000
LOG = ["ACCEPTED", "STEP_CHECKPOINT tokenize", "WAITING review", "STEP_CHECKPOINT review", "COMPLETED"]
# For each edition: its input, the request that the service gets, and an answer whose shape is this edition's.
EDITIONS: Mapping[str, tuple[dict[str, str], bytes, dict[str, Any]]] = {
    "v1": ({"text": "a"}, b"\n\x01a", {"ids": [7]}),
    "v2": ({"body": "b", "language": "pt"}, b"\n\x01b\x12\x02pt", {"ids": ["7"], "model": "m"}),
}


async def test_d18_each_run_keeps_the_edition_that_it_was_submitted_with(fleet: Fleet) -> None:
    fleet.server.script(TOKENIZE, Answer(b"\n\x01\x07"))
    with closing(fleet.fork("first", permits_per_target=LOOPS)) as worker:
        async with posting_to(worker) as post:
            assert (await post("submit-workflow", {"workflow": like_ours(), "input": {"mine": "x"}}))["ok"]
            order = list(EDITIONS) * EACH
            calls = [{"workflow": document(edition), "input": EDITIONS[edition][0]} for edition in order]
            answers = await some_at_once(post("submit-workflow", call) for call in calls)
            jobs = {UUID(answer["jobId"]): edition for answer, edition in zip(answers, order, strict=True)}
            refused = await post("submit-workflow", {"workflow": document("v1"), "input": {"body": "b"}})
            await fleet.until_all(jobs, "WAITING")
        worker.terminate()
        assert await worker.wait(15) == 0
    assert (refused["ok"], refused["code"]) == (False, "input")
    assert "body" in refused["error"]

    with closing(fleet.fork("second")) as worker:
        async with posting_to(worker) as post:
            answered = {job_id: EDITIONS[edition][2] for job_id, edition in jobs.items()}
            for job_id, edition in jobs.items():
                if edition == "v1":
                    wrong = await post("complete-step", answer_of(job_id, EDITIONS["v2"][2]))
                    assert (wrong["error"], "model" in wrong["message"]) == ("invalid-input", True)
            answers = await some_at_once(post("complete-step", answer_of(*each)) for each in answered.items())
            assert [answer["ok"] for answer in answers] == [True] * len(jobs)
            await fleet.until_all(jobs, "COMPLETED")
            await fleet.until_told(jobs, LOG)

    for job_id, edition in jobs.items():
        assert [call.request for call in fleet.calls(TOKENIZE, job_id)] == [EDITIONS[edition][1]]
        assert (await fleet.row(job_id))["result"] == EDITIONS[edition][2]


async def test_d18_the_memory_of_a_worker_does_not_grow_with_the_definitions_it_has_seen(bench: Bench) -> None:
    with closing(bench.worker(roles="web")) as worker:
        async with posting_to(worker) as post:
            documents = [
                *(with_a_field_of_its_own(n) for n in range(DEFINITIONS - SOURCES)),
                *map(with_a_comment, range(SOURCES)),
            ]
            assert (await post("submit-workflow", {"workflow": document("v1"), "input": {"text": "a"}}))["ok"]
            before = memory_kb(worker)
            answers = await some_at_once(post("submit-workflow", {"workflow": each, "input": {}}) for each in documents)
            assert all(answer["ok"] for answer in answers), [answer for answer in answers if not answer["ok"]][:1]
            grown = memory_kb(worker) - before

    assert await select_one(bench.sql, "select count(*) from definition") == DEFINITIONS + 1
    assert grown < MOST_GROWTH_KB


@asynccontextmanager
async def posting_to(worker: Forked) -> AsyncIterator[Post]:
    """Call verbs of *worker* over connections that are kept."""
    await worker.ready()
    async with aiohttp.ClientSession() as session:

        async def post(verb: str, arguments: object) -> dict[str, Any]:
            async with session.post(f"{worker.url}/verbs/{verb}", json=arguments) as response:
                return dict(json.loads(await response.read()))

        yield post


async def some_at_once(calls: Iterable[Awaitable[T]]) -> list[T]:
    """What *calls* return, in their order, a few under way at a time."""
    turns = asyncio.Semaphore(2 * LOOPS)

    async def in_turn(call: Awaitable[T]) -> T:
        async with turns:
            return await call

    return await asyncio.gather(*map(in_turn, calls))


def answer_of(job_id: UUID, response: object) -> dict[str, object]:
    return {"jobId": str(job_id), "stepName": "review", "response": response}


def document(edition: str) -> dict[str, Any]:
    """An edition of the workflow, as its author wrote it."""
    written = (DATA / f"text_{edition}.json").read_text().replace("TARGET", "tokenizer")
    return dict(json.loads(written))


def in_base64(files: descriptor_pb2.FileDescriptorSet) -> dict[str, str]:
    return {"descriptorSetBase64": base64.b64encode(files.SerializeToString()).decode()}


def like_ours() -> dict[str, Any]:
    """A workflow that ships a file, a package and a message called like those of the product's own events."""
    ours = WorkflowRunEvent.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(name=ours.file.name, package=ours.file.package, syntax="proto3")
    file.message_type.add(name=ours.name).field.add(name="mine", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    kind = f".{ours.full_name}"
    file.service.add(name="Desk").method.add(name="Decide", input_type=kind, output_type=kind)
    return {
        "name": "like-ours",
        "schema": in_base64(descriptor_pb2.FileDescriptorSet(file=[file])),
        "inputType": ours.full_name,
        "steps": [{"name": "review", "method": f"{ours.file.package}.Desk/Decide", "completion": "external"}],
    }


def reviewed(schema: dict[str, Any], *rules: str) -> dict[str, Any]:
    """A workflow that parks at once."""
    step = {"name": "review", "method": "harbor.flow.Tokenizer/Tokenize", "completion": "external", "rules": rules}
    return {"name": "text-flow", "schema": schema, "inputType": "harbor.flow.Text", "steps": [step]}


def with_a_field_of_its_own(number: int) -> dict[str, Any]:
    given = base64.b64decode(document("v2")["schema"]["descriptorSetBase64"])
    files = descriptor_pb2.FileDescriptorSet.FromString(given)
    [text, *_] = files.file[0].message_type
    text.field[1].name = text.field[1].json_name = f"language{number}"
    return reviewed(in_base64(files), "body = input.body", f"language{number} = input.language{number}")


def with_a_comment(number: int) -> dict[str, Any]:
    source = f"""
        syntax = "proto3";  // edition {number}
        package harbor.flow;
        message Text {{ string text = 1; }}
        message Tokens {{ repeated int32 ids = 1; }}
        service Tokenizer {{ rpc Tokenize(Text) returns (Tokens); }}"""
    return reviewed({"sources": {"flow/text.proto": source}}, "text = input.text")


def memory_kb(worker: Forked) -> int:
    """What the worker's process holds in memory now."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
