"""A command as somebody runs it in a terminal, and what it leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.docs.markdown import ROOT

# What watches over child processes ends them within five seconds when their owner could not.
_LAST_SECONDS = 8.0


class Command:
    """A running `workflow-runs` command. `output` is what it has printed so far, errors included."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, mark: str) -> None:
        self._process = process
        self._log = log
        self._mark = mark

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    def until(self, printed: str, *, seconds: float) -> None:
        """Wait until it has printed that; fail when it ends before, or does not in time."""
        self._until(lambda: printed in self.output, f"{printed!r} is not printed", seconds)

    def wait(self, *, seconds: float) -> int:
        """Wait for its end and return its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds:g} s:\n{self.output}") from None

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def family(self) -> dict[int, str]:
        """Every process that descends from it, itself included, with the time of its start."""
        return _descendants(self._process.pid)

    def left_behind(self, family: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """Wait a little for the rest of *family* and for whatever else it started; return what still runs then."""
        deadline = time.monotonic() + _LAST_SECONDS
        while (left := [*_alive(family), *_marked(self._mark)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _until(self, holds: Callable[[], bool], otherwise: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if self._process.poll() is not None:
                raise AssertionError(f"it ended with {self._process.returncode}:\n{self.output}")
            if time.monotonic() > deadline:
                raise AssertionError(f"after {seconds:g} s {otherwise}:\n{self.output}")
            time.sleep(0.02)


@contextlib.contextmanager
def running(*arguments: str, folder: Path) -> Iterator[Command]:
    """Run `workflow-runs` with these arguments in *folder*, for as long as the block lasts."""
    log = folder / f"{arguments[0]}.out"
    mark = f"RUN_OF_A_TEST={uuid.uuid4()}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKFLOW_RUNS_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", *arguments],
            cwd=folder,
            env={**inherited, "PYTHONPATH": str(ROOT), **dict([mark.split("=")])},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    command = Command(process, log, mark)
    try:
        yield command
    finally:
        if process.poll() is None:
            command.interrupt()
            with contextlib.suppress(AssertionError):
                command.wait(seconds=20)
        process.kill()
        process.wait()


def _alive(family: Mapping[int, str]) -> list[str]:
    return [_command_line(pid) for pid, started in family.items() if _started(pid) == started]


def _marked(mark: str) -> list[str]:
    """Whatever has *mark* in its environment; a server that hides its own is found by its family alone."""
    return [_command_line(pid) for pid in _all() if mark in _environment(pid) and _started(pid) is not None]


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _descendants(pid: int) -> dict[int, str]:
    parents = {one: _parent(one) for one in _all()}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: started for one in found if (started := _started(one)) is not None}


def _stat(pid: int) -> list[str] | None:
    """The fields of a process after its name; None when it is gone, or has ended and only waits for its parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def _started(pid: int) -> str | None:
    fields = _stat(pid)
    return None if fields is None else fields[19]


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return str(pid)
