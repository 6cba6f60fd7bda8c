"""The README does what it says: its tour runs as it is written, and all that it names is there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from streams.cli.main import cli
from tests.docs.markdown import README, ROOT, blocks, links, named_files
from tests.docs.processes import running

TEXT = README.read_text("utf-8")
TOUR_SECONDS = 150
BETWEEN = "--- the next block ---"


@pytest.fixture
def fresh_folder(tmp_path: Path) -> Path:
    """A checkout as far as the tour sees it: a virtual environment, and nothing of another stack."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.mark.acceptance
@pytest.mark.embedded
@pytest.mark.timeout(300)
def test_the_tour_runs_as_it_is_written(fresh_folder: Path) -> None:
    with running("dev", folder=fresh_folder) as dev:
        dev.until("Everything runs", seconds=120)
        first, second, third = tour(fresh_folder, blocks(TEXT, "bash tour"))
        family = dev.family()
        dev.interrupt()
        assert dev.wait(seconds=30) == 130
        assert dev.left_behind(family) == []
        assert not (fresh_folder / ".cache/dev/env").exists()

    assert re.search(r"^embed-text +1 ", first, re.MULTILINE)
    assert re.search(r"^status +QUEUED$", first, re.MULTILINE)
    [job_id] = re.findall(r"^jobId +([0-9a-f-]{36})$", first, re.MULTILINE)
    listed, asked, answered, done = re.split(r"^jobId.*$|^ok .*$|^(?=\{)", second, flags=re.MULTILINE)[1:]
    assert re.search(rf"^{job_id} +embed-text +WAITING .* review +order-1", listed, re.MULTILINE)
    assert re.search(r'^composedRequest +\{"text": "a durable hello", "vector": \[', asked, re.MULTILINE)
    assert re.search(r"^status +QUEUED$", answered, re.MULTILINE)
    job = json.loads(done)["job"]
    assert (job["jobId"], job["status"]) == (job_id, "COMPLETED")
    assert (job["result"]["approved"], job["result"]["note"]) == (True, "looks good")
    assert re.search(rf"^{job_id} +embed-text +COMPLETED ", third, re.MULTILINE)
    assert '"status": "ok"' in third
    assert 'workflow_runs_moves_total{move="complete",result="applied"} 1.0' in third


def tour(folder: Path, commands: Sequence[str]) -> list[str]:
    """Run the blocks in one shell that stops at the first command that fails; return what each of them printed."""
    script = f"\necho '{BETWEEN}'\n".join(commands)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKFLOW_RUNS_")}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=TOUR_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.split(f"{BETWEEN}\n")


@pytest.mark.parametrize("target", sorted(set(links(TEXT))))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("name", sorted(set(named_files(TEXT))))
def test_every_file_it_names_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


def test_every_command_it_names_is_there() -> None:
    shown = "\n".join(blocks(TEXT, "bash") + blocks(TEXT, "bash tour"))
    words = r"(?: [a-z][a-z-]*+(?!\.))+"  # order.yaml is no command
    named = {tuple(found.split()) for found in re.findall(rf"^workflow-runs({words})", shown, re.MULTILINE)}
    named |= {tuple(found.split()) for found in re.findall(rf"`workflow-runs({words})", TEXT)}
    assert len(named) > 8
    for path in named:
        command: click.Command | None = cli
        for word in path:
            assert isinstance(command, click.Group), path
            command = command.get_command(click.Context(command), word)
            assert command is not None, path


def test_every_make_target_it_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z]+)|`make ([a-z]+)", TEXT, re.MULTILINE))
    assert {name for pair in named for name in pair if name} <= targets
