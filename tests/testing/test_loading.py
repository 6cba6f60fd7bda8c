"""The testing kit: where a workflow under test comes from, and the types that its schema may name."""

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from schemas.errors import DefinitionInvalid, InputInvalid, SettingsInvalid
from streams.dev.protoc import compile_protos
from streams.testing import Workflow
from tests.workflow.notices import SOURCE, wait


def test_a_definition_is_read_from_yaml_with_the_schema_that_it_names_by_path(tmp_path: Path) -> None:
    (tmp_path / "notice.proto").write_text(SOURCE)
    (tmp_path / "notices.yaml").write_text("""
schema: {protoFiles: [notice.proto]}
inputType: notice.v1.Order
steps:
  - name: tell
    publish: {topic: notices, type: notice.v1.Notice}
    rules: [number = input.number]
""")
    [published] = Workflow.load(tmp_path / "notices.yaml").run({"number": "7"}).published
    assert published.value == {"text": "", "number": "7"}

    (tmp_path / "notices.yaml").write_text("steps: []\nsteps: []\n")
    with pytest.raises(InputInvalid, match=r"notices\.yaml: .*steps"):
        Workflow.load(str(tmp_path / "notices.yaml"))


def test_a_schema_may_name_a_type_of_a_folder_or_of_a_module(tmp_path: Path) -> None:
    files = FileDescriptorSet(file=compile_protos({"notice.proto": SOURCE}))
    (tmp_path / "notice.binpb").write_bytes(files.SerializeToString())
    step = {"name": "tell", "publish": {"topic": "notices", "type": "notice.v1.Notice"}, "rules": ['text = "a"']}
    named = {"schema": {"type": "notice.v1.Order"}, "inputType": "notice.v1.Order", "steps": [step]}
    [published] = Workflow.load(named, types_dir=tmp_path).run({"number": "7"}).published
    assert published.value == {"text": "a", "number": ""}
    stamped = {
        "schema": {"type": "google.protobuf.Timestamp"},
        "inputType": "google.protobuf.Timestamp",
        "steps": [wait()],
    }
    loaded = Workflow.load(stamped, types_modules=["google.protobuf.timestamp_pb2"])
    assert loaded.run('"2026-01-01T00:00:00Z"').status == "COMPLETED"

    with pytest.raises(DefinitionInvalid, match="unknown type"):
        Workflow.load(named)
    with pytest.raises(SettingsInvalid, match="is not a folder"):
        Workflow.load(named, types_dir=tmp_path / "none")
