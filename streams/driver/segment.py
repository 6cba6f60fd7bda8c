"""One claimed run at work: its plan, its calls under permits, its checkpoints."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from schemas.errors import BudgetSpent, CallFailed, SegmentInterrupted, StepFailed
from store.items import Items
from store.moves import Moves
from store.records import StoredCheckpoint
from streams.calls.grpc_calls import CallContext, TargetCalls
from streams.driver.handled import Handlers, HandlerSteps
from streams.driver.held import Holding
from streams.driver.items import HeldItems
from streams.driver.patience import until_answered
from streams.driver.permits import Permit, Permits
from streams.driver.step_records import step_record
from streams.logs import logged_as
from streams.metrics import Metrics
from streams.verbs.plans import Plans
from streams.workflow import runner
from streams.workflow.backoff import Backoff
from streams.workflow.endings import Try
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import Plan
from streams.workflow.retry import DEFAULT_RETRY
from streams.workflow.runner import Asleep, CallRequest, Completed, Parked, run_segment

PERMIT_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every segment of a process works with.

    `patience_seconds` is how long one answer of the store is waited for while a run is held; `stopping` says whether no
    further call may begin. `put_off` is told the seconds after which a run that was put off is due, and `due_in` those
    after which something happens to one that was parked.
    """

    moves: Moves
    plans: Plans
    evaluator: Evaluator
    calls: TargetCalls
    handlers: Handlers
    items: Items
    permits: Permits
    backoff: Backoff
    patience_seconds: float
    metrics: Metrics
    stopping: Callable[[], bool]
    put_off: Callable[[float], None]
    due_in: Callable[[float], None]


class Segment:
    """The work on one claimed run from its first missing checkpoint on, until it rests.

    `target` is where the run's next call goes, as far as is known: what it is handed back with.
    """

    def __init__(self, holding: Holding, around: Surroundings) -> None:
        self.target = holding.run.claim.target
        self.holding = holding
        self.around = around
        self._plan: Plan | None = None
        self._done = len(holding.run.claim.checkpoints)
        self._handler_steps = HandlerSteps(holding.run, around.handlers)
        self._items = HeldItems(
            holding,
            items=around.items,
            moves=around.moves,
            patience_seconds=around.patience_seconds,
            may_try_again=self._may_try_again,
        )
        self._in_line = asyncio.Lock()
        self._calls_in_flight = 0

    async def run(self) -> Completed | Parked | Asleep:
        """Work on until the run is complete, parked or asleep.

        Raises:
            SegmentInterrupted: stopped from outside, no permit within a second, or a target not served here.
            LeaseLost: a checkpoint found another claim.
            StoreUnavailable: it took nothing, for as long as one waits.
            EvaluatorUnavailable: this machine could not evaluate an expression now.
            StepFailed, MoveRefused, InputInvalid, NotFound, JobCorrupt: as the engine, the store and the plans say.
        """
        claim = self.holding.run.claim
        self._plan = plan = await until_answered(
            lambda: self.around.plans.by_hash(claim.definition_hash),
            for_seconds=self.around.patience_seconds,
            before_waiting=self.holding.drop_permit,
        )
        self.target = plan.next_target(self._done)
        stored = [runner.StoredCheckpoint(c.step_index, c.step, c.skipped, c.response) for c in claim.checkpoints]
        with self._handler_steps.ending():
            try:
                return await run_segment(
                    plan,
                    plan.parse_input(claim.input),
                    stored,
                    call=self._call,
                    checkpoint=self._checkpoint,
                    clock=time.monotonic,
                    evaluator=self.around.evaluator,
                    now=self.holding.run.database_time,
                    items=self._items,
                )
            finally:
                await self._items.close()

    @property
    def now(self) -> Try:
        """The try that is going on."""
        run = self.holding.run
        if self._plan is None:
            step = run.claim.attempt_step
            return Try(step, run.try_of(step), run.claim.max_attempts)
        in_hand = self._plan.steps[self._done] if self._done < len(self._plan.steps) else None
        step = in_hand.name if in_hand is not None else None
        retry = in_hand.retry if in_hand is not None else DEFAULT_RETRY
        return Try(step, run.try_of(step), retry.attempts or run.claim.max_attempts, retry)

    def _may_try_again(self, error: StepFailed, failed_tries: int) -> bool:
        now = self.now
        return now.retry.retries(error) and failed_tries < now.most

    async def _call(self, request: CallRequest) -> bytes:
        claim = self.holding.run.claim
        asked_at = time.monotonic()
        permit = await self._permit(request.target, of_an_item=request.attempt is not None)
        self._calls_in_flight += 1
        try:
            if self.around.stopping():
                raise SegmentInterrupted("this worker is stopping")
            left = request.timeout_seconds - (time.monotonic() - asked_at)
            if left <= 0:
                raise BudgetSpent(f"the call had no permit for {request.target} in time", step=request.step)
            left = min(left, self.holding.seconds_to_deadline())
            attempt = request.attempt or self.holding.run.try_of(request.step)
            context = CallContext(claim.job_id, attempt, claim.trace_context)
            with logged_as(step=request.step):
                return await self._measured(replace(request, timeout_seconds=left), context, permit)
        finally:
            self._calls_in_flight -= 1
            permit.release()

    async def _permit(self, target: str, *, of_an_item: bool) -> Permit:
        reserved = self.holding.take_permit()
        if reserved is not None:
            if reserved.target == target:
                return reserved
            reserved.release()
        # One of the run's calls stands in line for all of them, so that many items do not keep other runs waiting.
        async with self._in_line:
            while (
                permit := await self.around.permits.take(target, wait_seconds=PERMIT_WAIT_SECONDS, modest=of_an_item)
            ) is None:
                if not self._calls_in_flight:
                    raise SegmentInterrupted(f"no permit for the target {target} within {PERMIT_WAIT_SECONDS:g} s")
        return permit

    async def _made(self, request: CallRequest, context: CallContext, permit: Permit) -> bytes:
        if self._plan is not None and self.around.handlers.serves(request.target):
            schemas = self._plan.schema_set
            return await self._handler_steps.call(request, attempt=context.attempt, schemas=schemas, permit=permit)
        return await self.around.calls(request, context)

    async def _measured(self, request: CallRequest, context: CallContext, permit: Permit) -> bytes:
        metrics = self.around.metrics
        code = "CANCELLED"
        with metrics.step_seconds.time():
            try:
                response = await self._made(request, context, permit)
                code = "OK"
                return response
            except CallFailed as error:
                code = error.code
                raise
            except StepFailed as error:
                code = error.kind
                raise
            finally:
                metrics.steps.labels(code).inc()

    async def _checkpoint(self, checkpoint: runner.StoredCheckpoint, next_target: str) -> None:
        stored = StoredCheckpoint(checkpoint.step_index, checkpoint.step, checkpoint.skipped, checkpoint.response)
        moves, composed = self.around.moves, checkpoint.record
        record = None
        if composed is not None:
            record = step_record(self.holding.run, checkpoint.step, checkpoint.step_index, composed)
        if (transaction := self._handler_steps.take_transaction()) is not None:
            # Without an answer the handler's writes are gone, and it has to run again: there is nothing to repeat.
            await moves.checkpoint(self.holding.run, stored, transaction=transaction)
        else:
            await until_answered(
                lambda: moves.checkpoint(self.holding.run, stored, detail=checkpoint.detail, record=record),
                for_seconds=self.around.patience_seconds,
            )
        self._done += 1
        self.target = next_target
