import re
from itertools import pairwise
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from schemas import generate, messages
from schemas.events import EventType, Status
from schemas.messages import INDEXES, WorkflowRunEvent

PROTO = generate.PROTO / "workflow_runs" / "v1" / "workflow_runs.proto"
FILE = WorkflowRunEvent.DESCRIPTOR.file


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_generated_code_is_what_the_compiler_makes_of_its_source(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    assert files_in(generate.GENERATED) == files_in(tmp_path)


def test_every_message_has_its_index_and_its_name() -> None:
    assert [message.DESCRIPTOR.name for message in INDEXES] == list(FILE.message_types_by_name)
    assert list(INDEXES.values()) == [(index,) for index in range(len(FILE.message_types_by_name))]
    assert sorted(messages.__all__) == sorted(["INDEXES", *FILE.message_types_by_name])


def test_the_enums_in_python_are_those_of_the_contract() -> None:
    numbers = dict(WorkflowRunEvent.Type.items())
    assert numbers.pop("TYPE_UNSPECIFIED") == 0
    assert numbers == {each.name: each.value for each in EventType}
    [status_line] = re.findall(r"Status of the run after this event: ([A-Z, or]+)\.", PROTO.read_text())
    assert set(re.findall(r"[A-Z]+", status_line)) == set(Status)


def test_every_message_field_and_value_says_what_it_means() -> None:
    lines = PROTO.read_text().splitlines()
    for before, line in pairwise(lines):
        stripped = line.strip()
        if re.match(r"(message|enum) ", stripped) or (re.search(r" = \d+;", stripped) and not line.startswith("    ")):
            assert before.strip().startswith("//"), line
        elif re.search(r" = \d+;", stripped):
            assert "//" in stripped, line


# What sinks ask of a topic: flat, no map, no repeated message, no union, no unsigned number, no cycle.
@pytest.mark.parametrize("message", [message.DESCRIPTOR for message in INDEXES], ids=lambda message: message.name)
def test_a_sink_takes_every_message_as_it_is(message: Descriptor) -> None:
    allowed = {
        FieldDescriptor.TYPE_STRING,
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_ENUM,
    }
    assert message.fields
    for field in message.fields:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", field.name)
        assert field.name not in {"user", "order", "table", "group", "select", "from", "to", "default", "check", "end"}
        assert not field.is_repeated
        if field.message_type is not None:
            assert field.message_type.full_name == "google.protobuf.Timestamp"
        else:
            assert field.type in allowed
    assert all(oneof.name.startswith("_") for oneof in message.oneofs)  # only what `optional` makes
