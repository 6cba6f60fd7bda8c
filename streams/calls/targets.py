"""Where the targets of steps are: names from a file that may change at any time, and literal addresses."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from schemas.errors import SettingsInvalid
from streams.workflow.names import HANDLER_TARGET, fault_in_target

log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1:*", "localhost:*", "[::1]:*")
RELOAD_SECONDS: Final = 1.0

_KEYS: Final = frozenset({"address", "tls", "permits"})
_MOST_PERMITS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """One service: `address` is host:port, `permits` how many calls one process may have in flight to it."""

    name: str
    address: str
    tls: bool
    permits: int


class Targets:
    """The targets that this process serves.

    A name comes from *file*, a YAML mapping such as `tokenizer: {address: "10.0.0.7:9000", permits: 8}`. The file is
    looked at again at most once a second, so a service that moved strands no run. A change that cannot be used is
    logged and leaves the targets as they were. A literal `host:port` is served where one of the *allowed* patterns
    matches it as a whole; `*` stands for anything.

    Raises:
        SettingsInvalid: the file or a pattern cannot be used at start; one sentence per fault.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        allowed: Sequence[str] = LOOPBACK,
        default_permits: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._allowed = [re.compile(re.escape(pattern).replace(r"\*", ".*"), re.IGNORECASE) for pattern in allowed]
        self._default_permits = default_permits
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._named: Mapping[str, Target] = {}
        self._next_look = clock() + RELOAD_SECONDS
        if problems := [f"{pattern!r} is not a host:port pattern" for pattern in allowed if ":" not in pattern]:
            raise SettingsInvalid(problems)
        if file is not None:
            self._seen = _signature(file)
            self._named = read_targets(file, default_permits)

    def find(self, target: str) -> Target | None:
        """Return what *target* stands for now, or None when this process does not serve it."""
        self._look_again()
        if (named := self._named.get(target)) is not None:
            return named
        if is_address(target) and any(pattern.fullmatch(target) for pattern in self._allowed):
            return Target(target, target, tls=False, permits=self._default_permits)
        return None

    def serves(self, target: str) -> bool:
        """Whether a call to *target* can be made from this process now."""
        return self.find(target) is not None

    def _look_again(self) -> None:
        if self._file is None or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + RELOAD_SECONDS
        if (seen := _signature(self._file)) == self._seen:
            return
        self._seen = seen
        try:
            self._named = read_targets(self._file, self._default_permits)
        except SettingsInvalid as error:
            log.error("the targets stay as they were: %s", error)
        else:
            log.info("read %d targets from %s", len(self._named), self._file)


def read_targets(file: Path, default_permits: int) -> dict[str, Target]:
    """Read a file of targets by name; empty is fine.

    Raises:
        SettingsInvalid: one sentence per fault.
    """
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsInvalid([f"{file} cannot be read: {error}"]) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsInvalid([f"{file} is not a mapping from target names to their addresses"])
    problems = [f"{file}: {problem}" for name, entry in document.items() for problem in _problems(name, entry)]
    if problems:
        raise SettingsInvalid(problems)
    return {
        name: Target(name, entry["address"], entry.get("tls", False), entry.get("permits", default_permits))
        for name, entry in document.items()
    }


def is_address(text: str) -> bool:
    """Whether *text* is `host:port` or `[v6]:port` with a port from 1 to 65535, and nothing else."""
    return ":" in text and fault_in_target(text) is None


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
    address, permits = entry.get("address"), entry.get("permits", 1)
    if not isinstance(address, str) or not is_address(address):
        problems.append(f"target {name} needs an address host:port, not {address!r}")
    if not isinstance(entry.get("tls", False), bool):
        problems.append(f"target {name}: tls is true or false")
    if type(permits) is not int or not 1 <= permits <= _MOST_PERMITS:
        problems.append(f"target {name}: permits is a number from 1 to {_MOST_PERMITS}")
    return problems


def _signature(file: Path) -> tuple[int, ...] | None:
    """What changes whenever the file is written or replaced; None while it is not there."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
