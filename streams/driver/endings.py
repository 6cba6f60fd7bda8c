"""How a segment ends: every way it can go, and the one move that follows from it."""

from dataclasses import dataclass

from schemas.errors import (
    EvaluatorUnavailable,
    HandlerRetry,
    InputInvalid,
    JobCorrupt,
    LeaseLost,
    MoveRefused,
    NotFound,
    SegmentInterrupted,
    StepFailed,
    StoreUnavailable,
)
from schemas.text import readable
from streams.driver.backoff import Backoff
from streams.workflow.runner import Completed, Parked


@dataclass(frozen=True, slots=True)
class Retry:
    """The step in hand failed and is tried again after a delay."""

    step: str | None
    error: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The step in hand failed at its last try: the run is DEAD."""

    step: str | None
    error: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Trying again would not help: the run is FAILED."""

    step: str | None
    error: str


@dataclass(frozen=True, slots=True)
class Release:
    """The work was stopped from outside: the run is handed back, and nothing is counted."""

    why: str
    delay_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """The run is no longer this process's: nothing may be written."""

    why: str


Written = Completed | Parked | Retry | GiveUp | Fail | Release
Ending = Written | Drop


@dataclass(frozen=True, slots=True)
class Try:
    """The try during which a segment failed: the step in hand, the number of the try, and the most there may be."""

    step: str | None
    number: int
    most: int


def ending_of(error: Exception, at: Try, backoff: Backoff, *, may_write: bool) -> Ending:
    """Return what follows from a segment that ended with *error*.

    *may_write* False means that the run is no longer this process's. An error that nobody expected fails the run at
    once, as WORKFLOW: repeating it would repeat its side effects.
    """
    text = readable(str(error))
    match error:
        case LeaseLost():
            return Drop(text)
        case SegmentInterrupted():
            return Release(text) if may_write else Drop(text)
        case StoreUnavailable() | EvaluatorUnavailable():
            return Release(text, backoff.delay_seconds(1))
        case StepFailed(retryable=True):
            return _after_failed_try(error, at, backoff, text)
        case StepFailed():
            return Fail(error.step or None, text)
        case InputInvalid():
            return Fail(None, f"MAPPING: the stored input cannot be read: {text}")
        case MoveRefused():
            return Fail(at.step, f"WORKFLOW: the checkpoint cannot be stored: {text}")
        case NotFound() | JobCorrupt():
            return Fail(None, f"WORKFLOW: {text}")
        case _:
            return Fail(at.step, f"WORKFLOW: unexpected {type(error).__name__}: {text}")


def _after_failed_try(error: StepFailed, at: Try, backoff: Backoff, text: str) -> Retry | GiveUp:
    if at.number >= at.most:
        return GiveUp(at.step, text)
    asked = error.after_seconds if isinstance(error, HandlerRetry) else None
    return Retry(at.step, text, backoff.delay_seconds(at.number) if asked is None else asked)
