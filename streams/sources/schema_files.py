"""Schemas that a definition names by path: read from its folder and put into the definition, as it is stored.

A file may say `schema: {protoFiles: [shop.proto]}`, which becomes `sources` with all that is imported, or
`schema: {descriptorSetFile: shop.binpb}`, which becomes `descriptorSetBase64`. Nothing outside of the definition's
folder is ever read, whichever way a path or a link leads there.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from schemas.errors import InputInvalid
from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_DESCRIPTOR_SET_BYTES, MAX_DOCUMENT_BYTES

PROTO_FILES: Final = "protoFiles"
SET_FILE: Final = "descriptorSetFile"

_MOST_FILES: Final = 1_000
_IMPORT: Final = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?(["'])([^"'\n]+)\1\s*;""")
_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def embedded(document: object, folder: Path) -> object:
    """The definition with the files that its schema names in place of their paths; others as they are.

    Raises:
        InputInvalid: a path leads out of *folder*, to no file or to one too large; with the pointer of that path.
    """
    if not isinstance(document, Mapping) or not isinstance(schema := document.get("schema"), Mapping):
        return document
    for key, read in ((PROTO_FILES, _sources), (SET_FILE, _descriptor_set)):
        if key in schema:
            others = {name: value for name, value in schema.items() if name != key}
            return {**document, "schema": {**others, **read(schema[key], folder)}}
    return document


def _sources(given: object, folder: Path) -> dict[str, object]:
    pointer = f"/schema/{PROTO_FILES}"
    if not isinstance(given, list) or not given or not all(isinstance(path, str) for path in given):
        raise InputInvalid(f"{PROTO_FILES} must be a list of paths, with at least one", pointer=pointer)
    found: dict[str, object] = {}
    size = 0
    waiting = [(PurePosixPath(path).as_posix(), f"{pointer}/{index}", True) for index, path in enumerate(given)]
    for path, where, is_named in waiting:  # grows while it is walked
        if path in found:
            continue
        file = _inside(path, folder, where)
        if not is_named and not file.is_file():
            continue  # a well-known file, or one that the compiler will miss
        text = _text(_read(file, path, where, most=MAX_DOCUMENT_BYTES), path, where)
        size += len(text)
        if size > MAX_DOCUMENT_BYTES or len(found) >= _MOST_FILES:
            limit = f"{MAX_DOCUMENT_BYTES:,} bytes or {_MOST_FILES:,} files"
            raise InputInvalid(f"the .proto files are over the limit of {limit}", pointer=pointer)
        found[path] = text
        waiting += [(imported, where, False) for imported in _imports(text)]
    return {"sources": found}


def _descriptor_set(given: object, folder: Path) -> dict[str, object]:
    pointer = f"/schema/{SET_FILE}"
    if not isinstance(given, str):
        raise InputInvalid(f"{SET_FILE} must be a path, not {shown(given)}", pointer=pointer)
    data = _read(_inside(given, folder, pointer), given, pointer, most=MAX_DESCRIPTOR_SET_BYTES)
    return {"descriptorSetBase64": base64.b64encode(data).decode()}


def _imports(text: str) -> Iterator[str]:
    """The paths that a .proto text imports, in order; those in comments are none."""
    plain = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    return (match[2] for match in _IMPORT.finditer(plain))


def _text(content: bytes, path: str, pointer: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputInvalid(f"{shown(path)} is not UTF-8: byte {error.start}", pointer=pointer) from None


def _inside(path: str, folder: Path, pointer: str) -> Path:
    """The file of that path under *folder*, however links lead there."""
    parts = PurePosixPath(path)
    root = folder.resolve()
    file = (root / parts).resolve() if "\0" not in path else root.parent
    if not path or parts.is_absolute() or ".." in parts.parts or not file.is_relative_to(root):
        text = f"{shown(path)} is not inside of the definition's folder: paths are relative to it, without .."
        raise InputInvalid(text, pointer=pointer)
    return file


def _read(file: Path, path: str, pointer: str, *, most: int) -> bytes:
    if not file.is_file():
        raise InputInvalid(f"there is no file {shown(path)} in the definition's folder", pointer=pointer)
    try:
        with file.open("rb") as opened:
            content = opened.read(most + 1)
    except OSError as error:
        raise InputInvalid(f"{shown(path)} cannot be read: {error.strerror}", pointer=pointer) from None
    if len(content) > most:
        raise InputInvalid(f"{shown(path)} has over {most:,} bytes", pointer=pointer)
    return content
