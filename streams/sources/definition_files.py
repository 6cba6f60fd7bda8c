"""Definitions in files, as YAML or JSON, and where in its file each part of one stands."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from schemas import strict_json, strict_yaml
from schemas.errors import ContractError, InputInvalid
from streams.workflow.json_values import pointer_to

MOST_BYTES: Final = 16 << 20
SUFFIXES: Final = (".json", ".yaml", ".yml")
"""What the names of definitions in a folder end with."""

_JSON: Final = re.compile(r"\s*[{\[]")


@dataclass(frozen=True)
class DefinitionFile:
    """One file that was read: `document` is what it says."""

    path: Path
    text: str
    document: object

    @property
    def folder(self) -> Path:
        """Where the paths that it names begin."""
        return self.path.parent

    def line_of(self, pointer: str) -> int | None:
        """The line, from 1 on, of the value that a JSON pointer leads to, or of what it stands in; None if unknown."""
        lines = self._lines
        while pointer and pointer not in lines:
            pointer = pointer.rpartition("/")[0]
        return lines.get(pointer)

    @cached_property
    def _lines(self) -> Mapping[str, int]:
        try:
            read = strict_yaml.parse(self.text)  # which reads nearly all JSON, too
        except ContractError:
            return {}
        return {pointer_to(path): line for path, line in read.lines.items()}


def read_definition_file(path: Path) -> DefinitionFile:
    """Read a file: as YAML where its name ends so, as JSON where it ends in `.json`, else as its first character says.

    Raises:
        InputInvalid: it cannot be read, or is not YAML or JSON as `schemas.strict_yaml` and `schemas.strict_json` have
            it; the sentence names the file, and the line where it has one.
    """
    text = _text(path)
    is_json = path.suffix == ".json" or (path.suffix not in SUFFIXES and _JSON.match(text) is not None)
    try:
        document = strict_json.parse(text) if is_json else strict_yaml.parse(text).value
    except ContractError as error:
        raise InputInvalid(f"{path}: {error}", code=error.code) from None
    return DefinitionFile(path, text, document)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputInvalid(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise InputInvalid(f"{path} has over {MOST_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputInvalid(f"{path} is not UTF-8: byte {error.start}") from None
