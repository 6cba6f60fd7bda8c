"""run-workflow: a whole run in one call, for trying a definition out. It is not kept, and nothing of it survives."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import uuid4

from schemas.errors import (
    BudgetSpent,
    DefinitionInvalid,
    ExternalStepReached,
    InputInvalid,
    ResourceExhausted,
    SegmentInterrupted,
    StepFailed,
    WorkflowBroken,
)
from streams.calls.grpc_calls import CallContext
from streams.verbs.answers import Answer, refused
from streams.verbs.arguments import Arguments
from streams.verbs.definition_source import SOURCE_FIELDS, DefinitionSource, broken_answer
from streams.verbs.workflows import findings_answer
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import Plan, PlannedCall, PlannedFanOut
from streams.workflow.runner import CallRequest, Completed, StoredCheckpoint, run_segment

MOST_AT_ONCE: Final = 16
"""Synchronous runs of one process. Each holds its caller's connection, so there is no use in a longer line."""

_OVERTIME_SECONDS: Final = 1.0


class PlanCalls(Protocol):
    """Makes the calls of runs that are not kept: real ones, under the permits of their targets.

    Raises as `TargetCalls`, and BudgetSpent: no permit in time.
    """

    async def __call__(self, request: CallRequest, context: CallContext, *, schemas: SchemaSet) -> bytes: ...


@dataclass(slots=True)
class RunWorkflow:
    """The verb run-workflow. At most `most_at_once` runs are under way, and none takes over `longest_seconds`."""

    source: DefinitionSource
    evaluator: Evaluator
    calls: PlanCalls
    longest_seconds: float
    most_at_once: int = MOST_AT_ONCE
    under_way: int = 0

    async def __call__(self, tenant_id: str, given: object) -> Answer:
        """Run a definition (`workflow`) or a stored one (`workflowName`) from start to end in this call.

        Every step that needs a kept run is refused before anything is called, unless its gate may skip it: then when it
        is reached. A call that fails is not tried again.

        Raises:
            InputInvalid: a field is missing or of the wrong type.
            ResourceExhausted: too many synchronous runs are under way; try later, or submit a job.
            EvaluatorUnavailable, StoreUnavailable: call again.
        """
        arguments = Arguments(given, (*SOURCE_FIELDS, "input"))
        if arguments.object("input") is None:
            raise InputInvalid("input is required: a JSON object", pointer="/input")
        try:
            plan = await self.source.plan(tenant_id, arguments)
        except DefinitionInvalid as error:
            return findings_answer(error)
        except WorkflowBroken as error:
            return broken_answer(error)
        return await self._run(plan, arguments.object("input")) if isinstance(plan, Plan) else plan

    async def _run(self, plan: Plan, given: Mapping[str, object] | None) -> Answer:
        try:
            _refuse_what_parks(plan)
            with self._turn():
                return _completed(await self._segment(plan, given))
        except InputInvalid as error:
            return refused("input", f"input{error.pointer}: {error}")
        except StepFailed as error:
            return refused("failed", str(error), failedStep=error.step or None, **(error.event_detail or {}))
        except SegmentInterrupted as error:
            return refused("not-served", str(error))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self.under_way >= self.most_at_once:
            text = f"{self.most_at_once} synchronous runs are under way here, as many as there may be"
            raise ResourceExhausted(f"{text}: try later, or submit the workflow as a job (submit-workflow)")
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def _segment(self, plan: Plan, given: Mapping[str, object] | None) -> Completed:
        budget = min(plan.budget_ms / 1000, self.longest_seconds)
        context = CallContext(uuid4(), attempt=1)

        async def call(request: CallRequest) -> bytes:
            return await self.calls(request, context, schemas=plan.schema_set)

        try:
            async with asyncio.timeout(budget + _OVERTIME_SECONDS):
                message = plan.parse_input(given)
                await plan.check_input(message, self.evaluator)
                outcome = await run_segment(
                    replace(plan, budget_ms=int(budget * 1000)),
                    message,
                    (),
                    call=call,
                    checkpoint=_keep_nothing,
                    clock=time.monotonic,
                    evaluator=self.evaluator,
                    refuse_external=True,
                )
        except TimeoutError:
            raise BudgetSpent(f"the run did not end within {budget:g} s") from None
        if not isinstance(outcome, Completed):
            raise ExternalStepReached(f"{outcome.step} parks the run", step=outcome.step)
        return outcome


def _refuse_what_parks(plan: Plan) -> None:
    """Refuse a run that is bound to reach a step it cannot take, before any step has been called."""
    for step in plan.steps:
        if step.gate is None and not isinstance(step.work, PlannedCall | PlannedFanOut):
            text = f"{step.name} needs a run that is kept: submit the workflow as a job (submit-workflow)"
            raise ExternalStepReached(f"{text}; nothing was called", step=step.name)


async def _keep_nothing(checkpoint: StoredCheckpoint, next_target: str) -> None:
    """A run that is not kept has no checkpoints."""


def _completed(completed: Completed) -> Answer:
    return {
        "ok": True,
        "outputType": completed.output_type,
        "output": completed.result,
        "steps": [{"name": step.name, "skipped": step.skipped} for step in completed.steps],
    }
