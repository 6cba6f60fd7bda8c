"""The definition that a command is given as a file, with the schemas that it names in place of their names."""

from dataclasses import dataclass
from pathlib import Path

from schemas.errors import InputInvalid
from streams.kafka.registry import SchemaRegistry
from streams.parts.engine import build_targets
from streams.settings import Settings
from streams.sources.definition_files import DefinitionFile, read_definition_file
from streams.sources.fetched_schemas import Fetcher
from streams.sources.schema_files import embedded


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as verbs take it, and the file that it came from."""

    document: object
    file: DefinitionFile

    @property
    def path(self) -> Path:
        """Where it was read."""
        return self.file.path

    def line_of(self, pointer: str) -> int | None:
        """The line of its file that a JSON pointer leads to; None if unknown."""
        return self.file.line_of(pointer)


async def load_definition(path: Path, settings: Settings) -> Definition:
    """Read a definition, and whatever schema it names by path, by reflection or by subject.

    Raises:
        InputInvalid: the file or what it names cannot be used; the sentence begins with file and line.
        RegistryUnavailable, CallFailed: what it names gave no answer; call again.
    """
    file = read_definition_file(path)
    try:
        document = embedded(file.document, file.folder)
        return Definition(await build_fetcher(settings).fetched(document), file)
    except InputInvalid as error:
        line = file.line_of(error.pointer) if error.pointer else None
        place = f"{path}:{line}" if line is not None else str(path)
        raise InputInvalid(f"{place}: {error}", pointer=error.pointer, code=error.code) from None


def build_fetcher(settings: Settings) -> Fetcher:
    """Build what fetches schemas from services and the registry of the settings; it asks nothing by itself."""
    return Fetcher(lambda: build_targets(settings), lambda: SchemaRegistry.from_settings(settings))
