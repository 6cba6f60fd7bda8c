"""The statements of the store: one file each below `store/sql`, named by folder and file."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("store") / "sql"


@cache
def sql(name: str) -> bytes:
    """Return the text of a statement: `sql("moves/park")` is the file `store/sql/moves/park.sql`.

    Parameters stand as `%(name)s`, so a `%` may be nowhere else in the file, comments included.

    Raises:
        FileNotFoundError: there is no such statement.
    """
    return (_FOLDER / f"{name}.sql").read_bytes()


def statement_names() -> Iterator[str]:
    """Name every statement there is, in no particular order."""
    for folder in _FOLDER.iterdir():
        if folder.is_dir():
            yield from (f"{folder.name}/{file.name[:-4]}" for file in folder.iterdir() if file.name.endswith(".sql"))
