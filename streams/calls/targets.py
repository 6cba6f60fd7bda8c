"""Where the targets of steps are: names from a file that may change at any time, and literal addresses."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from schemas.errors import SettingsInvalid
from streams.calls.targets_file import ReadTargets, Target, is_address, look_into, read_targets

__all__ = ["LOOPBACK", "Target", "Targets", "read_targets"]

log = logging.getLogger(__name__)

LOOPBACK: Final = ("127.0.0.1:*", "localhost:*", "[::1]:*")
RELOAD_SECONDS: Final = 1.0


class Targets:
    """The targets that this process serves.

    A name comes from *file*, a YAML mapping such as `tokenizer: {address: "10.0.0.7:9000", permits: 8}`. The file, and
    those it names, are looked at again at most once a second, so neither a service that moved nor a token that was
    renewed strands a run. A change that cannot be used is logged and leaves the targets as they were. A literal
    `host:port` is served where one of the *allowed* patterns matches it as a whole; `*` stands for anything.

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
        self._read = ReadTargets({}, {})
        self._named: Mapping[str, Target] = {}
        self._next_look = clock() + RELOAD_SECONDS
        if problems := [f"{pattern!r} is not a host:port pattern" for pattern in allowed if ":" not in pattern]:
            raise SettingsInvalid(problems)
        if file is not None:
            self._look_into(file)
            if self._read.problems:
                raise SettingsInvalid(self._read.problems)

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
        if not self._read.is_stale():
            return
        self._look_into(self._file)
        if self._read.problems:
            log.error("the targets stay as they were: %s", "; ".join(self._read.problems))
        else:
            log.info("read %d targets from %s", len(self._named), self._file)

    def _look_into(self, file: Path) -> None:
        self._read = look_into(file, self._default_permits)
        if not self._read.problems:
            self._named = self._read.targets
