"""Work on one claimed run, and the one move that ends it."""

import logging
from datetime import UTC
from typing import Final

from schemas.errors import (
    ContractError,
    FailureKind,
    LeaseLost,
    MoveRefused,
    StoreUnavailable,
    WorkerError,
    WorkflowBroken,
)
from streams.driver.held import Holding
from streams.driver.patience import until_answered
from streams.driver.segment import Segment, Surroundings
from streams.driver.step_records import step_record
from streams.logs import logged_as
from streams.workflow.endings import Drop, Ending, Fail, GiveUp, Release, Retry, Written, ending_of
from streams.workflow.runner import Asleep, Completed, Parked

log = logging.getLogger(__name__)

_REFUSED_SECONDS: Final = 60.0


async def work_on(holding: Holding, around: Surroundings) -> None:
    """Work on a claimed run until it rests, and write the one move that says how.

    Raises nothing but the cancellation of this task: a bug in one run fails that run, or leaves it to its lease's end.
    """
    with logged_as(job_id=holding.run.job_id):
        segment = Segment(holding, around)
        try:
            ending = await _worked(segment)
            holding.drop_permit()
            await _settled(segment, ending)
        except Exception:  # the edge of one run: whatever it was, its neighbours and the loops go on
            log.exception("how this run ended could not be written; it is taken up again when its lease ends")
        finally:
            holding.drop_permit()


async def _worked(segment: Segment) -> Ending:
    holding = segment.holding
    try:
        return await holding.interruptible(segment.run)
    except Exception as error:  # noqa: BLE001  # the edge of one run: every error is an ending, most by their own kind
        may_write = holding.cause is None or holding.cause.may_write
        too_late = _too_late(holding)
        ending = ending_of(error, segment.now, segment.around.backoff, may_write=may_write, too_late=too_late)
        with logged_as(step=segment.now.step):
            _log(ending, error)
        return ending


def _too_late(holding: Holding) -> str | None:
    """What the run fails with once its own deadline has passed, in the words of housekeeping; None before that."""
    deadline_at = holding.run.claim.deadline_at
    if deadline_at is None or holding.seconds_to_deadline() > 0:
        return None
    by = deadline_at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return f"{FailureKind.DEADLINE}: the run was not done by {by}Z (runDeadlineMs)"


async def _settled(segment: Segment, ending: Ending) -> None:
    """Write *ending*, or as much of it as Postgres takes: the run is not left RUNNING while this process lives."""
    metrics = segment.around.metrics
    if isinstance(ending, Drop):
        metrics.leases_lost.inc()
        return
    # Handing back is the last resort, so it is tried for ever.
    patience = None if isinstance(ending, Release) else segment.around.patience_seconds
    instead: Written | None = None
    result = "applied"
    try:
        await until_answered(lambda: _move(segment, ending), for_seconds=patience)
    except LeaseLost as error:
        log.warning("nothing was written: %s", error)
        metrics.leases_lost.inc()
        result = "lease_lost"
    except StoreUnavailable as error:
        result, instead = "unavailable", Release(str(error), segment.around.backoff.delay_seconds(1))
    except (MoveRefused, ContractError) as error:
        log.error("the store refuses how this run ended: %s", error)
        failed = Fail(None, f"WORKFLOW: how the run ended cannot be stored: {error}")
        result, instead = "refused", Release(str(error), _REFUSED_SECONDS) if isinstance(ending, Fail) else failed
    else:
        _look_again(segment, ending)
    metrics.moves.labels(_MOVE_NAMES[type(ending)], result).inc()
    if instead is not None:
        await _settled(segment, instead)


def _look_again(segment: Segment, ending: Written) -> None:
    """Have this process look when the run is due, and not only when it would have looked anyway."""
    match ending:
        case Retry(delay_seconds=delay) | Release(delay_seconds=delay) if delay > 0:
            segment.around.put_off(delay)
        case Parked(patience=patience):
            for milliseconds in (patience.remind_after_ms, patience.answer_within_ms):
                if milliseconds is not None:
                    segment.around.due_in(milliseconds / 1000)
        case Asleep(at=at, after_ms=after_ms):
            seconds = (at - segment.holding.run.database_time()).total_seconds() if at is not None else 0.0
            segment.around.due_in(seconds if after_ms is None else after_ms / 1000)


async def _move(segment: Segment, ending: Written) -> None:
    moves, run, target = segment.around.moves, segment.holding.run, segment.target
    match ending:
        case Completed(result=result, verdict=verdict):
            await moves.complete(run, result=result, verdict=verdict)
        case Parked():
            await _park(segment, ending)
        case Asleep(step=step, resume_target=resume_target, at=at, after_ms=after_ms):
            await moves.park_until(run, step=step, resume_target=resume_target, at=at, after_ms=after_ms)
        case Retry(step=step, error=text, delay_seconds=delay, failed_tries=tries):
            await moves.retry(run, step=step, target=target, error=text, delay_seconds=delay, failed_tries=tries)
        case GiveUp(step=step, error=text):
            await moves.give_up(run, step=step, error=text)
        case Fail(step=step, error=text, detail=detail):
            await moves.fail(run, step=step, error=text, detail=detail)
        case Release(delay_seconds=delay):
            await moves.release(run, target=target, delay_seconds=delay)


async def _park(segment: Segment, parked: Parked) -> None:
    run, record = segment.holding.run, None
    if parked.record is not None:
        record = step_record(run, parked.step, parked.step_index, parked.record)
    await segment.around.moves.park(
        run,
        step=parked.step,
        step_index=parked.step_index,
        request=parked.request,
        resume_target=parked.resume_target,
        answer_within_ms=parked.patience.answer_within_ms,
        remind_after_ms=parked.patience.remind_after_ms,
        record=record,
    )


_MOVE_NAMES: Final[dict[type[Ending], str]] = {
    Completed: "complete",
    Parked: "park",
    Asleep: "park",
    Retry: "retry",
    GiveUp: "give_up",
    Fail: "fail",
    Release: "release",
}


def _log(ending: Ending, error: Exception) -> None:
    match ending:
        case Release(why=why):
            log.info("handed back: %s", why)
        case Drop(why=why):
            log.warning("dropped: %s", why)
        case Retry(error=text, delay_seconds=delay):
            log.info("the step failed and is tried again in %.1f s: %s", delay, text)
        case _:
            # A bug's traceback is worth keeping; any other failure tells everything in its text.
            cause = error.__cause__ if isinstance(error, WorkflowBroken) else error
            bug = cause is not None and not isinstance(cause, WorkerError)
            log.warning("this run ended: %s", error, exc_info=error if bug else None)
