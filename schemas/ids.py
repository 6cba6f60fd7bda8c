"""Identifiers: how they are made, read and turned into record keys."""

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from schemas.errors import ContractError

_COUNTER_BITS: Final = 42
_TAIL_BITS: Final = 32
_UUID_TEXT: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class Uuid7Source:
    """Makes version 7 UUIDs (RFC 9562) that ascend, also within a millisecond and when the clock is set back.

    After the 48 bits of milliseconds stands a counter of 42 bits, begun at random in each new millisecond with its
    top bit clear, then 32 random bits, so that two processes practically never agree. Safe to share between threads.
    """

    def __init__(
        self, *, clock_ms: Callable[[], int] | None = None, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock_ms = clock_ms or _now_ms
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last_ms = -1
        self._counter = 0

    def __call__(self) -> UUID:
        random = int.from_bytes(self._entropy(10))
        tail = random & (1 << _TAIL_BITS) - 1
        seed = random >> _TAIL_BITS & (1 << _COUNTER_BITS - 1) - 1
        with self._lock:
            now_ms = self._clock_ms()
            self._counter += 1
            if now_ms > self._last_ms:
                self._last_ms, self._counter = now_ms, seed
            elif self._counter >> _COUNTER_BITS:
                self._last_ms, self._counter = self._last_ms + 1, seed
            milliseconds, counter = self._last_ms, self._counter
        high = counter >> 30
        low = counter & (1 << 30) - 1
        return UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << _TAIL_BITS | tail)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_of_this_process: Final = Uuid7Source()


def uuid7() -> UUID:
    """Return a new version 7 UUID, greater than every earlier one of this process."""
    return _of_this_process()


def is_uuid_text(text: str) -> bool:
    """Say whether *text* is a UUID as contracts write it: 36 characters, hexadecimal digits grouped 8-4-4-4-12."""
    return _UUID_TEXT.fullmatch(text) is not None


def parse_job_id(text: str) -> UUID:
    """Read a job id: exactly 36 characters, hexadecimal digits of either case grouped 8-4-4-4-12. Nothing is trimmed.

    Raises:
        ContractError: code `job-id`; no run can be named, so a record goes to the dead letters.
    """
    if not is_uuid_text(text):
        shown = repr(text) if len(text) <= 40 else f"{text[:40]!r}… of {len(text)} characters"
        raise ContractError(f"job_id is not a UUID of 36 characters: {shown}", code="job-id")
    return UUID(text)


def key_of(job_id: UUID) -> bytes:
    """Return the record key of everything about *job_id*: its lower-case text as UTF-8, without framing."""
    return str(job_id).encode()
