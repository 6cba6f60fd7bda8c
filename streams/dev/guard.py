"""Ends child processes and removes temporary folders when the process that owns them is gone, however it ended.

The guard is a process of its own that reads a pipe from its owner. A SIGKILL of the owner closes the pipe as surely as
an orderly end does; asking the kernel for a signal at the parent's death would follow the thread that started the child
and exists on Linux alone.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_GRACE_SECONDS: Final = 5.0


class GuardGone(RuntimeError):
    """The guard itself was killed: nothing can be watched any more."""


class Guard:
    """Watches over process groups, and owns temporary folders, until `close`."""

    def __init__(self) -> None:
        self._folders: list[Path] = []
        self._process = subprocess.Popen(
            # Isolated and without site-packages: it starts in a hundredth of a second.
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The guard's own process id."""
        return self._process.pid

    def make_folder(self, name: str, *, parent: Path | None = None, mode: int = 0o700) -> Path:
        """Make a folder below `parent` (the system's temporary folder when absent) that goes when the guard goes."""
        folder = Path(tempfile.mkdtemp(prefix=f"workflow-runs-{name}-", dir=parent)).absolute()
        self._folders.append(folder)
        self._tell(f"folder {folder}\n")
        folder.chmod(mode)
        return folder

    def watch(self, group: int, last_signal: signal.Signals) -> None:
        """From now on the process group gets `last_signal` when the owner is gone, and SIGKILL 5 s later."""
        self._tell(f"watch {group} {last_signal:d}\n")

    def forget(self, group: int) -> None:
        """The process group has ended: its number may stand for another one soon."""
        with contextlib.suppress(GuardGone):
            self._tell(f"forget {group}\n")

    def close(self) -> None:
        """Remove the folders and dismiss the guard; it ends no process. To close twice is harmless."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            os.write(pipe.fileno(), line.encode())
        except BrokenPipeError:
            raise GuardGone("the guard of the child processes was killed from outside") from None


def _keep_watch() -> None:
    watched: dict[int, int] = {}
    folders: list[str] = []
    for line in sys.stdin:
        match line.rstrip("\n").split(" ", 1):
            case ["watch", rest]:
                group, last_signal = rest.split()
                watched[int(group)] = int(last_signal)
            case ["forget", group]:
                watched.pop(int(group), None)
            case ["folder", folder]:
                folders.append(folder)
    _end(watched)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _end(watched: dict[int, int]) -> None:
    deadline = time.monotonic() + _GRACE_SECONDS
    alive = {group for group, last_signal in watched.items() if _send(group, last_signal)}
    for group in alive:
        _send(group, signal.SIGCONT)  # a paused process acts on no signal but SIGKILL
    while alive and time.monotonic() < deadline:
        time.sleep(0.02)
        alive = {group for group in alive if _send(group, 0)}
    for group in alive:
        _send(group, signal.SIGKILL)


def _send(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    _keep_watch()
