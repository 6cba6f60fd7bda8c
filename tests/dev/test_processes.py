"""Child processes: started with a log and a deadline, and gone when we are, however we end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.dev.guard import Guard, GuardGone
from streams.dev.processes import ChildProcess, StartFailed
from tests.fixtures.eventually import wait_until

ROOT = Path(__file__).parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
# It writes the id of a process of its own, and neither ends on SIGTERM.
STUBBORN = [
    sys.executable,
    "-c",
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = os.fork()\n"
    "print(os.getpid() if child == 0 else '', flush=True)\n"
    "time.sleep(60)\n",
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a log"


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_process_is_started_stopped_and_started_again(log: Path) -> None:
    with ChildProcess("sleeper", SLEEP, log=log) as process:
        assert process.stop() is None
        process.start()
        first = process.pid
        assert process.running
        assert process.stop() == -signal.SIGTERM
        process.start()
        assert process.running
        assert process.pid != first
        assert process.kill() == -signal.SIGKILL
    assert not process.running


def test_what_it_writes_is_in_its_log_over_restarts(log: Path) -> None:
    with ChildProcess("writer", ["/bin/sh", "-c", "echo out; echo err >&2"], log=log) as process:
        for _ in range(2):
            process.start()
            assert process.wait(10) == 0
        assert process.tail().split() == ["out", "err", "out", "err"]


def test_an_end_before_it_is_ready_is_reported_with_the_log(log: Path) -> None:
    with ChildProcess("failing", ["/bin/sh", "-c", "echo no such luck; exit 3"], log=log) as process:
        with pytest.raises(StartFailed, match=r"failing ended with 3 before it was ready:\nno such luck"):
            process.start(ready=lambda: False)
        assert process.returncode == 3


def test_a_process_that_is_not_ready_in_time_is_ended(log: Path) -> None:
    with ChildProcess("slow", SLEEP, log=log) as process:
        with pytest.raises(StartFailed, match=r"slow was not ready in 0\.1 s"):
            process.start(ready=lambda: False, deadline_seconds=0.1)
        assert not process.running


def test_a_paused_process_can_be_stopped(log: Path) -> None:
    with ChildProcess("paused", SLEEP, log=log) as process:
        process.start()
        process.pause()
        assert process.stop() == -signal.SIGTERM


def test_stop_ends_the_whole_group_after_its_grace(log: Path) -> None:
    with ChildProcess("stubborn", STUBBORN, log=log) as process:
        process.start(ready=lambda: process.tail().strip().isdecimal())
        child = int(process.tail())
        assert process.stop(grace_seconds=0.1) == -signal.SIGKILL
        wait_until(lambda: not _alive(child))  # its group was killed with it, and needs a moment on a busy machine


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_and_folders_go_with_an_owner_that_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        "import signal, sys, threading, time\n"
        "from pathlib import Path\n"
        "from streams.dev.guard import Guard\n"
        "from streams.dev.processes import ChildProcess\n"
        "guard = Guard()\n"
        "folder = guard.make_folder('a test')\n"
        "last = signal.SIGTERM\n"
        "process = ChildProcess('child', sys.argv[1:], log=folder / 'log', guard=guard, last_signal=last)\n"
        "starter = threading.Thread(target=process.start)\n"  # the end of this thread must not end the child
        "starter.start()\n"
        "starter.join()\n"
        "process.pause()\n"
        "print(process.pid, folder, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, *SLEEP]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().strip().split(" ", 1)
        assert _alive(int(pid))
        assert Path(folder, "log").exists()
        owner.send_signal(number)
        owner.wait(10)
    # Sooner than the SIGKILL that would come after five seconds.
    wait_until(lambda: not _alive(int(pid)) and not Path(folder).exists(), seconds=4)


def test_a_group_that_takes_no_notice_is_killed_after_five_seconds(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "from streams.dev.processes import ChildProcess\n"
        "log = Path(sys.argv[1])\n"
        "process = ChildProcess('stubborn', sys.argv[2:], log=log, last_signal=signal.SIGTERM)\n"
        "process.start(ready=lambda: process.tail().strip().isdecimal())\n"
        "print(process.pid, process.tail(), flush=True)\n"
        "sys.exit()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "log"), *STUBBORN]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert all(_alive(pid) for pid in pids)
    wait_until(lambda: not any(_alive(pid) for pid in pids))


def test_a_group_that_was_forgotten_outlives_its_owner(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys\n"
        "from streams.dev.guard import Guard\n"
        "guard = Guard()\n"
        "other = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "guard.watch(other.pid, signal.SIGKILL)\n"
        "guard.forget(other.pid)\n"
        "print(guard.pid, other.pid)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, *SLEEP]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    guard_pid, other = map(int, done.stdout.split())
    wait_until(lambda: not _alive(guard_pid))
    assert _alive(other)
    os.kill(other, signal.SIGKILL)


def test_ctrl_c_while_a_process_is_being_born_leaves_none_behind(
    log: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    born: list[int] = []
    popen = subprocess.Popen.__init__

    def interrupted(process: subprocess.Popen[bytes], *arguments: object, **options: object) -> None:
        popen(process, *arguments, **options)  # type: ignore[call-overload]
        born.append(process.pid)
        signal.raise_signal(signal.SIGINT)

    with ChildProcess("sleeper", SLEEP, log=log, guard=guard) as process:
        monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.start()
        monkeypatch.undo()
        assert [process.pid] == born
    assert not _alive(born[0])


def test_a_closed_guard_has_removed_its_folders(guard: Guard) -> None:
    folder = guard.make_folder("a test", mode=0o711)
    assert folder.stat().st_mode & 0o777 == 0o711
    (folder / "file").touch()
    guard.close()
    assert not folder.exists()


def test_nothing_is_started_unwatched(guard: Guard, log: Path) -> None:
    os.kill(guard.pid, signal.SIGKILL)
    os.waitid(os.P_PID, guard.pid, os.WEXITED | os.WNOWAIT)
    with ChildProcess("unwatched", SLEEP, log=log, guard=guard) as process:
        with pytest.raises(GuardGone):
            process.start()
        assert not process.running
