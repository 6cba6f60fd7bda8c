"""Looks at a database from outside while a worker is at work on it."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import psycopg

from tests.bench.statements import OPTIONS

_PATIENCE_SECONDS: Final = 120.0


class BenchFailed(RuntimeError):
    """Something did not do its work, so that there is nothing to measure; the message says what."""


class Watcher:
    """One connection. It counts its own transactions, so that they are not taken for the worker's."""

    def __init__(self, url: str, is_alive: Callable[[], bool]) -> None:
        """*is_alive* says whether what is watched still works."""
        self._connection = psycopg.connect(url, autocommit=True, options=OPTIONS, prepare_threshold=0)
        self._is_alive = is_alive
        self.looks = 0

    def number(self, query: bytes) -> float:
        """The number that *query* finds."""
        self.looks += 1
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return float(row[0])

    def wait_for(self, query: bytes, wanted: int, *, pause_seconds: float) -> float:
        """Wait until *query* finds the number *wanted*; return the time at which it did.

        Raises:
            BenchFailed: it does not, or whoever works on it has ended.
        """
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.number(query)) != wanted:
            if not self._is_alive():
                raise BenchFailed(f"the worker ended at {found:g} of {wanted}")
            if time.monotonic() > give_up_at:
                raise BenchFailed(f"after {_PATIENCE_SECONDS:g} s there are {found:g} of {wanted}")
            time.sleep(pause_seconds)
        return time.time()

    def notify(self) -> None:
        """Tell every worker that runs are due."""
        self.looks += 1
        self._connection.execute("select pg_notify('workflow_runs', 'ready')")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
