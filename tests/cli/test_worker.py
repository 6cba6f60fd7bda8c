"""`workflow-runs worker --handlers`: what cannot be served stops the start, before anything is opened."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import environment

_HEAD = "from streams.handlers import handler\n"


def start(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    settings = {"database_url": "postgresql://127.0.0.1:1/none", "roles": "runs", "health_bind": ""}
    command = [str(Path(sys.executable).with_name("workflow-runs")), "worker", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(settings), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nothing_of_this_name", "HANDLERS: my_handlers cannot be imported: ModuleNotFoundError"),
        ("@handler('a.A/B')\ndef one(r, c): ...\n@handler('a.A/B')\ndef two(r, c): ...", "a.A/B is served twice, at "),
    ],
)
def test_modules_beside_the_worker_are_found_and_what_cannot_be_served_stops_the_start(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "my_handlers.py").write_text(_HEAD + text)

    ended = start(tmp_path, "--handlers", "my_handlers")

    assert ended.returncode == 2
    assert problem in ended.stderr
    assert "Traceback" not in ended.stderr
