"""A segment at work: what the steps of every kind stand on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from google.protobuf.message import Message

from schemas.errors import BudgetSpent, GateFailed, InputInvalid, StepFailed, WorkerError, WorkflowBroken
from streams.workflow.callbacks import Call, Checkpoints
from streams.workflow.composition import Composition
from streams.workflow.evaluation import Evaluator, ExpressionFailed, Rejection
from streams.workflow.items import Items
from streams.workflow.outcomes import StepOutcome
from streams.workflow.plan import Plan, PlannedStep
from streams.workflow.records import ComposedRecord
from streams.workflow.replay import StoredCheckpoint
from streams.workflow.validation import rejections_of, validate


class Segment:
    """The messages that rules can read, the time that is left, and the way to keep a finished step.

    `scope` holds `input` and the response of every finished step, skipped ones included. `last` is the response of the
    last step that was not skipped, the input before there is one. `outcomes` has one entry per finished step.
    """

    def __init__(
        self,
        plan: Plan,
        given: Message,
        *,
        call: Call,
        checkpoint: Checkpoints,
        clock: Callable[[], float],
        evaluator: Evaluator,
        items: Items,
        now: Callable[[], datetime],
    ) -> None:
        self.plan = plan
        self.call = call
        self.evaluator = evaluator
        self.items = items
        self.now = now
        self.scope: dict[str, Message] = {"input": given}
        self.last = given
        self.outcomes: list[StepOutcome] = []
        self._checkpoint = checkpoint
        self._clock = clock
        self._ends_at = clock() + plan.budget_ms / 1000

    def bind(self, name: str, response: Message, *, skipped: bool = False) -> None:
        """Show *response* under the step's name to what comes after it."""
        self.scope[name] = response
        self.outcomes.append(StepOutcome(name, skipped))
        if not skipped:
            self.last = response

    async def finish(
        self,
        step: PlannedStep,
        response: Message,
        *,
        kept: object | None = None,
        detail: object | None = None,
        record: ComposedRecord | None = None,
    ) -> None:
        """Keep a step's response, and go on behind it once it is stored.

        *kept* is the response as plain JSON where that is known already; *detail* is told in the event, and *record* is
        sent with it.

        Raises:
            WorkflowBroken: it cannot be kept as JSON.
            WorkerError: whatever the callback raised, untouched.
        """
        if kept is None:
            kept = self.rendered(response, step.name, "the response")
        checkpoint = StoredCheckpoint(step.index, step.name, False, kept, detail, record)
        await self._checkpoint(checkpoint, self.plan.next_target(step.index + 1))
        self.bind(step.name, response)

    async def skip(self, step: PlannedStep) -> None:
        """Keep that a step was skipped, and go on behind it; rules see the empty message under its name.

        Raises:
            WorkerError: whatever the callback raised, untouched.
        """
        kept = StoredCheckpoint(step.index, step.name, True, None)
        await self._checkpoint(kept, self.plan.next_target(step.index + 1))
        self.bind(step.name, self.plan.schema_set.new(step.output_type), skipped=True)

    async def is_due(self, step: PlannedStep) -> bool:
        """Whether the step is to be run: its gate holds, or it has none.

        Raises:
            GateFailed: the gate gives no truth value; it is never read as false.
            EvaluatorUnavailable: this machine could not evaluate it now.
        """
        if step.gate is None:
            return True
        try:
            return await step.gate.is_true(self.scope, self.evaluator)
        except ExpressionFailed as error:
            raise GateFailed(f"when {step.gate.source!r}: {error}", step=step.name) from None

    async def built(self, composition: Composition, step: str) -> Message:
        """The message that *composition* builds from what is in scope. Raises as `Composition.build` does."""
        return await composition.build(self.scope, step=step, evaluator=self.evaluator)

    async def validated(self, message: Message, step: str, what: str = "") -> Message:
        """*message*, which keeps the rules of its type. Raises as `streams.workflow.validation.validate` does."""
        await validate(message, self.plan.schema_set, self.evaluator, step=step, what=what)
        return message

    async def rejections(self, message: Message, step: str, items: Sequence[str]) -> Mapping[int | None, Rejection]:
        """What *message* breaks: in its items by index, in the rest of it under None. Raises as `rejections_of`."""
        return await rejections_of(message, self.plan.schema_set, self.evaluator, step=step, items=items)

    def timeout_seconds(self, step: str, deadline_ms: int) -> float:
        """Seconds for a call: what is left of the budget, or *deadline_ms* if that is less and not 0.

        Raises:
            BudgetSpent: nothing is left.
        """
        left = self._ends_at - self._clock()
        if left <= 0:
            raise BudgetSpent(f"the segment's {self.plan.budget_ms} ms were used up before the call", step=step)
        return min(left, deadline_ms / 1000) if deadline_ms else left

    def parsed(self, full_name: str, response: bytes, step: str) -> Message:
        """A response as it came over the wire. Raises WorkflowBroken when it is no message of that type."""
        try:
            return self.plan.schema_set.from_wire(full_name, response)
        except InputInvalid as error:
            raise WorkflowBroken(f"the response of {step} cannot be read: {error}", step=step) from None

    def rendered(self, message: Message, step: str, what: str) -> object:
        """The message as plain JSON. Raises WorkflowBroken when it has no JSON form; *what* names it there."""
        try:
            return self.plan.render(message)
        except InputInvalid as error:
            raise WorkflowBroken(f"{what} of {step} cannot be kept as JSON: {error}", step=step) from None


@contextmanager
def named(step: str) -> Iterator[None]:
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
