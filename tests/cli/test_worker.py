"""`workflow-runs worker --handlers`: what cannot be served stops the start, before anything is opened."""

import subprocess
import sys
from pathlib import Path

from tests.acceptance.processes import environment


def start(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    settings = {"database_url": "postgresql://127.0.0.1:1/none", "roles": "runs", "health_bind": ""}
    command = [str(Path(sys.executable).with_name("workflow-runs")), "worker", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(settings), capture_output=True, text=True, timeout=60, check=False
    )


def test_modules_beside_the_worker_are_found_and_what_cannot_be_served_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "doubled.py").write_text(
        "from streams.handlers import handler\n"
        "@handler('a.A/B')\ndef one(r, c): ...\n@handler('a.A/B')\ndef two(r, c): ...\n"
    )

    ended = start(tmp_path, "--handlers", "broken", "--handlers", "doubled")

    assert ended.returncode == 2
    assert "HANDLERS: broken cannot be imported: ModuleNotFoundError" in ended.stderr
    assert "HANDLERS: a.A/B is served twice, at " in ended.stderr
    assert "Traceback" not in ended.stderr
