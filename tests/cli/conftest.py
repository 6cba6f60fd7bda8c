"""Commands, run in this process as the console script runs them."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from streams.cli.main import main


@dataclass(frozen=True)
class Printed:
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Printed]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command, without any setting of this machine."""
    for name in list(os.environ):
        if name.startswith("WORKFLOW_RUNS_"):
            monkeypatch.delenv(name)

    def run(*arguments: str) -> Printed:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Printed(code, captured.out, captured.err)

    return run


@pytest.fixture
def on_store(run: Run, monkeypatch: pytest.MonkeyPatch, database_url: str) -> Run:
    """The same on the test's own database."""
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", database_url)
    return run
