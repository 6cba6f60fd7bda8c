"""Case D19: descriptor sets as people really make them, at every verb that takes one."""

import base64
import gzip
import io
import json
import os
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from google.protobuf import descriptor_pb2

from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.web.conftest import Door
from tests.workflow.samples import descriptor_set

ACCEPT = "/depot.Intake/Accept"
PARCEL = {"label": "p-1"}

_KEPT = ("run", "run_input", "event", "relay_queue", "definition", "workflow", "dead_letter")


def workflow(data: bytes | str, target: str = "127.0.0.1:1", **changes: object) -> dict[str, Any]:
    """The parcel workflow over that set, given as its bytes or as the text to send."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    step = {"name": "accept", "target": target, "method": "depot.Intake/Accept", "rules": ["label = input.label"]}
    document = {
        "name": "parcel-flow",
        "schema": {"descriptorSetBase64": text},
        "inputType": "depot.Parcel",
        "steps": [step],
    }
    return {**document, **changes}


async def rows(database_url: str) -> dict[str, int]:
    """How many rows each table has that a submission or a put writes to."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        counts = {}
        for table in _KEPT:
            cursor = await connection.execute(f"select count(*) from workflow_runs.{table}".encode())
            [counts[table]] = await cursor.fetchone() or [0]
        return counts


async def refused(door: Door, database_url: str, document: dict[str, Any], *words: str) -> None:
    """Every verb refuses the document, each of *words* is in the first finding, and nothing is written."""
    for verb in ("check-workflow", "put-workflow", "submit-workflow", "run-workflow"):
        more = {"input": PARCEL} if verb in ("submit-workflow", "run-workflow") else {}
        answer = await door.ok(verb, {"workflow": document, **more})
        assert (answer["ok"], answer["code"]) == (False, "findings"), verb
        for word in words:
            assert word in answer["findings"][0]["error"], answer["findings"]
    assert set((await rows(database_url)).values()) == {0}


@pytest.mark.case("D19")
@pytest.mark.parametrize("name", ["parcel_dependants_first", "parcel_same_file_twice", "parcel_no_well_known"])
async def test_d19_a_set_in_any_order_twice_or_without_what_everybody_has_runs(
    name: str, door: Door, grpc_server: ScriptedServer
) -> None:
    grpc_server.script(ACCEPT, Answer(b""))

    answer = await door.ok(
        "submit-workflow", {"workflow": workflow(descriptor_set(name), grpc_server.target), "input": PARCEL}
    )

    assert answer["ok"] is True, answer
    await door.until_status(answer["jobId"], "COMPLETED")
    [call] = grpc_server.calls(ACCEPT)
    assert b"p-1" in call.request


@pytest.mark.case("D19")
async def test_d19_a_set_that_cannot_be_used_is_refused_naming_the_file_and_nothing_is_written(
    door: Door, database_url: str
) -> None:
    for name, words in {
        "parcel_no_imports": ("depot/parcel.proto", "depot/base.proto"),
        "parcel_altered_timestamp": ("google/protobuf/timestamp.proto",),
        "text_conflict_inside_set": ("flow/text.proto",),
        "import_cycle": ("loop/a.proto", "loop/b.proto"),
        "not_a_descriptor_set": ("not a serialized FileDescriptorSet",),
        "empty": ("no files",),
    }.items():
        await refused(door, database_url, workflow(descriptor_set(name)), *words)


def with_line_breaks(data: bytes) -> str:
    return base64.encodebytes(data).decode()


def for_urls(data: bytes) -> str:
    # Three bytes more make characters of the other alphabet; they are a field that nobody knows.
    text = base64.urlsafe_b64encode(data + b"\xfa\x3f\x03\xff\xfe\xff").decode()
    assert {"-", "_"} & set(text)
    return text


def compressed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data)).decode()


@pytest.mark.case("D19")
@pytest.mark.parametrize(
    ("encode", "word"),
    [
        (with_line_breaks, "standard alphabet, no line breaks"),
        (for_urls, "standard alphabet, no line breaks"),
        (compressed, "looks gzip-compressed: send it unpacked"),
    ],
)
async def test_d19_other_ways_to_write_the_bytes_are_refused_with_the_way_out(
    encode: Callable[[bytes], str], word: str, door: Door, database_url: str
) -> None:
    await refused(door, database_url, workflow(encode(descriptor_set("parcel_full"))), word)


@pytest.mark.case("D19")
async def test_d19_a_set_of_20_mb_is_too_large_and_the_worker_goes_on(door: Door, database_url: str) -> None:
    document = workflow(os.urandom(20_000_000))
    for verb in ("submit-workflow", "put-workflow", "check-workflow"):
        body = io.BytesIO(json.dumps({"workflow": document, "input": PARCEL}).encode())
        sent = {"Content-Type": "application/json"}
        async with door.session.post(f"{door.url}/verbs/{verb}", data=body, headers=sent) as response:
            problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["error"]) == (413, "invalid-input")
        assert "too large" in problem["message"]
    assert set((await rows(database_url)).values()) == {0}


@pytest.mark.case("D19")
async def test_d19_types_and_methods_that_are_none_are_refused_by_name(door: Door, database_url: str) -> None:
    full = descriptor_set("parcel_full")
    for input_type, words in {
        ".depot.Parcel": (".depot.Parcel", "without a leading dot"),
        "depot.Intake": ("depot.Intake", "that is a service"),
        "depot.Parcell": ("depot.Parcell", "did you mean depot.Parcel"),
    }.items():
        await refused(door, database_url, workflow(full, inputType=input_type), "inputType", *words)

    files = descriptor_pb2.FileDescriptorSet.FromString(full)
    for file in files.file:
        for service in file.service:
            for method in service.method:
                method.server_streaming = True
    streaming = workflow(files.SerializeToString())
    await refused(door, database_url, streaming, "depot.Intake/Accept is a streaming method", "add one that answers")
