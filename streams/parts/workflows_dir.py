"""The definitions of WORKFLOWS_DIR, stored when a worker starts."""

from pathlib import Path

from schemas.errors import SettingsInvalid, WorkerError
from streams.sources.definition_files import SUFFIXES, read_definition_file
from streams.sources.schema_files import embedded
from streams.verbs.verbs import Verbs


async def store_workflows(folder: Path, verbs: Verbs) -> None:
    """Store every definition of *folder*, with the schemas that it names by path in the same folder.

    Raises:
        SettingsInvalid: one cannot be read or does not verify: a worker must not start on half of them.
    """
    files = sorted(file for file in folder.glob("*") if file.suffix in SUFFIXES and file.is_file())
    for file in files:
        try:
            read = read_definition_file(file)
            answer = await verbs.call("put-workflow", {"workflow": embedded(read.document, read.folder)})
        except WorkerError as error:
            raise SettingsInvalid([f"WORKFLOWS_DIR: {file}: {error}"]) from error
        if answer["ok"] is not True:
            raise SettingsInvalid([f"WORKFLOWS_DIR: {file}: {answer['error']}"])
