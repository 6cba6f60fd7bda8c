"""Commands about definitions: files in YAML or JSON, findings with their lines, runs and descriptions."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from streams.cli.exits import Exit
from streams.dev.protoc import compile_protos
from streams.dev.registry.server import RegistryServer
from streams.workflow.descriptors import SchemaSet
from tests.cli.conftest import Run
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, embed_reviewed_text, embed_text
from tests.fixtures.grpc_server import ScriptedServer
from tests.web.conftest import opened_door

PROTO = embed_text()["schema"]["sources"]["text.proto"]
GOOD = """\
name: embed-text
schema: {protoFiles: [text.proto]}
inputType: text.v1.Text
steps:
  - name: tokenize
    target: tokenizer
    method: text.v1.Tokenizer/Tokenize
    rules:
      - text = input.text
  - name: embed
    target: embedder
    method: text.v1.Embedder/Embed
    rules: [tokens = tokenize.tokens]
    when: size(tokenize.tokens) > 0
output:
  type: text.v1.Result
  rules:
    - text = input.text
    - vector = embed.vector
"""
BROKEN = GOOD.replace("text = input.text\n  - name", "text = nowhere.text\n  - name").replace("> 0", "> nothing")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Write a definition beside the .proto file that it names."""
    (tmp_path / "text.proto").write_text(PROTO)

    def write(text: str, name: str = "embed.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


Write = Callable[..., str]


def test_a_file_in_yaml_is_checked_without_a_store(run: Run, write: Write) -> None:
    file = write(GOOD)

    sound = run("check-workflow", file)

    assert (sound.code, sound.out) == (Exit.DONE, f"{file} is sound\n")
    assert run("check-workflow", file, "--json").json == {"ok": True, "findings": []}


def test_every_finding_is_told_with_its_line_step_and_pointer(run: Run, write: Write) -> None:
    file = write(BROKEN)

    told = run("check-workflow", file)
    answer = run("check-workflow", file, "--json")

    assert told.code == answer.code == Exit.REFUSED
    first, second = told.err.splitlines()
    assert first.startswith(f"error: {file}:9: step tokenize: rule 'text = nowhere.text': ")
    assert first.endswith(" (/steps/0/rules/0)")
    assert second.startswith(f"error: {file}:14: step embed: ")
    assert second.endswith(" (/steps/1/when)")
    assert answer.json["file"] == file
    assert [(one["step"], one["kind"], one["line"]) for one in answer.json["findings"]] == [
        ("tokenize", "rule", 9),
        ("embed", "when", 14),
    ]


def test_a_finding_in_json_has_its_line_too(run: Run, write: Write) -> None:
    tokenize, embed = embed_text()["steps"]
    document = embed_text(steps=[{**tokenize, "rules": ["text = nowhere.text"]}, embed])
    file = write(json.dumps(document, indent=2), "embed.json")
    line = Path(file).read_text().splitlines().index('        "text = nowhere.text"') + 1

    assert f"{file}:{line}: step tokenize" in run("check-workflow", file).err


def test_what_is_no_definition_at_all_is_told_with_its_line(run: Run, write: Write) -> None:
    for text, fault in [
        (GOOD.replace("name: embed-text", "name: no"), ": line 1: no means different things"),
        (GOOD.replace("[text.proto]", "[../text.proto]"), ":2: "),
        (GOOD.replace("[text.proto]", "[nowhere.proto]"), ':2: there is no file "nowhere.proto"'),
    ]:
        file = write(text)
        told = run("check-workflow", file)
        assert (told.code, f"{file}{fault}" in told.err) == (Exit.USAGE, True), told.err
    missing = run("check-workflow", "nowhere.yaml")
    assert (missing.code, "there is no file nowhere.yaml" in missing.err) == (Exit.USAGE, True)


def test_a_file_in_yaml_is_put_submitted_checked_and_described_with_its_schema(on_store: Run, write: Write) -> None:
    file = write(GOOD)

    assert on_store("put-workflow", file, "--json").json["created"] is True
    assert on_store("put-workflow", file, "--json").json["created"] is False
    submitted = on_store("submit-workflow", "--file", file, "--input", '{"text": "a"}', "--json").json
    assert submitted["ok"] is True
    assert on_store("submit-workflow", "--name", "embed-text", "--input", '{"text": "a"}').code == Exit.DONE
    assert on_store("check-workflow", "embed-text").code == Exit.DONE
    assert on_store("check-workflow", "nobody-s").code == Exit.UNKNOWN_ID
    described = on_store("describe-workflow", "embed-text", "--json").json
    assert [step["method"] for step in described["steps"]] == [
        "text.v1.Tokenizer/Tokenize",
        "text.v1.Embedder/Embed",
    ]


def test_a_workflow_is_described_in_a_table_and_drawn(run: Run, write: Write) -> None:
    file = write(GOOD)

    table = run("describe-workflow", file)
    drawn = run("describe-workflow", file, "--mermaid")

    assert table.code == drawn.code == Exit.DONE
    [embed] = [" ".join(line.split()) for line in table.out.splitlines() if line.startswith("embed ")]
    shown = "embed call embedder text.v1.Embedder/Embed size(tokenize.tokens) > 0 text.v1.Tokens text.v1.Vector 1"
    assert embed == shown
    assert drawn.out.splitlines()[0] == "flowchart TD"
    assert drawn.out.splitlines()[-1] == "    when1 -->|no| output"


def test_a_workflow_is_run_here_and_now(
    run: Run, write: Write, grpc_server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grpc_server.script(TOKENIZE, TOKENS)
    grpc_server.script(EMBED, VECTOR)
    targets = tmp_path / "targets.yaml"
    targets.write_text("".join(f"{name}: {{address: '{grpc_server.target}'}}\n" for name in ("tokenizer", "embedder")))
    file = write(GOOD)

    without = run("run-workflow", file, "--input", '{"text": "a"}')
    assert (without.code, "TARGETS_FILE" in without.err) == (Exit.REFUSED, True)
    monkeypatch.setenv("WORKFLOW_RUNS_TARGETS_FILE", str(targets))
    done = run("run-workflow", file, "--input", '{"text": "a"}')
    assert (done.code, json.loads(done.out)) == (Exit.DONE, {"text": "a", "vector": [1.0]})
    assert done.err.splitlines() == ["tokenize: done", "embed: done", "output: text.v1.Result"]
    answer = run("run-workflow", file, "--input", '{"text": "a"}', "--json").json
    assert answer["steps"] == [{"name": "tokenize", "skipped": False}, {"name": "embed", "skipped": False}]
    parked = run("run-workflow", write(json.dumps(embed_reviewed_text()), "b.json"), "--input", '{"text": "a"}')
    assert (parked.code, "submit-workflow" in parked.err) == (Exit.REFUSED, True), parked.err


@contextmanager
def reflecting() -> Iterator[str]:
    """A server that tells the schema of the story by reflection, and its address."""
    pool = descriptor_pool.DescriptorPool()
    for file in compile_protos({"text.proto": PROTO}):
        pool.AddSerializedFile(file.SerializeToString())
    server = grpc.server(ThreadPoolExecutor(2))
    services = ("text.v1.Tokenizer", "text.v1.Embedder")
    servicer: Any = reflection.ReflectionServicer(services, pool)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(grace=None).wait()


def test_a_schema_is_fetched_by_reflection_into_a_file_or_straight_into_a_definition(
    on_store: Run, write: Write, tmp_path: Path
) -> None:
    with reflecting() as address:
        asked = write(GOOD.replace("{protoFiles: [text.proto]}", f'{{reflection: {{target: "{address}"}}}}'), "a.yaml")
        assert on_store("put-workflow", asked).code == Exit.DONE
        out = str(tmp_path / "text.binpb")
        assert on_store("schemas", "reflect", address, "--service", "text.v1.Embedder", "-o", out).code == Exit.DONE
        unknown = on_store("schemas", "reflect", address, "--service", "text.v1.Nobody", "-o", out)
        assert (unknown.code, "text.v1.Nobody" in unknown.err) == (Exit.UNKNOWN_ID, True)
    assert SchemaSet.from_bytes(Path(out).read_bytes()).method("text.v1.Embedder/Embed").name == "Embed"
    # The service is gone, and nobody needs it again: what it told is pinned.
    assert on_store("check-workflow", "embed-text").code == Exit.DONE
    assert on_store("submit-workflow", "--name", "embed-text", "--input", '{"text": "a"}').code == Exit.DONE
    away = on_store("check-workflow", asked)
    assert (away.code, "UNAVAILABLE" in away.err) == (Exit.UNAVAILABLE, True)
    assert on_store("check-workflow", write(GOOD.replace("protoFiles: [text.proto]", "descriptorSetFile: text.binpb")))


def test_a_schema_is_fetched_from_a_subject_into_a_file_or_straight_into_a_definition(
    run: Run, write: Write, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subject = f"{tmp_path.name}-value"
    with SchemaRegistryClient({"url": registry.url}) as theirs:
        theirs.register_schema(subject, Schema(PROTO, "PROTOBUF"))
    asked = write(GOOD.replace("protoFiles: [text.proto]", f"registrySubject: {{subject: {subject}}}"))
    unset = run("check-workflow", asked)
    assert (unset.code, "SCHEMA_REGISTRY_URL" in unset.err) == (Exit.USAGE, True)
    monkeypatch.setenv("WORKFLOW_RUNS_SCHEMA_REGISTRY_URL", registry.url)

    assert run("check-workflow", asked).code == Exit.DONE
    out = str(tmp_path / "text.binpb")
    assert run("schemas", "fetch", subject, "--out", out).code == Exit.DONE
    assert SchemaSet.from_bytes(Path(out).read_bytes()).message("text.v1.Text").full_name == "text.v1.Text"
    assert run("schemas", "fetch", subject, "--version", "7", "--out", out).code == Exit.USAGE


def test_commands_that_only_look_need_neither_targets_nor_handlers_nor_types(
    on_store: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(GOOD)
    for name, value in {"TARGETS_FILE": "/nowhere", "HANDLERS": "no.such", "TYPES_DIR": "/nowhere"}.items():
        monkeypatch.setenv(f"WORKFLOW_RUNS_{name}", value)

    assert on_store("list-jobs").code == on_store("check-workflow", file).code == Exit.DONE
    assert on_store("put-workflow", file).code == Exit.DONE
    assert on_store("run-workflow", file, "--input", "{}").code == Exit.USAGE
    by_type = write(GOOD.replace("protoFiles: [text.proto]", "type: text.v1.Text"))
    assert on_store("check-workflow", by_type).code == Exit.USAGE


def test_a_registered_type_stands_for_its_schema(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (types := tmp_path / "types").mkdir()
    files = descriptor_pb2.FileDescriptorSet(file=compile_protos({"text.proto": PROTO}))
    (types / "text.pb").write_bytes(files.SerializeToString())
    file = write(GOOD.replace("protoFiles: [text.proto]", "type: text.v1.Text"))

    unset = run("check-workflow", file)
    assert (unset.code, f"{file}:2: unknown type" in unset.err, "TYPES_DIR" in unset.err) == (Exit.REFUSED, True, True)
    monkeypatch.setenv("WORKFLOW_RUNS_TYPES_DIR", str(types))
    assert run("check-workflow", file).code == Exit.DONE


async def test_a_file_goes_to_a_worker_with_its_schema_and_comes_back_with_its_lines(
    database_url: str, write: Write, run: Run
) -> None:
    async with opened_door(database_url=database_url, roles="web") as door:
        put = await asyncio.to_thread(run, "put-workflow", write(GOOD), "--url", door.url)
        told = await asyncio.to_thread(run, "check-workflow", write(BROKEN), "--url", door.url)
    assert put.code == Exit.DONE
    assert (told.code, "embed.yaml:9: step tokenize" in told.err) == (Exit.REFUSED, True), told.err
