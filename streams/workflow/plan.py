"""A plan: a definition that was compiled and verified. Immutable; any number of runs may share one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from streams.workflow.cel import Expression
from streams.workflow.composition import Composition
from streams.workflow.definition_fan_out import FailurePolicy
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Evaluator
from streams.workflow.json_values import parse_text
from streams.workflow.levels import ENGINE_LEVEL as ENGINE_LEVEL
from streams.workflow.mapping_read import Read
from streams.workflow.patience import ENDLESS, Patience
from streams.workflow.retry import DEFAULT_RETRY, RetryPolicy
from streams.workflow.validation import validate

ENGINE: Final = "local:engine"
"""The target of work that needs no service: composing a parked step's request, or the output."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One unary call. `method_path` is what goes over the wire: `/package.Service/Method`.

    `deadline_ms` caps the call; 0 leaves it what remains of the segment's budget. `validates_request`: the request must
    keep the rules of its type.
    """

    target: str
    tls: bool
    method_path: str
    deadline_ms: int
    input_type: str
    request: Composition
    validates_request: bool = False


@dataclass(frozen=True, slots=True)
class PlannedFanOut:
    """One call for each item of a message. `call.request` builds that message, and `items` reads the requests from it.

    `items_path` leads to them; where the message must keep the rules of its type, items that do not are items that
    failed. Each response is a `response_type`; in the order of the items they become `collect_into` of the step's
    output, whose member in JSON is `collect_member`. An item that failed is left out, or has an empty message there
    where they are `aligned`.
    """

    call: PlannedCall
    items: Read
    items_path: tuple[str, ...]
    response_type: str
    max_items: int
    max_concurrency: int
    failure_policy: FailurePolicy
    collect_into: str
    collect_member: str
    aligned: bool


@dataclass(frozen=True, slots=True)
class PlannedAnswer:
    """The run parks until somebody outside answers. `request` composes what is asked."""

    input_type: str
    request: Composition
    patience: Patience = ENDLESS


@dataclass(frozen=True, slots=True)
class PlannedAsk:
    """As PlannedAnswer, and the question is sent to a topic."""

    topic: str
    input_type: str
    request: Composition
    patience: Patience = ENDLESS


@dataclass(frozen=True, slots=True)
class PlannedPublish:
    """A message is sent to a topic. `key` None stands for the job's id."""

    topic: str
    key: Expression | None
    type: str
    value: Composition


@dataclass(frozen=True, slots=True)
class PlannedWait:
    """The run parks until a time: what `until` gives, or `for_ms` after the park where that is None."""

    for_ms: int
    until: Expression | None


Work = PlannedCall | PlannedFanOut | PlannedAnswer | PlannedAsk | PlannedPublish | PlannedWait
"""What a step does once its turn has come."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One verified step. `output_type` is the type of the message that later steps see under its name.

    `gate` decides before anything else of the step whether it is run or skipped; None always runs it. `validates`: what
    the step gives must keep the rules of its type, in a step that fans out each response by itself.
    """

    index: int
    name: str
    work: Work
    output_type: str
    gate: Expression | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    validates: bool = False


@dataclass(frozen=True, slots=True)
class PlannedOutput:
    """The final mapping and the message it builds."""

    type: str
    mapping: Composition


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `name` None: the definition names itself nothing. `budget_ms` bounds one segment.

    `output` None stands for the last response. `run_deadline_ms` bounds a whole run, None does not. `engine_level` is
    the least that an engine must know to run it. `validates_input`: the input must keep the rules of its type.
    """

    name: str | None
    input_type: str
    budget_ms: int
    steps: Sequence[PlannedStep]
    output: PlannedOutput | None
    schema_set: SchemaSet
    engine_level: int = 1
    run_deadline_ms: int | None = None
    validates_input: bool = False

    def parse_input(self, value: object) -> Message:
        """The input message from JSON text or a plain JSON value; names in camelCase or snake_case.

        Raises:
            InputInvalid: not JSON, an unknown field, or a value that does not fit; with the pointer of that part.
        """
        return self._parse(self.input_type, value)

    def parse_response(self, step_index: int, value: object) -> Message:
        """A step's response from JSON text or a plain JSON value, as strictly as an input. Raises InputInvalid."""
        return self._parse(self.steps[step_index].output_type, value)

    async def check_input(self, message: Message, evaluator: Evaluator) -> None:
        """Make sure that an input keeps the rules of its type, where the definition asks for that.

        Raises:
            ValidationFailed: it does not.
            WorkflowBroken: a rule is broken, failed for this input, or needed too much time or memory.
            EvaluatorUnavailable: this machine could not evaluate now.
        """
        if self.validates_input:
            await validate(message, self.schema_set, evaluator, what="input")

    async def check_response(self, message: Message, step: str, evaluator: Evaluator) -> None:
        """Make sure that a response keeps the rules of its type, where its step asks. Raises as `check_input`."""
        if any(planned.name == step and planned.validates for planned in self.steps):
            await validate(message, self.schema_set, evaluator, step=step)

    def _parse(self, full_name: str, value: object) -> Message:
        if isinstance(value, str | bytes):
            value = parse_text(value)
        return self.schema_set.parse_json(full_name, value)

    def render(self, message: Message) -> object:
        """The message as a plain JSON value: lowerCamelCase, defaults printed, 64-bit integers as text, keys sorted.

        Raises:
            InputInvalid: part of it has no JSON form that could be stored and read back; with its pointer.
        """
        return self.schema_set.to_json(message)

    def target_of(self, step_index: int) -> str:
        """The target whose permit that step needs: `host:port` or a name. Steps that call nothing need none."""
        work = self.steps[step_index].work
        match work:
            case PlannedCall(target=target) | PlannedFanOut(call=PlannedCall(target=target)):
                return target
            case _:
                return ENGINE

    def next_target(self, finished: int) -> str:
        """The target of what comes after *finished* steps; the output needs none."""
        return self.target_of(finished) if finished < len(self.steps) else ENGINE

    def index_of(self, step: str) -> int | None:
        """The index of the step of that name; None when the definition has no such step."""
        return next((planned.index for planned in self.steps if planned.name == step), None)
