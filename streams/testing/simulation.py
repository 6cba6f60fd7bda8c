"""One run, segment after segment, as workers and their store would take it there: on one clock, which is moved."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from google.protobuf.message import Message

from schemas.errors import EvaluatorUnavailable, FailureKind, InputInvalid, SegmentInterrupted, StepFailed, WorkerError
from schemas.events import Status
from streams.testing.kept import Kept
from streams.testing.replies import NotPrepared, Replies
from streams.testing.run import Item, Run
from streams.workflow.backoff import Backoff
from streams.workflow.callbacks import CallRequest
from streams.workflow.endings import Drop, Ending, Fail, GiveUp, Release, Retry, Try, ending_of
from streams.workflow.evaluation import Evaluator
from streams.workflow.items import TriedItem
from streams.workflow.outcomes import Asleep, Completed, Parked
from streams.workflow.plan import Plan, PlannedCall, PlannedFanOut
from streams.workflow.replay import StoredCheckpoint
from streams.workflow.retry import DEFAULT_RETRY
from streams.workflow.runner import run_segment

BACKOFF: Final = Backoff(base_seconds=5, cap_seconds=3600, spread=lambda: 0.0)
"""That of workers with the settings as they come, without its jitter."""


class _Crashed(WorkerError):
    """The worker dies here: nothing that it held is left, only what it has stored."""


class Simulation:
    """One run and all that a store would keep of it. It keeps items, too."""

    keeps = True

    def __init__(
        self,
        plan: Plan,
        given: Message,
        *,
        replies: Replies,
        answers: Mapping[str, Mapping[str, object]],
        crash_after: Sequence[str],
        max_attempts: int,
        evaluator: Evaluator,
        job_id: UUID,
    ) -> None:
        self._plan = plan
        self._given = given
        self._replies = replies
        self._answers = answers
        self._crashes = set(crash_after)
        self._max_attempts = max_attempts
        self._evaluator = evaluator
        self._submitted_at = self._now = datetime.now(UTC)
        self._status = Status.QUEUED
        self._completed: Completed | None = None
        self._error: str | None = None
        self._failed_step: str | None = None
        self._waiting_for: str | None = None
        self._failed_tries: dict[str | None, int] = {}
        self._claims = 0
        self._kept = Kept(plan, job_id)
        self._not_prepared: NotPrepared | None = None

    async def run(self) -> Run:
        """Follow it until it has ended, or waits for what nobody has prepared."""
        await self._submit()
        while self._status is Status.QUEUED:
            try:
                ending = await self._segment()
            except _Crashed:
                continue
            await self._write(ending)
        return self._told()

    async def _submit(self) -> None:
        try:
            await self._plan.check_input(self._given, self._evaluator)
        except StepFailed as error:
            self._settle("refuse", Status.FAILED, None, str(error))
        else:
            self._kept.announce("submit")

    async def _segment(self) -> Ending:
        self._claims += 1
        try:
            return await run_segment(
                self._plan,
                self._given,
                self._kept.checkpoints[:],
                call=self._call,
                checkpoint=self._checkpoint,
                clock=lambda: self._now.timestamp(),
                evaluator=self._evaluator,
                items=self,
                now=lambda: self._now,
            )
        except (EvaluatorUnavailable, _Crashed):
            raise
        except WorkerError as error:
            if self._not_prepared is not None:
                raise self._not_prepared from None
            return ending_of(error, self._try, BACKOFF, may_write=True)

    async def _write(self, ending: Ending) -> None:
        match ending:
            case Completed():
                self._completed = ending
                self._settle("complete", Status.COMPLETED)
            case Parked():
                await self._park(ending)
            case Asleep(step=step, at=at, after_ms=after_ms):
                self._kept.announce("park", step)
                if self._in_time(at if at is not None else self._later(milliseconds=after_ms or 0)):
                    self._resume("wake", StoredCheckpoint(len(self._kept.checkpoints), step, False, {}))
            case Retry(step=step, delay_seconds=delay, failed_tries=of_items):
                self._failed_tries[step] = of_items or self._failed_tries.get(step, 0) + 1
                self._in_time(self._later(seconds=delay))
            case GiveUp(step=step, error=text):
                self._settle("give_up", Status.DEAD, step, text)
            case Fail(step=step, error=text):
                self._settle("fail", Status.FAILED, step, text)
            case Release(why=why) | Drop(why=why):
                raise RuntimeError(f"a run that nobody interrupts was handed back: {why}")

    async def _call(self, request: CallRequest) -> bytes:
        step = self._plan.steps[request.step_index]
        work = step.work.call if isinstance(step.work, PlannedFanOut) else step.work
        assert isinstance(work, PlannedCall), "no other step calls"
        input_type = self._plan.schema_set.method(work.method_path.removeprefix("/")).input_type.full_name
        self._kept.ask(step.name, self._kept.shown(input_type, request.payload))
        self._kept.calls[step.name] += 1
        try:
            return await self._replies.reply(request, attempt=request.attempt or self._try.number)
        except NotPrepared as error:
            self._not_prepared = self._not_prepared or error
            raise SegmentInterrupted(str(error)) from None

    async def _checkpoint(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
        self._kept.keep(checkpoint)
        if checkpoint.record is not None:
            self._kept.publish(checkpoint.step, checkpoint.record)
        self._kept.announce("checkpoint", checkpoint.step)
        if checkpoint.step in self._crashes:
            self._crashes.remove(checkpoint.step)
            raise _Crashed

    async def tried(self, step: str) -> Sequence[TriedItem]:
        """The items of a step as earlier segments left them."""
        return list(self._kept.items.get(step, {}).values())

    async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
        """Keep one item."""
        self._kept.items.setdefault(step, {})[item.index] = item

    def may_try_again(self, step: str, error: StepFailed, failed_tries: int) -> bool:
        """Whether the policy of the step in hand tries an item again."""
        now = self._try
        return now.retry.retries(error) and failed_tries < now.most

    @property
    def _try(self) -> Try:
        done = len(self._kept.checkpoints)
        in_hand = self._plan.steps[done] if done < len(self._plan.steps) else None
        step = in_hand.name if in_hand is not None else None
        retry = in_hand.retry if in_hand is not None else DEFAULT_RETRY
        return Try(step, 1 + self._failed_tries.get(step, 0), retry.attempts or self._max_attempts, retry)

    async def _park(self, parked: Parked) -> None:
        step = parked.step
        if parked.record is not None:
            self._kept.publish(step, parked.record)
        self._kept.ask(step, parked.request)
        self._kept.announce("park", step)
        if step in self._answers:
            await self._answered(parked)
            return
        patience, since = parked.patience, self._now
        if patience.remind_after_ms is not None and self._in_time(self._later(milliseconds=patience.remind_after_ms)):
            self._kept.announce("remind", step)
        if self._status is not Status.QUEUED:
            return
        if patience.answer_within_ms is not None:
            by = since + timedelta(milliseconds=patience.answer_within_ms)
            if self._in_time(by):
                self._overdue(step, f"{step} was not answered", by, "answerWithinMs")
        elif self._deadline is not None:
            self._in_time(self._deadline)
        else:
            self._status, self._waiting_for = Status.WAITING, step

    async def _answered(self, parked: Parked) -> None:
        index, step = parked.step_index, parked.step
        try:
            message = self._plan.parse_response(index, self._answers[step])
            response = self._plan.render(message)
        except InputInvalid as error:
            wanted = self._plan.steps[index].output_type
            raise NotPrepared(f"the answer that is prepared for step {step} is no {wanted}: {error}") from None
        try:
            await self._plan.check_response(message, step, self._evaluator)
        except StepFailed as error:
            self._settle("reject_answer", Status.FAILED, step, str(error))
        else:
            self._resume("answer", StoredCheckpoint(index, step, False, response))

    def _resume(self, move: str, checkpoint: StoredCheckpoint) -> None:
        self._kept.keep(checkpoint)
        self._kept.announce(move, checkpoint.step)

    @property
    def _deadline(self) -> datetime | None:
        after_ms = self._plan.run_deadline_ms
        return None if after_ms is None else self._submitted_at + timedelta(milliseconds=after_ms)

    def _in_time(self, at: datetime) -> bool:
        """Skip the time until *at*; false where the run's own deadline comes first, and ends it."""
        deadline = self._deadline
        if deadline is not None and deadline <= at:
            self._now = max(self._now, deadline)
            self._overdue(self._try.step, "the run was not done", deadline, "runDeadlineMs")
            return False
        self._now = max(self._now, at)
        return True

    def _later(self, **duration: float) -> datetime:
        return self._now + timedelta(**duration)

    def _overdue(self, step: str | None, what: str, by: datetime, key: str) -> None:
        at = by.isoformat(timespec="milliseconds").removesuffix("+00:00")
        self._settle("overdue", Status.FAILED, step, f"{FailureKind.DEADLINE}: {what} by {at}Z ({key})")

    def _settle(self, move: str, status: Status, step: str | None = None, error: str | None = None) -> None:
        self._status, self._failed_step, self._error = status, step, error
        self._kept.announce(move, step)

    def _told(self) -> Run:
        completed, kept = self._completed, self._kept
        return Run(
            status=self._status,
            result=completed.result if completed is not None else None,
            verdict=completed.verdict if completed is not None else None,
            error=self._error,
            failed_step=self._failed_step,
            waiting_for=self._waiting_for,
            events=kept.events,
            published=kept.published,
            responses={entry.step: entry.response for entry in kept.checkpoints if not entry.skipped},
            skipped=[entry.step for entry in kept.checkpoints if entry.skipped],
            claims=self._claims,
            seconds=(self._now - self._submitted_at).total_seconds(),
            asked=kept.asked,
            tried={step: _shown(items) for step, items in kept.items.items()},
            called=kept.calls,
            steps=[step.name for step in self._plan.steps],
        )


def _shown(items: Mapping[int, TriedItem]) -> list[Item]:
    return [Item(str(item.status), item.response, item.error) for _, item in sorted(items.items())]
