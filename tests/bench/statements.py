"""The SQL of the raw limits: what the same rows cost when nothing but the statement is there."""

from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).with_name("sql")

OPTIONS: Final = "-c search_path=workflow_runs"
"""What a connection of a raw limit is opened with: the store's tables stand in this schema."""


@cache
def sql(name: str) -> bytes:
    """The text of `tests/bench/sql/<name>.sql`."""
    return (_FOLDER / f"{name}.sql").read_bytes()
