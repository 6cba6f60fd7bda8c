"""Child processes of the development stack: started with a log and a deadline, and never left behind."""

import contextlib
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from streams.dev.guard import Guard
from streams.dev.ports import accepts

_POLL_SECONDS: Final = 0.01
_TAIL_BYTES: Final = 4_000


class StartFailed(RuntimeError):
    """A server could not be started on this machine; the message ends with what it wrote to its log."""


@contextlib.contextmanager
def interrupt_held_back() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block: between a child's birth and the note of it, the child would be lost."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])


class ChildProcess:
    """One server or worker as a child process; it can be stopped, killed and started again.

    It leads a process group of its own, so that Ctrl-C on the terminal reaches us alone and we decide. When we die
    without stopping it, a guard sends `last_signal` to its group. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        user: pwd.struct_passwd | None = None,
        guard: Guard | None = None,
        last_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Describe the process; nothing is started yet.

        Args:
            name: How errors call it.
            log: Its standard output and error go to this file, appended over restarts.
            folder: Its working folder; the root folder when absent.
            environment: The whole of it; ours when absent.
            user: Whom it runs as (only root may say so); ourselves when absent.
            guard: A guard shared with others, which the caller closes; one of its own when absent.
        """
        self.name = name
        self.log = log
        self._command = [str(part) for part in command]
        self._folder = folder or Path("/")
        self._environment = environment
        self._user = user
        self._shared_guard = guard
        self._own_guard: Guard | None = None
        self._last_signal = last_signal
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, ready: Callable[[], bool] | None = None, deadline_seconds: float = 30.0) -> None:
        """Start it and wait until `ready` says true; without `ready`, do not wait.

        Raises:
            StartFailed: it ended, or was not ready within the deadline. Nothing of it is left running.
        """
        if self.running:
            raise RuntimeError(f"{self.name} is running already")
        guard = self._guard
        with self.log.open("ab") as log, interrupt_held_back():
            self._process = self._spawn(log.fileno())
            try:
                guard.watch(self._process.pid, self._last_signal)
            except BaseException:
                self.kill()
                raise
        if ready is not None:
            self.wait_until(ready, deadline_seconds=deadline_seconds)

    def start_on(self, port: int, *, deadline_seconds: float = 30.0) -> None:
        """Start it and wait until it accepts connections on this port of 127.0.0.1.

        Raises:
            StartFailed: as `start`, or another program listens there already.
        """
        if accepts(port):
            raise StartFailed(f"{self.name} cannot start: port {port} is taken")
        self.start(ready=lambda: accepts(port), deadline_seconds=deadline_seconds)

    def wait_until(self, ready: Callable[[], bool], *, deadline_seconds: float) -> None:
        """Wait until `ready` says true of the started process.

        Raises:
            StartFailed: it ended, or was not ready within the deadline. Nothing of it is left running.
        """
        deadline = time.monotonic() + deadline_seconds
        try:
            while not ready():
                if not self.running:
                    raise StartFailed(f"{self.name} ended with {self.returncode} before it was ready:\n{self.tail()}")
                if time.monotonic() > deadline:
                    raise StartFailed(f"{self.name} was not ready in {deadline_seconds} s:\n{self.tail()}")
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self.kill()
            raise

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self.returncode is None

    @property
    def pid(self) -> int:
        """Its process id, also the id of its group."""
        return self._started.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, minus the signal that ended it, or None while it runs."""
        code = self._started.poll()
        if code is not None:
            self._guard.forget(self._started.pid)
        return code

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone; nothing happens when it has ended."""
        self._started.send_signal(number)

    def pause(self) -> None:
        """Freeze it: its connections stay open and get no answer until `resume`."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self.send(signal.SIGCONT)

    def wait(self, timeout_seconds: float) -> int:
        """Wait for its end and return its exit code. Raises TimeoutError when it still runs after that long."""
        try:
            code = self._started.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} still runs after {timeout_seconds} s") from None
        self._guard.forget(self._started.pid)
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM, *, grace_seconds: float = 10.0) -> int | None:
        """Ask it to end, with SIGKILL to its group after the grace; return its exit code, None when it never ran."""
        if self._process is None:
            return None
        if self.running:
            self.send(number)
            self.resume()
            with contextlib.suppress(TimeoutError):
                return self.wait(grace_seconds)
        return self.kill()

    def kill(self) -> int | None:
        """End its whole group at once with SIGKILL; return its exit code, None when it never ran."""
        if self._process is None:
            return None
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self.wait(timeout_seconds=10.0)

    def close(self) -> None:
        """End it if it runs, and let go of what watched over it. To close twice is harmless."""
        self.kill()
        if self._own_guard is not None:
            self._own_guard.close()
            self._own_guard = None
        self._process = None

    def tail(self) -> str:
        """Return the end of its log, at most 4,000 bytes of it."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    @property
    def _guard(self) -> Guard:
        if self._shared_guard is not None:
            return self._shared_guard
        if self._own_guard is None:
            self._own_guard = Guard()
        return self._own_guard

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        user = self._user
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env=None if self._environment is None else dict(self._environment),
            start_new_session=True,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=user and [],
        )
