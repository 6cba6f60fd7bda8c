"""Running a step that fans out: a call for each item, so many at once, collected in the order of the items.

Each item is kept as soon as it is final, and is then never called again, whatever becomes of its neighbours or of this
process. An item whose failure may pass is tried again in a later segment, when the step has backed off; the others go
on meanwhile, until as many calls failed one after the other as may be in flight: then the service is away, and the
rest is left for later too.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import cast

from google.protobuf.message import Message

from schemas.errors import (
    BudgetSpent,
    EdgeFailed,
    InputInvalid,
    ItemFailed,
    SegmentInterrupted,
    StepFailed,
    WorkerError,
    WorkflowBroken,
)
from streams.workflow.callbacks import CallRequest
from streams.workflow.definition_fan_out import FailurePolicy
from streams.workflow.items import ItemStatus, TriedItem
from streams.workflow.plan import PlannedFanOut, PlannedStep
from streams.workflow.segment import Segment, named
from streams.workflow.validation import rejected


async def run_fan_out(segment: Segment, step: PlannedStep, work: PlannedFanOut) -> None:
    """Call what has not been called, collect the responses, and finish the step with one checkpoint.

    Raises:
        MappingFailed: the edge could not be built.
        ValidationFailed: what it built breaks rules, and not only within its items.
        EdgeFailed: there are more items than the step allows; none was called.
        ItemFailed: an item failed, of the lowest place among those that did. It may be tried again, or it is final.
        BudgetSpent: no time was left before a call, and nothing was done that could be gone on from.
        SegmentInterrupted: no time is left, and what is done so far is kept: go on with a budget of its own.
        WorkflowBroken: what was kept is not of these items.
        WorkerError: whatever the callbacks raised, untouched.
    """
    produced = await segment.built(work.call.request, step.name)
    inputs = cast("Sequence[Message]", work.items(produced) or ())
    if len(inputs) > work.max_items:
        raise EdgeFailed(f"there are {len(inputs):,} items, and maxItems is {work.max_items:,}", step=step.name)
    branches = _Branches(segment, step, work, inputs, await _rejected_items(segment, step, work, produced))
    await branches.restore()
    await branches.run()
    await branches.finish()


async def _rejected_items(
    segment: Segment, step: PlannedStep, work: PlannedFanOut, produced: Message
) -> Mapping[int, StepFailed]:
    """The items that break rules, where the edge asks for these. Raises ValidationFailed for what lies outside them."""
    if not work.call.validates_request:
        return {}
    rejections = await segment.rejections(produced, step.name, work.items_path)
    if None in rejections:
        raise rejected(rejections[None], step=step.name, what="edge")
    return {
        index: rejected(rejection, step=step.name, what="edge")
        for index, rejection in rejections.items()
        if index is not None
    }


class _Branches:
    """The items of one step in one segment: what is done, what failed, what is still to do."""

    def __init__(
        self,
        segment: Segment,
        step: PlannedStep,
        work: PlannedFanOut,
        inputs: Sequence[Message],
        rejected_items: Mapping[int, StepFailed],
    ) -> None:
        self._segment = segment
        self._step = step
        self._work = work
        self._inputs = inputs
        self._rejected = rejected_items
        self._responses: dict[int, Message] = {}
        self._kept: dict[int, object] = {}
        self._failed_tries: dict[int, int] = {}
        self._failures: dict[int, ItemFailed] = {}
        self._put_off: dict[int, ItemFailed] = {}
        self._waiting: deque[int] = deque()
        self._calling: set[asyncio.Task[None]] = set()
        self._failed_in_a_row = 0
        self._progress = False
        self._ended_by: WorkerError | None = None
        self._cut_short = False

    async def restore(self) -> None:
        """Take over what earlier segments kept."""
        for item in await self._segment.items.tried(self._step.name):
            self._check_place(item)
            if item.status is ItemStatus.COMPLETED:
                self._done(item.index, self._parsed(item), item.response)
                await asyncio.sleep(0)  # parsing many of them takes a while
            elif item.status is ItemStatus.FAILED:
                self._failures[item.index] = self._failure_kept(item)
            else:
                self._failed_tries[item.index] = item.failed_tries
        final = self._responses.keys() | self._failures.keys()
        self._waiting.extend(index for index in range(self._end()) if index not in final)

    def _end(self) -> int:
        """How far to go: up to an item that ends the step, so that those before it are called in any case."""
        fails_fast = self._work.failure_policy is FailurePolicy.FAIL_FAST
        return min(self._rejected) if fails_fast and self._rejected else len(self._inputs)

    def _check_place(self, item: TriedItem) -> None:
        """Make sure that what was kept is of the item that stands at its place now."""
        if not 0 <= item.index < len(self._inputs):
            text = f"an item {item.index} is kept of {self._step.name}, which has {len(self._inputs)}"
        elif item.input_hash != _hash(self._payload(item.index)):
            branch, way_out = self._branch(item.index), "an edge must give the same items in the same order each time"
            text = f"{branch} is no longer what it was at an earlier try: {way_out}, and a map has no order"
        else:
            return
        raise WorkflowBroken(text, step=self._step.name)

    async def run(self) -> None:
        """Call until nothing is left to be called in this segment.

        Raises:
            As `run_fan_out` does; without an error every item is done, or failed and is left out.
        """
        if not self._ends_the_step():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._work.max_concurrency, len(self._waiting))):
                    group.create_task(self._call_on())
        if not self._failures and len(self._responses) == self._end() < len(self._inputs):
            await self._fail(self._end(), self._rejected[self._end()])
        if self._ended_by is not None and not isinstance(self._ended_by, BudgetSpent):
            raise self._ended_by
        if self._ends_the_step():
            raise self._failures[min(self._failures)]
        if self._put_off:
            raise self._to_be_tried_again()
        if self._ended_by is not None:
            raise self._budget_spent(self._ended_by)
        if len(self._responses) + len(self._failures) != len(self._inputs):
            raise SegmentInterrupted("the call of an item was cancelled by itself, which says nothing about the item")

    async def finish(self) -> None:
        """Collect the responses and keep the step."""
        schemas, member = self._segment.plan.schema_set, self._work.collect_member
        collected = schemas.new(self._step.output_type)
        kept = cast("dict[str, object]", self._segment.rendered(collected, self._step.name, "the collection"))
        failed = sorted(self._failures)
        done = len(self._responses)
        if self._work.aligned:
            self._fill_gaps(failed)
        places = sorted(self._responses)
        getattr(collected, self._work.collect_into).extend(self._responses.pop(index) for index in places)
        kept[member] = [self._kept.pop(index) for index in places]
        told = {"total": len(self._inputs), "done": done, "failed": len(failed), "failedIndexes": failed}
        await self._segment.finish(self._step, collected, kept=kept, detail={"items": told})

    def _fill_gaps(self, places: Sequence[int]) -> None:
        gap = self._segment.plan.schema_set.new(self._work.response_type)
        kept = self._segment.rendered(gap, self._step.name, "the gap of an item")
        for index in places:
            self._done(index, gap, kept)

    async def _call_on(self) -> None:
        while self._waiting and not self._cut_short:
            await self._try(self._waiting.popleft())

    async def _try(self, index: int) -> None:
        try:
            response = await self._response(index)
            if response is not None:
                await self._complete(index, response)
        except BudgetSpent as error:
            self._ended_by = self._ended_by or error
            self._waiting.clear()
        except StepFailed as error:
            await self._fail(index, error)
        except WorkerError as error:
            self._cut(error)

    async def _response(self, index: int) -> Message | None:
        """The response to one item; None when this call was cut short for what became of another one."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._calling.add(task)
        try:
            with named(self._step.name):
                return await self._called(index)
        except asyncio.CancelledError:
            if self._cut_short and task.uncancel() == 0:
                return None
            raise
        finally:
            self._calling.discard(task)

    async def _called(self, index: int) -> Message:
        if index in self._rejected:
            raise self._rejected[index]
        call = self._work.call
        response = await self._segment.call(
            CallRequest(
                step=self._branch(index),
                step_index=self._step.index,
                target=call.target,
                tls=call.tls,
                method=call.method_path,
                payload=self._payload(index),
                timeout_seconds=self._segment.timeout_seconds(self._step.name, call.deadline_ms),
                response_type=self._work.response_type,
                attempt=self._failed_tries.get(index, 0) + 1,
            )
        )
        parsed = self._segment.parsed(self._work.response_type, response, self._branch(index))
        return await self._segment.validated(parsed, self._branch(index)) if self._step.validates else parsed

    async def _complete(self, index: int, response: Message) -> None:
        kept = self._segment.rendered(response, self._branch(index), "the response")
        await self._keep(index, ItemStatus.COMPLETED, self._failed_tries.get(index, 0), response=kept)
        self._done(index, response, kept)
        self._failed_in_a_row = 0
        self._progress = True

    async def _fail(self, index: int, error: StepFailed) -> None:
        failed_tries = self._failed_tries.get(index, 0) + 1
        again = self._segment.items.may_try_again(self._step.name, error, failed_tries)
        retryable = self._segment.items.may_try_again(self._step.name, error, 0)
        failure = ItemFailed.of(
            error, self._branch(index), step=self._step.name, retryable=retryable, failed_tries=failed_tries
        )
        if again:
            self._put_off[index] = failure
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= self._work.max_concurrency:
                self._waiting.clear()
        else:
            self._failures[index] = failure
            if self._ends_the_step():
                self._cut()
        status = ItemStatus.QUEUED if again else ItemStatus.FAILED
        given = None if again else self._shown(self._inputs[index])
        try:
            await self._keep(index, status, failed_tries, error=str(failure), input=given)
        except WorkerError as refused:
            self._cut(refused)
        else:
            self._progress |= not again

    def _cut(self, error: WorkerError | None = None) -> None:
        """Begin no other call, and cancel those that are in flight. What has its answer is still kept."""
        if self._ended_by is None or isinstance(self._ended_by, BudgetSpent):
            self._ended_by = error
        self._cut_short = True
        for task in self._calling:
            task.cancel()

    async def _keep(
        self,
        index: int,
        status: ItemStatus,
        failed_tries: int,
        *,
        response: object | None = None,
        error: str | None = None,
        input: object | None = None,
    ) -> None:
        item = TriedItem(index, status, failed_tries, _hash(self._payload(index)), response, error, input)
        await self._segment.items.keep(self._step.name, item, of=len(self._inputs))

    def _payload(self, index: int) -> bytes:
        return self._inputs[index].SerializeToString(deterministic=True)

    def _ends_the_step(self) -> bool:
        return self._work.failure_policy is FailurePolicy.FAIL_FAST and bool(self._failures)

    def _to_be_tried_again(self) -> ItemFailed:
        """The failure of the lowest place, with the most tries that any of them had: these tell how long to wait."""
        failure = self._put_off[min(self._put_off)]
        failure.failed_tries = max(item.failed_tries for item in self._put_off.values())
        return failure

    def _budget_spent(self, error: WorkerError) -> WorkerError:
        if not self._progress or not self._segment.items.keeps:
            return error
        final = len(self._responses) + len(self._failures)
        return SegmentInterrupted(f"the budget is used up; {final} of {len(self._inputs)} items are done and stay so")

    def _done(self, index: int, response: Message, kept: object) -> None:
        self._responses[index] = response
        self._kept[index] = kept

    def _parsed(self, item: TriedItem) -> Message:
        try:
            return self._segment.plan.schema_set.parse_json(self._work.response_type, item.response)
        except InputInvalid as error:
            text = f"the stored response of {self._branch(item.index)} does not parse: {error}"
            raise WorkflowBroken(text, step=self._step.name) from None

    def _failure_kept(self, item: TriedItem) -> ItemFailed:
        return ItemFailed.kept(item.error or "", step=self._step.name, failed_tries=item.failed_tries)

    def _shown(self, given: Message) -> object | None:
        try:
            return self._segment.plan.render(given)
        except InputInvalid:
            return None

    def _branch(self, index: int) -> str:
        return f"{self._step.name}#{index}"


def _hash(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
