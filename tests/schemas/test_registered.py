import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from schemas.errors import ContractError
from schemas.messages import WorkflowRunEvent
from schemas.registered import CONTRACT_VERSION, schema_text

# Published texts. A line is added with each contract version, and none is ever changed.
PUBLISHED = {1: "d348fee7c45d3dbf2713caecd8169ca94d3ec0f8f519d549306123687946eca2"}


def compiled(text: str, folder: Path) -> FileDescriptorProto:
    name = WorkflowRunEvent.DESCRIPTOR.file.name
    source = folder / name
    source.parent.mkdir(parents=True)
    source.write_text(text, encoding="utf-8")
    target = folder / "set"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={target}", name]
    subprocess.run(command, check=True)
    [file] = FileDescriptorSet.FromString(target.read_bytes()).file
    return file


def test_a_published_text_never_changes() -> None:
    found = {
        version: hashlib.sha256(schema_text(version).text.encode()).hexdigest()
        for version in range(1, CONTRACT_VERSION + 1)
    }
    assert found == PUBLISHED


def test_the_newest_text_is_the_contract_that_the_code_was_made_of(tmp_path: Path) -> None:
    contract = FileDescriptorProto()
    WorkflowRunEvent.DESCRIPTOR.file.CopyToProto(contract)
    for message in contract.message_type:
        for field in message.field:
            field.ClearField("json_name")
    text = compiled(schema_text().text, tmp_path)
    for message in text.message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert text == contract


def test_a_text_has_no_comments() -> None:
    assert "//" not in schema_text().text
    assert "/*" not in schema_text().text


@pytest.mark.parametrize("version", [0, CONTRACT_VERSION + 1])
def test_a_version_of_another_release_is_refused(version: int) -> None:
    with pytest.raises(ContractError) as refused:
        schema_text(version)
    assert refused.value.code == "contract-version"
