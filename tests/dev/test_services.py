"""The example services as processes of their own, and the workflow that calls them."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from streams.dev.ports import free_port
from streams.dev.processes import ChildProcess
from streams.dev.protoc import compile_protos
from streams.dev.services import WORKFLOWS
from streams.evaluator.evaluators import InProcessEvaluator
from streams.workflow.compiler import compile_definition
from tests.fixtures.eventually import eventually

TOKENIZE = "/acme.v1.Tokenizer/Tokenize"
EMBED = "/acme.v1.Embedder/Embed"


class Running:
    """A service process and what it recorded."""

    def __init__(self, name: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.log = folder / f"{name} calls.jsonl"
        command = [sys.executable, "-m", "streams.dev.services", name, "--port", str(self.port)]
        self.process = ChildProcess(
            name, [*command, "--calls", self.log, *options], log=folder / f"{name}.log", folder=WORKFLOWS.parents[2]
        )

    def start(self) -> None:
        self.process.start_on(self.port)

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def call(self, method: str, request: bytes, job_id: str = "j1", attempt: int = 0) -> bytes:
        metadata = (("job-id", job_id), ("step-name", "a-step"), ("attempt", str(attempt)))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            answer: bytes = await channel.unary_unary(method, bytes, bytes)(request, metadata=metadata, timeout=20)
            return answer


def _strings(*values: str) -> bytes:
    """A message whose field 1 has these strings."""
    return b"".join(b"\x0a" + bytes([len(value)]) + value.encode() for value in values)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Running("tokenizer", tmp_path_factory.mktemp("tokenizer"))
    with service.process:
        service.start()
        yield service


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Running("embedder", tmp_path_factory.mktemp("embedder"), "--slow-seconds", "5")
    with service.process:
        service.start()
        yield service


def _of(service: Running, job_id: str) -> list[Mapping[str, Any]]:
    return [call for call in service.calls() if call["job_id"] == job_id]


async def test_a_call_is_answered_and_recorded_with_its_metadata(tokenizer: Running) -> None:
    assert await tokenizer.call(TOKENIZE, _strings("a slow  bird"), "t1", attempt=2) == _strings("a", "slow", "bird")
    begun, ended = _of(tokenizer, "t1")
    assert (begun["event"], ended["event"]) == ("begun", "ended")
    assert {key: ended[key] for key in ("service", "job_id", "step", "attempt", "status")} == {
        "service": "acme.v1.Tokenizer",
        "job_id": "t1",
        "step": "a-step",
        "attempt": 2,
        "status": "OK",
    }
    assert ended["time"] >= begun["time"]


async def test_the_same_tokens_have_the_same_vector(embedder: Running) -> None:
    one, other = await embedder.call(EMBED, _strings("a", "b")), await embedder.call(EMBED, _strings("a", "c"))
    assert (len(one), len(other)) == (18, 18)
    assert one[:10] == other[:10]
    assert one != other


async def test_a_word_refuses_a_job_once(embedder: Running) -> None:
    request = _strings("unavailable-once", "hello")
    for job_id in ("u1", "u2"):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await embedder.call(EMBED, request, job_id)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert await embedder.call(EMBED, request, "u1", attempt=1)
    assert [call["status"] for call in _of(embedder, "u1")] == ["UNAVAILABLE", "UNAVAILABLE", "OK", "OK"]


async def test_a_slow_call_is_seen_in_flight_and_as_cancelled_when_its_caller_goes(embedder: Running) -> None:
    call = asyncio.create_task(embedder.call(EMBED, _strings("slow"), "s1"))
    await eventually(lambda: _of(embedder, "s1"), seconds=4)
    assert [entry["event"] for entry in _of(embedder, "s1")] == ["begun"]
    call.cancel()
    await eventually(lambda: len(_of(embedder, "s1")) == 2, seconds=4)
    assert _of(embedder, "s1")[1]["status"] == "CANCELLED"


async def test_the_example_workflow_verifies_and_says_what_its_proto_files_say() -> None:
    document = json.loads((WORKFLOWS / "embed-text.json").read_text())
    files = {str(path.relative_to(WORKFLOWS)): path.read_text() for path in WORKFLOWS.rglob("*.proto")}
    assert document["schema"]["sources"] == files

    async def protoc(sources: Mapping[str, str], root: str | None) -> bytes:
        return FileDescriptorSet(file=compile_protos(sources)).SerializeToString()

    compiled = await compile_definition(document, protoc=protoc, evaluator=InProcessEvaluator())
    assert [step.name for step in compiled.plan.steps] == ["tokenize", "embed", "review"]
