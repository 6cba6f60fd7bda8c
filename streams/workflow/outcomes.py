"""How a segment rests: the run is complete, or waits for somebody outside, or for a time."""

from dataclasses import dataclass
from datetime import datetime

from streams.workflow.patience import ENDLESS, Patience
from streams.workflow.records import ComposedRecord


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How one step of a completed run ended."""

    name: str
    skipped: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """The run is done. `result` is plain JSON of type `output_type`; `verdict` is its one line."""

    result: object
    output_type: str
    verdict: str
    steps: tuple[StepOutcome, ...]


@dataclass(frozen=True, slots=True)
class Parked:
    """The run waits for an answer to `step`. `request` is what is asked, as plain JSON of the step's input type.

    `resume_target` is where the run goes on once it is answered, and `record` the question that is sent with the park.
    """

    step: str
    step_index: int
    request: object
    resume_target: str
    patience: Patience = ENDLESS
    record: ComposedRecord | None = None


@dataclass(frozen=True, slots=True)
class Asleep:
    """The run waits at `step` until `at`, or `after_ms` from now on: exactly one of them is set.

    `resume_target` is where it goes on then.
    """

    step: str
    step_index: int
    resume_target: str
    at: datetime | None
    after_ms: int | None
