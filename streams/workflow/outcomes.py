"""How a segment rests: the run is complete, or waits for somebody outside."""

from dataclasses import dataclass


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

    `resume_target` is where the run goes on once it is answered.
    """

    step: str
    step_index: int
    request: object
    resume_target: str
