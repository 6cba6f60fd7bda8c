"""What became of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.events import Status


@dataclass(frozen=True, slots=True)
class Published:
    """What a step sent to a topic. `value` is plain JSON of the message type `type`."""

    step: str
    topic: str
    key: str
    type: str
    value: object


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a step that fans out: `status` is COMPLETED or FAILED once it is final, QUEUED before that.

    `response` is plain JSON of a completed one, `error` the text of the last failure.
    """

    status: str
    response: object | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that has ended, or waits for an answer that was not prepared.

    Every message in it is plain JSON, as `get-job` shows it: lowerCamelCase, 64-bit integers as text, defaults printed;
    a request or record that has no such form, one with U+0000 in it for example, is None.

    Attributes:
        status: COMPLETED, FAILED, DEAD, or WAITING.
        result: The output of a COMPLETED run.
        verdict: Its one line.
        error: Why it is FAILED or DEAD: `KIND: sentence`.
        failed_step: The step that failed; `output` for the output mapping, None where no step is to blame.
        waiting_for: The step that a WAITING run waits for.
        events: What it announced, in order: the type, and the step where there is one, such as
            `STEP_CHECKPOINT tokenize`.
        published: What its steps sent, in order, each once.
        responses: The response of every finished step, by its name. Skipped ones have none.
        skipped: The steps that their gates skipped, in order.
        claims: How often a worker took it up: once, and again after each crash, failed try, answer and wait.
        seconds: The time that was skipped: back-off and waits, from the submission to the end.
    """

    status: Status
    result: object | None
    verdict: str | None
    error: str | None
    failed_step: str | None
    waiting_for: str | None
    events: Sequence[str]
    published: Sequence[Published]
    responses: Mapping[str, object]
    skipped: Sequence[str]
    claims: int
    seconds: float
    asked: Mapping[str, Sequence[object]] = field(repr=False)
    tried: Mapping[str, Sequence[Item]] = field(repr=False)
    called: Mapping[str, int] = field(repr=False)
    steps: Sequence[str] = field(repr=False)

    def calls(self, step: str) -> int:
        """How often the method of *step* was called; all of its items together where it fans out.

        Raises:
            ValueError: the workflow has no such step.
        """
        return self.called.get(self._known(step), 0)

    def requests(self, step: str) -> Sequence[object]:
        """What *step* was called with, try by try; for a step that is answered from outside, what was asked.

        Raises:
            ValueError: the workflow has no such step.
        """
        return self.asked.get(self._known(step), ())

    def items(self, step: str) -> Sequence[Item]:
        """The items of a step that fans out, in their order, as far as they were tried.

        Raises:
            ValueError: the workflow has no such step.
        """
        return self.tried.get(self._known(step), ())

    def _known(self, step: str) -> str:
        if step not in self.steps:
            raise ValueError(f"the workflow has no step {step!r}; it has {', '.join(self.steps)}")
        return step
