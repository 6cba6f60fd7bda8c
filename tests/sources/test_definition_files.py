"""Definitions in files: YAML or JSON, with lines, and schemas by path that never lead out of their folder."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import InputInvalid
from streams.sources.definition_files import MOST_BYTES, read_definition_file
from streams.sources.schema_files import embedded
from streams.workflow.limits import MAX_DOCUMENT_BYTES

YAML = """\
name: ship  # a comment
steps:
  - name: one
    rules:
      - s = "a+=b"
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_proto", ".proto")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def schema(document: object, folder: Path) -> Any:
    read: Any = embedded(document, folder)
    return read["schema"]


def refused(document: object, folder: Path) -> InputInvalid:
    with pytest.raises(InputInvalid) as caught:
        embedded(document, folder)
    return caught.value


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.txt", "a"])
def test_yaml_is_read_with_the_line_of_each_part(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(YAML)

    file = read_definition_file(tmp_path / name)

    assert file.document == {"name": "ship", "steps": [{"name": "one", "rules": ['s = "a+=b"']}]}
    assert [file.line_of(pointer) for pointer in ("", "/steps/0/rules/0", "/steps/0/target", "/output")] == [1, 5, 3, 1]


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a"])
def test_json_is_read_with_lines_too(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{\n\t"name": "ship",\n\t"steps": [\n\t\t{"name": "one"}\n\t]\n}\n')

    file = read_definition_file(tmp_path / name)

    assert file.document == {"name": "ship", "steps": [{"name": "one"}]}
    assert [file.line_of(pointer) for pointer in ("/name", "/steps/0/name", "/steps/1")] == [2, 4, 3]


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.yaml", b"a: yes", "line 1: yes means different things"),
        ("a.json", b"a: 1", "not JSON"),
        ("a.json", b'{"a": 1, "a": 2}', "occurs twice"),
        ("a.yaml", b"\xff", "is not UTF-8: byte 0"),
        ("a.yaml", b" " * (MOST_BYTES + 1), "has over"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name: str, content: bytes, fault: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InputInvalid, match=fault) as caught:
        read_definition_file(tmp_path / name)

    assert str(caught.value).startswith(str(tmp_path / name))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="cannot be read"):
        read_definition_file(tmp_path)


def test_files_that_a_schema_names_are_embedded_with_what_they_import(tmp_path: Path) -> None:
    write(
        tmp_path,
        shop_proto='import "common/money.proto"; import public \'b.proto\';\n// import "no.proto";\n'
        'import "google/protobuf/any.proto";',
        common__money_proto='import "b.proto"; /* import "no.proto"; */',
        b_proto="message B {}",
        no_proto="message No {}",
    )

    given = schema({"schema": {"protoFiles": ["./shop.proto"], "root": "shop.proto"}, "name": "x"}, tmp_path)

    assert sorted(given["sources"]) == ["b.proto", "common/money.proto", "shop.proto"]
    assert given["sources"]["b.proto"] == "message B {}"
    assert (given["root"], sorted(given)) == ("shop.proto", ["root", "sources"])


def test_a_descriptor_set_is_embedded_in_base64(tmp_path: Path) -> None:
    (tmp_path / "set.binpb").write_bytes(b"\x0a\x00")

    given = schema({"schema": {"descriptorSetFile": "set.binpb"}}, tmp_path)

    assert base64.b64decode(given["descriptorSetBase64"]) == b"\x0a\x00"


@pytest.mark.parametrize("document", [None, [], {}, {"schema": []}, {"schema": {"type": "a.B"}}])
def test_what_names_no_file_stays_as_it_is(document: object, tmp_path: Path) -> None:
    assert embedded(document, tmp_path) == document


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../secret.proto", "a/../../secret.proto", "", ".", "link.proto", "folder/secret.proto", "a\0b"],
)
@pytest.mark.parametrize("key", ["protoFiles", "descriptorSetFile"])
def test_no_path_and_no_link_leads_out_of_the_folder(key: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.proto").write_text("message Secret {}")
    (folder := tmp_path / "inner").mkdir()
    os.symlink(tmp_path / "secret.proto", folder / "link.proto")
    os.symlink(tmp_path, folder / "folder")

    error = refused({"schema": {key: [path] if key == "protoFiles" else path}}, folder)

    assert "Secret" not in str(error)
    assert error.pointer.startswith(f"/schema/{key}")


@pytest.mark.parametrize("path", ["../secret.proto", "/etc/passwd", "link.proto"])
def test_no_import_leads_out_of_the_folder_either(path: str, tmp_path: Path) -> None:
    (tmp_path / "secret.proto").write_text("message Secret {}")
    (folder := tmp_path / "inner").mkdir()
    os.symlink(tmp_path / "secret.proto", folder / "link.proto")
    (folder / "a.proto").write_text(f'import "{path}";')

    error = refused({"schema": {"protoFiles": ["a.proto"]}}, folder)

    assert "not inside of the definition's folder" in str(error)
    assert error.pointer == "/schema/protoFiles/0"


@pytest.mark.parametrize(
    ("given", "fault", "pointer"),
    [
        ({"protoFiles": []}, "a list of paths", "/schema/protoFiles"),
        ({"protoFiles": "a.proto"}, "a list of paths", "/schema/protoFiles"),
        ({"protoFiles": [1]}, "a list of paths", "/schema/protoFiles"),
        ({"protoFiles": ["b.proto", "nowhere.proto"]}, 'no file "nowhere.proto"', "/schema/protoFiles/1"),
        ({"protoFiles": ["latin.proto"]}, "not UTF-8", "/schema/protoFiles/0"),
        ({"protoFiles": ["large.proto"]}, "has over", "/schema/protoFiles/0"),
        ({"protoFiles": ["half.proto", "other.proto"]}, "over the limit", "/schema/protoFiles"),
        ({"descriptorSetFile": 5}, "must be a path", "/schema/descriptorSetFile"),
        ({"descriptorSetFile": "nowhere"}, "there is no file", "/schema/descriptorSetFile"),
    ],
)
def test_a_file_that_cannot_be_embedded_is_told_with_its_pointer(
    given: dict[str, object], fault: str, pointer: str, tmp_path: Path
) -> None:
    (tmp_path / "b.proto").write_text("message B {}")
    (tmp_path / "latin.proto").write_bytes(b"// \xe9")
    (tmp_path / "large.proto").write_text(" " * (MAX_DOCUMENT_BYTES + 1))
    for name in ("half", "other"):
        (tmp_path / f"{name}.proto").write_text(" " * (MAX_DOCUMENT_BYTES // 2 + 1))

    error = refused({"schema": given}, tmp_path)

    assert fault in str(error)
    assert error.pointer == pointer


def test_files_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, a_proto='import "b.proto";', b_proto='import "a.proto";')

    assert sorted(schema({"schema": {"protoFiles": ["a.proto"]}}, tmp_path)["sources"]) == ["a.proto", "b.proto"]
