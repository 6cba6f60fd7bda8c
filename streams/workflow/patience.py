"""How long a parked step waits for its answer, and when somebody is reminded."""

from dataclasses import dataclass
from typing import Final

from streams.workflow.document import ObjectReader
from streams.workflow.limits import MAX_WAIT_MS


@dataclass(frozen=True, slots=True)
class Patience:
    """Milliseconds since the park: until the run fails without an answer, and until it is told once more that it waits.

    None stands for never.
    """

    answer_within_ms: int | None = None
    remind_after_ms: int | None = None


ENDLESS: Final = Patience()


def read_patience(step: ObjectReader, *, answered: bool) -> Patience:
    """Read what a step says of this; only steps that are *answered* from outside may."""
    answer_within_ms = _milliseconds(step, "answerWithinMs", answered=answered)
    remind_after_ms = _milliseconds(step, "remindAfterMs", answered=answered)
    if answer_within_ms is not None and remind_after_ms is not None and remind_after_ms >= answer_within_ms:
        step.fault("remindAfterMs must be less than answerWithinMs: nobody is reminded of what failed", "remindAfterMs")
    return Patience(answer_within_ms, remind_after_ms)


def _milliseconds(step: ObjectReader, key: str, *, answered: bool) -> int | None:
    if not step.has(key):
        return None
    value = step.milliseconds(key, lowest=1, most=MAX_WAIT_MS)
    if not answered:
        step.fault(f"{key} is for steps that are answered from outside: external ones, and those that ask", key)
    return value or None
