"""Reading stored checkpoints back: they must fit the plan, entry by entry."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from schemas.errors import InputInvalid, WorkflowBroken
from streams.workflow.plan import Plan
from streams.workflow.records import ComposedRecord


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One finished step. `response` is plain JSON, and None exactly when the step was skipped.

    `detail` is told in the event of a step that has just finished, as plain JSON, and `record` is sent with it; neither
    is kept with the step.
    """

    step_index: int
    step: str
    skipped: bool
    response: object | None
    detail: object | None = None
    record: ComposedRecord | None = None


def replayed(plan: Plan, stored: Sequence[StoredCheckpoint]) -> Iterator[tuple[StoredCheckpoint, Message]]:
    """Each stored checkpoint with its response; a skipped step has the empty message of its output type.

    Raises:
        WorkflowBroken: the checkpoints are not those of this plan; the text says where they part.
    """
    if not isinstance(stored, list | tuple):
        raise WorkflowBroken(f"the stored checkpoints are no array but a {type(stored).__name__}")
    if len(stored) > len(plan.steps):
        raise WorkflowBroken(f"{len(stored)} checkpoints are stored, and the definition has {len(plan.steps)} steps")
    for index, entry in enumerate(stored):
        _check_place(plan, index, entry)
        yield entry, _response(plan, index, entry)


def _check_place(plan: Plan, index: int, entry: object) -> None:
    if not isinstance(entry, StoredCheckpoint):
        raise WorkflowBroken(f"the stored checkpoint {index} is no checkpoint but a {type(entry).__name__}")
    if entry.step_index != index:
        raise WorkflowBroken(f"the stored checkpoint {index} says it is that of step {entry.step_index}")
    declared = plan.steps[index].name
    if entry.step != declared:
        raise WorkflowBroken(f"the stored checkpoint {index} is of {entry.step}, and step {index} is {declared}")


def _response(plan: Plan, index: int, entry: StoredCheckpoint) -> Message:
    step = plan.steps[index]
    if entry.skipped:
        return plan.schema_set.new(step.output_type)
    if entry.response is None:
        raise WorkflowBroken(f"the stored checkpoint of {step.name} has no response", step=step.name)
    try:
        return plan.schema_set.parse_json(step.output_type, entry.response)
    except InputInvalid as error:
        text = f"the stored response of {step.name} does not parse: {error}"
        raise WorkflowBroken(text, step=step.name) from None
