"""The compiler of .proto sources in its child process."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from schemas.errors import InputInvalid, ResourceExhausted
from streams.evaluator import protoc as module
from streams.evaluator.protoc import ProtocChild

SMALL = {"a/b.proto": 'syntax = "proto3"; package a; message B {}'}


def files(data: bytes) -> list[str]:
    return [file.name for file in descriptor_pb2.FileDescriptorSet.FromString(data).file]


def children() -> set[int]:
    """Live processes whose parent is this one."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == os.getpid() and stat[0] != "Z":
                found.add(int(entry.name))
    return found


async def test_sources_become_a_descriptor_set_with_their_imports() -> None:
    sources = {**SMALL, "c.proto": 'syntax = "proto3"; import "a/b.proto"; import "google/protobuf/any.proto";'}

    assert files(await ProtocChild()(sources, None)) == ["a/b.proto", "google/protobuf/any.proto", "c.proto"]


async def test_a_root_narrows_to_what_it_imports() -> None:
    sources = {**SMALL, "c.proto": 'syntax = "proto3"; import "a/b.proto";', "broken.proto": "nonsense"}

    assert files(await ProtocChild()(sources, "c.proto")) == ["a/b.proto", "c.proto"]
    assert files(await ProtocChild()(sources, "a/b.proto")) == ["a/b.proto"]


@pytest.mark.parametrize(
    "name", ["any", "struct", "timestamp", "duration", "empty", "field_mask", "wrappers", "descriptor"]
)
async def test_well_known_files_need_not_be_sent(name: str) -> None:
    source = {"a.proto": f'syntax = "proto3"; import "google/protobuf/{name}.proto";'}

    assert f"google/protobuf/{name}.proto" in files(await ProtocChild()(source, None))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "a/x.proto:1:1: "),
        ("\xed\xb3\xbf" * 5, "a/x.proto:1:1: "),
        ('syntax = "proto3"; import "missing.proto";', "missing.proto: File not found"),
        ('syntax = "proto3"; message A { Missing m = 1; }', '"Missing" is not defined'),
    ],
)
async def test_the_compilers_words_come_back_without_paths_of_this_machine(text: str, reason: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        await ProtocChild()({"a/x.proto": text}, None)

    error = caught.value
    assert (error.code, error.pointer) == ("compile-failed", "/schema/sources")
    assert reason in str(error)
    assert "workflow-runs-protoc" not in str(error)
    assert "WARNING" not in str(error)
    assert "site-packages" not in str(error)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/x.proto",
        "../x.proto",
        "a/../../x.proto",
        "a/./x.proto",
        "a//x.proto",
        "a\\x.proto",
        "a\0.proto",
        "x.txt",
        "x.proto/",
        ".proto",
        ".hidden.proto",
        "-I.proto",
        "--python_out=.proto",
        "@args.proto",
        "a b.proto",
        "é.proto",
        "x.proto\n",
        "a" * 300 + ".proto",
    ],
)
async def test_a_path_stays_inside_and_is_no_argument(path: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        await ProtocChild()({path: 'syntax = "proto3";'}, None)

    assert caught.value.code == "invalid-input"
    assert caught.value.pointer.startswith("/schema/sources/")


async def test_a_path_that_is_a_folder_too_is_refused() -> None:
    with pytest.raises(InputInvalid, match="both a source and a folder"):
        await ProtocChild()({"a.proto": "", "a.proto/b.proto": ""}, None)


async def test_more_sources_than_allowed_are_refused() -> None:
    with pytest.raises(InputInvalid, match="over the limit"):
        await ProtocChild()({f"{index}.proto": "" for index in range(module.MAX_SOURCES + 1)}, None)


async def test_a_file_outside_the_sources_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "secret.proto").write_text('syntax = "proto3"; message Secret {}')

    for path in (f"{tmp_path}/secret.proto", "../secret.proto"):
        with pytest.raises(InputInvalid):
            await ProtocChild()({"a.proto": f'syntax = "proto3"; import "{path}";'}, None)


@pytest.fixture
def hanging(tmp_path: Path) -> str:
    """A program in the interpreter's place that does nothing for a minute."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    return str(program)


async def test_a_compilation_past_its_time_is_stopped_and_leaves_nothing_behind(hanging: str) -> None:
    before = children()

    async with asyncio.timeout(10):
        with pytest.raises(InputInvalid, match=r"stopped after 0\.1 s") as caught:
            await ProtocChild(seconds=0.1, python=hanging)(SMALL, None)

    assert caught.value.code == "compile-failed"
    assert children() == before


async def test_a_cancelled_compilation_leaves_no_process_behind(hanging: str) -> None:
    before = children()
    task = asyncio.create_task(ProtocChild(python=hanging)(SMALL, None))
    async with asyncio.timeout(10):
        while children() == before:  # noqa: ASYNC110  there is no event for the start of a process
            await asyncio.sleep(0)

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert children() == before


async def test_no_more_than_a_few_children_run_at_once(hanging: str) -> None:
    before = children()
    child = ProtocChild(seconds=0.5, most_at_once=2, python=hanging)
    tasks = [asyncio.create_task(child({f"{index}.proto": ""}, None)) for index in range(4)]

    most = 0
    while not all(task.done() for task in tasks):
        most = max(most, len(children() - before))
        await asyncio.sleep(0.01)

    assert most == 2
    assert all(isinstance(task.exception(), InputInvalid) for task in tasks)


async def test_a_compiler_that_needs_more_memory_than_it_is_given_is_refused() -> None:
    fields = "".join(f"optional string field_{index} = {index + 1};" for index in range(15_000))

    with pytest.raises(InputInvalid, match="do not compile: the compiler") as caught:
        await ProtocChild(memory_bytes=40 << 20)({"a.proto": f'syntax = "proto3"; message A {{ {fields} }}'}, None)

    assert caught.value.code == "compile-failed"


async def test_an_interpreter_that_cannot_start_is_not_the_callers_fault() -> None:
    with pytest.raises(ResourceExhausted, match="cannot run here"):
        await ProtocChild(python="/nowhere/python")(SMALL, None)


@pytest.fixture
def environments(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The environment of every child that is started: one entry each."""
    seen: list[object] = []
    start = asyncio.create_subprocess_exec

    async def watched(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        seen.append(options["env"])
        return await start(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    return seen


async def test_the_child_gets_none_of_the_environment(environments: list[object]) -> None:
    await ProtocChild()(SMALL, None)

    assert environments == [{}]


async def test_the_same_sources_are_compiled_once_and_results_are_bounded(environments: list[object]) -> None:
    child = ProtocChild(kept=2)
    sources = [{"a.proto": f'syntax = "proto3"; package p{index};'} for index in range(3)]

    results = [await child(each, None) for each in sources]
    assert await child(sources[2], None) == results[2]
    assert len(environments) == 3

    assert await child(sources[0], None) == results[0]  # the oldest was let go
    assert len(environments) == 4


async def test_another_text_or_another_root_is_another_compilation(environments: list[object]) -> None:
    child = ProtocChild()

    await child(SMALL, None)
    await child({path: text + "// x" for path, text in SMALL.items()}, None)
    await child(SMALL, "a/b.proto")

    assert len(environments) == 3
