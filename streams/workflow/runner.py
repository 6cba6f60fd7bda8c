"""One segment of one run: from the first missing checkpoint to the end, to a step that somebody outside answers, or to
a failure.

The runner keeps nothing. What it learns goes out through the two callbacks, calls and checkpoints, one at a time and in
order: a checkpoint is stored before the next step begins.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from google.protobuf.message import Message

from schemas.errors import ExternalStepReached
from streams.workflow import run_kinds
from streams.workflow.callbacks import Call, CallRequest, Checkpoints
from streams.workflow.evaluation import Evaluator
from streams.workflow.items import NOTHING_KEPT, Items
from streams.workflow.outcomes import Asleep, Completed, Parked, StepOutcome
from streams.workflow.plan import (
    Plan,
    PlannedAnswer,
    PlannedAsk,
    PlannedCall,
    PlannedFanOut,
    PlannedPublish,
    PlannedStep,
    PlannedWait,
)
from streams.workflow.replay import StoredCheckpoint, replayed
from streams.workflow.run_fan_out import run_fan_out
from streams.workflow.segment import Segment, named

__all__ = [
    "Asleep",
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

_NEEDS_A_KEPT_RUN: Final[Mapping[type, str]] = {
    PlannedAnswer: "is answered from outside",
    PlannedAsk: "is answered from outside",
    PlannedPublish: "sends a record with its checkpoint",
    PlannedWait: "waits for a time",
}


def _time_of_this_machine() -> datetime:
    return datetime.now(UTC)


async def run_segment(
    plan: Plan,
    input: Message,
    stored: Sequence[StoredCheckpoint],
    *,
    call: Call,
    checkpoint: Checkpoints,
    clock: Callable[[], float],
    evaluator: Evaluator,
    items: Items = NOTHING_KEPT,
    now: Callable[[], datetime] = _time_of_this_machine,
    refuse_external: bool = False,
) -> Completed | Parked | Asleep:
    """Run on from the stored checkpoints.

    Args:
        plan: What to run; it is not changed.
        input: The run's input, as `plan.parse_input` gives it; it is not changed.
        stored: The checkpoints so far, in step order. Their steps are not run again.
        call: Makes the calls.
        checkpoint: Stores each finished step before the next one begins.
        clock: Monotonic seconds. The segment's budget runs from the start of this call.
        evaluator: Evaluates the plan's expressions; a plan without any never touches it.
        items: Keeps the items of steps that fan out; without it they are called anew in every segment, and once each.
        now: What time it is, for steps that wait: never later than the time they are woken by.
        refuse_external: For a run that is not kept: a step that needs that raises, instead of parking or sending.

    Raises:
        GateFailed: a step's gate gives no truth value.
        MappingFailed: a rule could not be applied.
        ValidationFailed: the input, a request or a response breaks the rules of its type.
        BudgetSpent: no time was left before a call; nothing was sent.
        CallFailed: as `call` raised it.
        EdgeFailed, ItemFailed: a step that fans out has too many items, or one of them failed.
        WorkflowBroken: the checkpoints do not fit the plan, a response could not be read or kept, or an exception that
            nobody expected escaped.
        ExternalStepReached: see *refuse_external*.
        WorkerError: whatever else the callbacks raised, untouched.
    """
    segment = Segment(
        plan, input, call=call, checkpoint=checkpoint, clock=clock, evaluator=evaluator, items=items, now=now
    )
    with named(""):
        for entry, response in replayed(plan, stored):
            segment.bind(entry.step, response, skipped=entry.skipped)
        if not stored:
            await plan.check_input(input, evaluator)
    for step in plan.steps[len(segment.outcomes) :]:
        with named(step.name):
            if not await segment.is_due(step):
                await segment.skip(step)
                continue
            if refuse_external and (needs := _NEEDS_A_KEPT_RUN.get(type(step.work))) is not None:
                way_out = "submit the workflow as a job (submit-workflow)"
                raise ExternalStepReached(f"{step.name} {needs}: {way_out}", step=step.name)
            parked = await _run_step(segment, step)
            if parked is not None:
                return parked
    with named(OUTPUT):
        return await _completed(segment)


async def _run_step(segment: Segment, step: PlannedStep) -> Parked | Asleep | None:
    """Run one step to its checkpoint, or say that the run waits there."""
    match step.work:
        case PlannedCall() as call:
            response = await _called(segment, step, call)
            if step.validates:
                await segment.validated(response, step.name)
            await segment.finish(step, response)
            return None
        case PlannedFanOut() as fan_out:
            await run_fan_out(segment, step, fan_out)
            return None
        case PlannedAnswer() as answer:
            return await _parked(segment, step, answer)
        case PlannedAsk() as question:
            return await run_kinds.ask(segment, step, question)
        case PlannedPublish() as message:
            await run_kinds.publish(segment, step, message)
            return None
        case PlannedWait() as wait:
            return await run_kinds.wait(segment, step, wait)


async def _called(segment: Segment, step: PlannedStep, call: PlannedCall) -> Message:
    request = await segment.built(call.request, step.name)
    if call.validates_request:
        await segment.validated(request, step.name, "edge")
    response = await segment.call(
        CallRequest(
            step=step.name,
            step_index=step.index,
            target=call.target,
            tls=call.tls,
            method=call.method_path,
            payload=request.SerializeToString(deterministic=True),
            timeout_seconds=segment.timeout_seconds(step.name, call.deadline_ms),
            response_type=step.output_type,
        )
    )
    return segment.parsed(step.output_type, response, step.name)


async def _parked(segment: Segment, step: PlannedStep, answer: PlannedAnswer) -> Parked:
    request = await segment.built(answer.request, step.name)
    return Parked(
        step=step.name,
        step_index=step.index,
        request=segment.rendered(request, step.name, "the composed request"),
        resume_target=segment.plan.next_target(step.index + 1),
        patience=answer.patience,
    )


async def _completed(segment: Segment) -> Completed:
    output = segment.plan.output
    message = await segment.built(output.mapping, OUTPUT) if output is not None else segment.last
    output_type = message.DESCRIPTOR.full_name
    return Completed(
        result=segment.rendered(message, OUTPUT, "the result"),
        output_type=output_type,
        verdict=f"{len(segment.outcomes)} steps, output {output_type}",
        steps=tuple(segment.outcomes),
    )
