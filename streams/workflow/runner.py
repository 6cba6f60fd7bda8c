"""One segment of one run: from the first missing checkpoint to the end, to a step that somebody outside answers, or to
a failure.

The runner keeps nothing. What it learns goes out through the two callbacks, calls and checkpoints, one at a time and in
order: a checkpoint is stored before the next step begins.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import Message

from schemas.errors import (
    BudgetSpent,
    ExternalStepReached,
    InputInvalid,
    StepFailed,
    WorkerError,
    WorkflowBroken,
)
from streams.workflow.plan import Plan, PlannedStep
from streams.workflow.replay import StoredCheckpoint, replayed

__all__ = [
    "Call",
    "CallRequest",
    "Checkpoints",
    "Completed",
    "Parked",
    "StepOutcome",
    "StoredCheckpoint",
    "run_segment",
]

OUTPUT: Final = "output"
"""What errors of the output mapping name as their step."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One call to make. `target` is a name or `host:port`, `method` the full path `/package.Service/Method`.

    `payload` is the serialized request, the same bytes on every try from the same checkpoints.
    """

    step: str
    step_index: int
    target: str
    tls: bool
    method: str
    payload: bytes
    timeout_seconds: float
    response_type: str


class Call(Protocol):
    """Makes one unary call within its time-out and returns the serialized response.

    Raises:
        CallFailed: any status other than OK.
        Any other WorkerError (SegmentInterrupted, say) ends the segment and passes through untouched.
    """

    async def __call__(self, request: CallRequest) -> bytes: ...


class Checkpoints(Protocol):
    """Stores one finished step. `next_target` is where the run goes on from there.

    Raises:
        Any WorkerError (StoreUnavailable, LeaseLost) ends the segment and passes through untouched.
    """

    async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None: ...


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


async def run_segment(
    plan: Plan,
    input: Message,
    stored: Sequence[StoredCheckpoint],
    *,
    call: Call,
    checkpoint: Checkpoints,
    clock: Callable[[], float],
    refuse_external: bool = False,
) -> Completed | Parked:
    """Run on from the stored checkpoints.

    Args:
        plan: What to run; it is not changed.
        input: The run's input, as `plan.parse_input` gives it; it is not changed.
        stored: The checkpoints so far, in step order. Their steps are not run again.
        call: Makes the calls.
        checkpoint: Stores each finished step before the next one begins.
        clock: Monotonic seconds. The segment's budget runs from the start of this call.
        refuse_external: For a run that nobody can answer later: such a step raises instead of parking.

    Raises:
        MappingFailed: a rule could not be applied.
        BudgetSpent: no time was left before a call; nothing was sent.
        CallFailed: as `call` raised it.
        WorkflowBroken: the checkpoints do not fit the plan, a response could not be read or kept, or an exception that
            nobody expected escaped.
        ExternalStepReached: see *refuse_external*.
        WorkerError: whatever else the callbacks raised, untouched.
    """
    segment = _Segment(plan, call, checkpoint, clock, refuse_external)
    return await segment.run(input, stored)


class _Segment:
    def __init__(
        self,
        plan: Plan,
        call: Call,
        checkpoint: Checkpoints,
        clock: Callable[[], float],
        refuse_external: bool,
    ) -> None:
        self._plan = plan
        self._call = call
        self._checkpoint = checkpoint
        self._clock = clock
        self._refuse_external = refuse_external
        self._ends_at = clock() + plan.budget_ms / 1000
        self._scope: dict[str, Message] = {}
        self._last: Message | None = None
        self._outcomes: list[StepOutcome] = []

    async def run(self, given: Message, stored: Sequence[StoredCheckpoint]) -> Completed | Parked:
        self._scope["input"] = self._last = given
        with _named(""):
            for entry, response in replayed(self._plan, stored):
                self._bind(entry.step, response, skipped=entry.skipped)
        for step in self._plan.steps[len(self._outcomes) :]:
            with _named(step.name):
                if step.external:
                    return self._park(step)
                await self._run_step(step)
        with _named(OUTPUT):
            return self._complete()

    def _bind(self, name: str, response: Message, *, skipped: bool = False) -> None:
        self._scope[name] = response
        self._outcomes.append(StepOutcome(name, skipped))
        if not skipped:
            self._last = response

    def _park(self, step: PlannedStep) -> Parked:
        if self._refuse_external:
            way_out = "submit the workflow as a job (submit-workflow)"
            raise ExternalStepReached(f"{step.name} is answered from outside: {way_out}", step=step.name)
        request = step.request.build(self._scope, step=step.name)
        return Parked(
            step=step.name,
            step_index=step.index,
            request=self._rendered(request, step.name, "the composed request"),
            resume_target=self._plan.next_target(step.index + 1),
        )

    async def _run_step(self, step: PlannedStep) -> None:
        request = step.request.build(self._scope, step=step.name)
        response_bytes = await self._call(
            CallRequest(
                step=step.name,
                step_index=step.index,
                target=step.target,
                tls=step.tls,
                method=step.method_path,
                payload=request.SerializeToString(deterministic=True),
                timeout_seconds=self._timeout(step),
                response_type=step.output_type,
            )
        )
        try:
            response = self._plan.schema_set.from_wire(step.output_type, response_bytes)
        except InputInvalid as error:
            raise WorkflowBroken(f"the response of {step.name} cannot be read: {error}", step=step.name) from None
        kept = StoredCheckpoint(step.index, step.name, False, self._rendered(response, step.name, "the response"))
        await self._checkpoint(kept, self._plan.next_target(step.index + 1))
        self._bind(step.name, response)

    def _timeout(self, step: PlannedStep) -> float:
        """Seconds for the step's call: what is left of the budget, or less if the step says so."""
        left = self._ends_at - self._clock()
        if left <= 0:
            raise BudgetSpent(f"the segment's {self._plan.budget_ms} ms were used up before the call", step=step.name)
        return min(left, step.deadline_ms / 1000) if step.deadline_ms else left

    def _complete(self) -> Completed:
        output, last = self._plan.output, self._last
        message = output.mapping.build(self._scope, step=OUTPUT) if output is not None else last
        assert message is not None, "without any response the input stands"
        output_type = message.DESCRIPTOR.full_name
        return Completed(
            result=self._rendered(message, OUTPUT, "the result"),
            output_type=output_type,
            verdict=f"{len(self._outcomes)} steps, output {output_type}",
            steps=tuple(self._outcomes),
        )

    def _rendered(self, message: Message, step: str, what: str) -> object:
        try:
            return self._plan.render(message)
        except InputInvalid as error:
            raise WorkflowBroken(f"{what} of {step} cannot be kept as JSON: {error}", step=step) from None


@contextmanager
def _named(step: str) -> Iterator[None]:
    """Give errors the step they belong to, and turn what nobody expected into a failure of that step."""
    try:
        yield
    except StepFailed as error:
        error.step = error.step or step
        raise
    except WorkerError:
        raise
    except Exception as error:  # a bug must end the run that met it, now, and not its worker
        raise WorkflowBroken(f"unexpected {type(error).__name__}: {error}", step=step) from error
