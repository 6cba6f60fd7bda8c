"""Work on one claimed run, and the one move that ends it."""

import logging
from typing import Final

from schemas.errors import ContractError, LeaseLost, MoveRefused, StoreUnavailable, WorkerError, WorkflowBroken
from streams.driver.endings import Drop, Ending, Fail, GiveUp, Release, Retry, Written, ending_of
from streams.driver.held import Holding
from streams.driver.patience import until_answered
from streams.driver.segment import Segment, Surroundings
from streams.logs import logged_as
from streams.workflow.runner import Completed, Parked

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
        ending = ending_of(error, segment.now, segment.around.backoff, may_write=may_write)
        with logged_as(step=segment.now.step):
            _log(ending, error)
        return ending


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
        if isinstance(ending, Retry | Release) and ending.delay_seconds > 0:
            segment.around.put_off(ending.delay_seconds)
    metrics.moves.labels(_MOVE_NAMES[type(ending)], result).inc()
    if instead is not None:
        await _settled(segment, instead)


async def _move(segment: Segment, ending: Written) -> None:
    moves, run, target = segment.around.moves, segment.holding.run, segment.target
    match ending:
        case Completed(result=result, verdict=verdict):
            await moves.complete(run, result=result, verdict=verdict)
        case Parked(step=step, step_index=index, request=request, resume_target=resume_target):
            await moves.park(run, step=step, step_index=index, request=request, resume_target=resume_target)
        case Retry(step=step, error=text, delay_seconds=delay):
            await moves.retry(run, step=step, target=target, error=text, delay_seconds=delay)
        case GiveUp(step=step, error=text):
            await moves.give_up(run, step=step, error=text)
        case Fail(step=step, error=text):
            await moves.fail(run, step=step, error=text)
        case Release(delay_seconds=delay):
            await moves.release(run, target=target, delay_seconds=delay)


_MOVE_NAMES: Final[dict[type[Ending], str]] = {
    Completed: "complete",
    Parked: "park",
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
