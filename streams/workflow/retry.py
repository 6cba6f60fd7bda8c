"""Which failures of a step are tried again, how often, and after which pauses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.errors import RETRYABLE_CODES, CallFailed, StepFailed
from streams.workflow.document import ObjectReader
from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_ATTEMPTS, MAX_DEADLINE_MS, MAX_DELAYS

CODES: Final = frozenset(
    {
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    }
)
"""Every status of a call that failed, by gRPC's names."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`codes` are those of calls worth another try; empty stands for the three that are so by default.

    `attempts` is the most tries of the step, None: as many as the run allows. `delays_ms` are the pauses after the
    first, second, ... failed try, the last one repeated; empty: the driver's own, which double.
    """

    codes: frozenset[str] = frozenset()
    attempts: int | None = None
    delays_ms: tuple[int, ...] = ()

    def retries(self, error: StepFailed) -> bool:
        """Whether a step that failed so may succeed when it is tried again."""
        if isinstance(error, CallFailed) and self.codes:
            # What is so by default and not here never can: a message that is too large, say.
            never = error.code in RETRYABLE_CODES and not error.retryable
            return error.code in self.codes and not never
        return error.retryable

    def delay_seconds(self, failures: int) -> float | None:
        """The pause after that many failed tries, one or more; None: the driver's own."""
        if not self.delays_ms:
            return None
        return self.delays_ms[min(failures, len(self.delays_ms)) - 1] / 1000


DEFAULT_RETRY: Final = RetryPolicy()


def read_retry(step: ObjectReader, *, answered: bool) -> RetryPolicy:
    """Read what a step says of this; one that is *answered* from outside calls nothing that could be tried again."""
    members = step.take("retry")
    if not step.has("retry"):
        return DEFAULT_RETRY
    if not isinstance(members, Mapping):
        step.fault(f"retry must be an object, not {shown(members)}", "retry")
        return DEFAULT_RETRY
    if answered:
        step.fault("retry is for calls, and a step that is answered from outside makes none", "retry")
    reader = step.inner("retry", members)
    policy = RetryPolicy(
        codes=_codes(reader),
        attempts=_whole(reader, "attempts", lowest=1, most=MAX_ATTEMPTS),
        delays_ms=_delays(reader),
    )
    reader.refuse_unknown()
    return policy


def _codes(reader: ObjectReader) -> frozenset[str]:
    codes = reader.texts("codes")
    for index, code in enumerate(codes):
        if code == "OK":
            reader.fault("a call that ended with OK is not tried again", "codes", index)
        elif code not in CODES:
            reader.fault(f"{shown(code)} is no status of a call (there are {', '.join(sorted(CODES))})", "codes", index)
    return frozenset(codes)


def _delays(reader: ObjectReader) -> tuple[int, ...]:
    delays = reader.take("delaysMs")
    if not reader.has("delaysMs"):
        return ()
    if not isinstance(delays, list):
        reader.fault(f"delaysMs must be an array, not {shown(delays)}", "delaysMs")
        return ()
    if len(delays) > MAX_DELAYS:
        reader.fault(f"delaysMs has {len(delays):,} delays, over the limit of {MAX_DELAYS}", "delaysMs")
        return ()
    others = [index for index, delay in enumerate(delays) if not _is_whole(delay, 0, MAX_DEADLINE_MS)]
    for index in others:
        text = (
            f"a delay must be an integer of milliseconds from 0 up to {MAX_DEADLINE_MS:,}, not {shown(delays[index])}"
        )
        reader.fault(text, "delaysMs", index)
    return () if others else tuple(delays)


def _whole(reader: ObjectReader, key: str, *, lowest: int, most: int) -> int | None:
    value = reader.take(key)
    if not reader.has(key):
        return None
    if isinstance(value, int) and _is_whole(value, lowest, most):
        return value
    reader.fault(f"{key} must be an integer from {lowest} to {most:,}, not {shown(value)}", key)
    return None


def _is_whole(value: object, lowest: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= most
