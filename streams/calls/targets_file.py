"""The file of targets, read: names, their addresses, what secures them, and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas import strict_yaml
from schemas.errors import ContractError, InputInvalid, SettingsInvalid
from streams.calls.credentials import ANONYMOUS, FILES, Credentials, read_secrets
from streams.workflow.names import HANDLER_TARGET, fault_in_target

_NEED_TLS: Final = (*FILES, "server_name")
_LIMITS: Final[Mapping[str, tuple[type[int] | type[float], float, float]]] = {
    "permits": (int, 1, 10_000),
    "message_bytes": (int, 1 << 10, 1 << 30),
    "call_seconds": (float, 0.001, 86_400),
}
_KEYS: Final = frozenset({"address", "tls", *_NEED_TLS, *_LIMITS})


@dataclass(frozen=True, slots=True)
class Target:
    """One service: `address` is host:port, `permits` how many calls one process may have in flight to it.

    With `tls` nothing is ever sent in plaintext. `token` goes along with each call, over TLS alone. `call_seconds` and
    `message_bytes` bound each call where they are less than what the process allows.
    """

    name: str
    address: str
    tls: bool
    permits: int
    credentials: Credentials = ANONYMOUS
    token: str | None = field(default=None, repr=False)
    call_seconds: float | None = None
    message_bytes: int | None = None


_Stamp = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ReadTargets:
    """What a file says: targets by name, or why they cannot be used. `stamps` has it and every file that it names."""

    targets: Mapping[str, Target]
    stamps: Mapping[Path, _Stamp]
    problems: tuple[str, ...] = ()

    def is_stale(self) -> bool:
        """Whether one of the files was written, replaced, added or taken away since."""
        return any(_stamp(file) != stamp for file, stamp in self.stamps.items())


def read_targets(file: Path, default_permits: int) -> dict[str, Target]:
    """Read a file of targets by name; empty is fine.

    Raises:
        SettingsInvalid: one sentence per fault.
    """
    read = look_into(file, default_permits)
    if read.problems:
        raise SettingsInvalid(read.problems)
    return dict(read.targets)


def look_into(file: Path, default_permits: int) -> ReadTargets:
    """Read a file of targets and every file that it names; faults are in `problems`, one sentence each."""
    # Taken before anything is read, so that what changes meanwhile makes the answer stale.
    stamps = {file: _stamp(file)}
    try:
        document = strict_yaml.parse(file.read_text(encoding="utf-8")).value
    except (OSError, UnicodeDecodeError, ContractError) as error:
        return ReadTargets({}, stamps, (f"{file} cannot be read: {error}",))
    if document is None:
        return ReadTargets({}, stamps)
    if not isinstance(document, dict):
        return ReadTargets({}, stamps, (f"{file} is not a mapping from target names to their addresses",))
    named = {file.parent / path for entry in document.values() for path in _paths_in(entry)}
    stamps |= {path: _stamp(path) for path in sorted(named)}
    targets: dict[str, Target] = {}
    problems: list[str] = []
    for name, entry in document.items():
        found = _problems(name, entry)
        if not found:
            try:
                targets[name] = _target(name, entry, default_permits, file.parent)
            except InputInvalid as error:
                found = [f"target {name}: {error}"]
        problems += [f"{file}: {problem}" for problem in found]
    return ReadTargets(targets, stamps, tuple(problems))


def is_address(text: str) -> bool:
    """Whether *text* is `host:port` or `[v6]:port` with a port from 1 to 65535, and nothing else."""
    return ":" in text and fault_in_target(text) is None


def _target(name: str, entry: Mapping[str, object], default_permits: int, folder: Path) -> Target:
    secrets = read_secrets(entry, folder)
    limits = {key: entry[key] for key in _LIMITS if key in entry}
    return Target(
        name=name,
        address=str(entry["address"]),
        tls=entry.get("tls") is True,
        credentials=secrets.credentials,
        token=secrets.token,
        **{"permits": default_permits, **limits},  # type: ignore[arg-type]  # looked at below
    )


def _stamp(file: Path) -> _Stamp:
    """What changes whenever the file is written or replaced; None while it is not there."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _paths_in(entry: object) -> list[str]:
    if not isinstance(entry, Mapping):
        return []
    return [path for name in FILES if isinstance(path := entry.get(name), str)]


def _problems(name: object, entry: object) -> list[str]:
    if not isinstance(name, str) or ":" in name or name == HANDLER_TARGET or fault_in_target(name) is not None:
        return [f"{name!r} cannot be the name of a target (letters, digits, `_`, `.` and `-`; `local` is taken)"]
    if not isinstance(entry, dict):
        return [f"target {name} needs a mapping with its address"]
    problems = [
        f"target {name} has the unknown key {key!r}; known are {', '.join(sorted(_KEYS))}"
        for key in entry
        if key not in _KEYS
    ]
    address = entry.get("address")
    if not isinstance(address, str) or not is_address(address):
        problems.append(f"target {name} needs an address host:port, not {address!r}")
    if not isinstance(entry.get("tls", False), bool):
        problems.append(f"target {name}: tls is true or false")
    for key, (kind, least, most) in _LIMITS.items():
        value = entry.get(key, least)
        is_number = isinstance(value, int | kind) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            problems.append(f"target {name}: {key} is a number from {least:g} to {most:,.0f}")
    return [*problems, *(f"target {name}: {fault}" for fault in _faults_in_security(entry))]


def _faults_in_security(entry: Mapping[str, object]) -> list[str]:
    faults = [
        f"{key} must be text" for key in _NEED_TLS if key in entry and not (isinstance(entry[key], str) and entry[key])
    ]
    if entry.get("tls") is not True:
        faults += [f"{key} needs tls: true, since it has no meaning in plaintext" for key in _NEED_TLS if key in entry]
    if ("cert_file" in entry) != ("key_file" in entry):
        faults.append("cert_file and key_file go together")
    return faults
