"""How a segment ends: every way it can go, and the one move that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.errors import (
    EvaluatorUnavailable,
    HandlerRetry,
    InputInvalid,
    ItemFailed,
    JobCorrupt,
    LeaseLost,
    MoveRefused,
    NotFound,
    SegmentInterrupted,
    StepFailed,
    StoreUnavailable,
)
from schemas.text import readable
from streams.workflow.backoff import Backoff
from streams.workflow.retry import DEFAULT_RETRY, RetryPolicy
from streams.workflow.runner import Asleep, Completed, Parked


@dataclass(frozen=True, slots=True)
class Retry:
    """The step in hand failed and is tried again after a delay. `failed_tries`: those of items, where these count."""

    step: str | None
    error: str
    delay_seconds: float
    failed_tries: int | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The step in hand failed at its last try: the run is DEAD."""

    step: str | None
    error: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Trying again would not help: the run is FAILED. `detail` is told in its event."""

    step: str | None
    error: str
    detail: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The work was stopped from outside: the run is handed back, and nothing is counted."""

    why: str
    delay_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """The run is no longer this process's: nothing may be written."""

    why: str


Written = Completed | Parked | Asleep | Retry | GiveUp | Fail | Release
Ending = Written | Drop


@dataclass(frozen=True, slots=True)
class Try:
    """The try in which a segment failed: the step in hand, the number of the try, the most of them, and its policy."""

    step: str | None
    number: int
    most: int
    retry: RetryPolicy = DEFAULT_RETRY


def ending_of(error: Exception, at: Try, backoff: Backoff, *, may_write: bool, too_late: str | None = None) -> Ending:
    """Return what follows from a segment that ended with *error*.

    *may_write* False means that the run is no longer this process's. An error that nobody expected fails the run at
    once, as WORKFLOW: repeating it would repeat its side effects. *too_late* is set once the run's own deadline has
    passed, and says so: nothing is tried again then, nor handed back.
    """
    text = readable(str(error))
    match error:
        case LeaseLost():
            return Drop(text)
        case SegmentInterrupted():
            if not may_write:
                return Drop(text)
            return Release(text) if too_late is None else Fail(at.step, too_late)
        case StoreUnavailable() | EvaluatorUnavailable():
            return Release(text, backoff.delay_seconds(1))
        case StepFailed() if at.retry.retries(error):
            return _after_failed_try(error, at, backoff, text) if too_late is None else Fail(at.step, too_late)
        case StepFailed():
            return Fail(error.step or None, text, error.event_detail)
        case InputInvalid():
            return Fail(None, f"MAPPING: the stored input cannot be read: {text}")
        case MoveRefused():
            return Fail(at.step, f"WORKFLOW: the checkpoint cannot be stored: {text}")
        case NotFound() | JobCorrupt():
            return Fail(None, f"WORKFLOW: {text}")
        case _:
            return Fail(at.step, f"WORKFLOW: unexpected {type(error).__name__}: {text}")


def _after_failed_try(error: StepFailed, at: Try, backoff: Backoff, text: str) -> Retry | GiveUp:
    of_items = error.failed_tries if isinstance(error, ItemFailed) else None
    number = at.number if of_items is None else of_items
    if number >= at.most:
        return GiveUp(at.step, text)
    asked = error.after_seconds if isinstance(error, HandlerRetry) else None
    asked = at.retry.delay_seconds(number) if asked is None else asked
    return Retry(at.step, text, backoff.delay_seconds(number) if asked is None else asked, of_items)
