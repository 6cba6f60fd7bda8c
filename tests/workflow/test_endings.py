"""What follows from each way a segment can fail."""

import pytest

from schemas.errors import (
    BudgetSpent,
    CallFailed,
    InputInvalid,
    JobCorrupt,
    LeaseLost,
    MappingFailed,
    MoveRefused,
    NotFound,
    SegmentInterrupted,
    StoreUnavailable,
    WorkflowBroken,
)
from streams.workflow.backoff import Backoff
from streams.workflow.endings import Drop, Ending, Fail, GiveUp, Release, Retry, Try, ending_of
from streams.workflow.retry import RetryPolicy

BACKOFF = Backoff(5, 3600, spread=lambda: 0.0)
BUSY = CallFailed("UNAVAILABLE", "busy", step="embed")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BUSY, Retry("embed", "GRPC: UNAVAILABLE: busy", 10)),
        (CallFailed("DEADLINE_EXCEEDED", "", step="embed"), Retry("embed", "GRPC: DEADLINE_EXCEEDED", 10)),
        (BudgetSpent("no time left", step="embed"), Retry("embed", "DEADLINE: no time left", 10)),
        (BudgetSpent("no time left"), Retry("embed", "DEADLINE: no time left", 10)),
        (CallFailed("NOT_FOUND", "", step="embed"), Fail("embed", "GRPC: NOT_FOUND")),
        (
            CallFailed("RESOURCE_EXHAUSTED", "too large", step="embed", retryable=False),
            Fail("embed", "GRPC: RESOURCE_EXHAUSTED: too large"),
        ),
        (MappingFailed("rule x = y", step="output"), Fail("output", "MAPPING: rule x = y")),
        (WorkflowBroken("too many entries"), Fail(None, "WORKFLOW: too many entries")),
        (JobCorrupt("no definition"), Fail(None, "WORKFLOW: no definition")),
        (NotFound("no definition"), Fail(None, "WORKFLOW: no definition")),
        (InputInvalid("no field txt"), Fail(None, "MAPPING: the stored input cannot be read: no field txt")),
        (MoveRefused("a NUL"), Fail("embed", "WORKFLOW: the checkpoint cannot be stored: a NUL")),
        (KeyError("x"), Fail("embed", "WORKFLOW: unexpected KeyError: 'x'")),
        (RecursionError("deep"), Fail("embed", "WORKFLOW: unexpected RecursionError: deep")),
        (StoreUnavailable("away"), Release("away", 5)),
        (SegmentInterrupted("stopping"), Release("stopping")),
        (LeaseLost("job", 7), Drop("claim 7 no longer holds the lease of run job")),
    ],
    ids=str,
)
def test_each_error_has_its_ending(error: Exception, expected: Ending) -> None:
    assert ending_of(error, Try("embed", number=2, most=3), BACKOFF, may_write=True) == expected


@pytest.mark.parametrize("number", [3, 4, 1100])
def test_the_last_try_of_a_step_is_given_up(number: int) -> None:
    ending = ending_of(BUSY, Try("embed", number=number, most=3), BACKOFF, may_write=True)
    assert ending == GiveUp("embed", "GRPC: UNAVAILABLE: busy")


def test_nothing_is_written_for_a_run_that_is_no_longer_ours() -> None:
    ending = ending_of(SegmentInterrupted("lost"), Try("embed", 1, 3), BACKOFF, may_write=False)
    assert ending == Drop("lost")


def test_an_error_text_can_always_be_stored() -> None:
    ending = ending_of(CallFailed("INTERNAL", "a\0\ud800b", step="embed"), Try("embed", 1, 3), BACKOFF, may_write=True)
    assert ending == Fail("embed", "GRPC: INTERNAL: a\ufffd\ufffdb")


@pytest.mark.parametrize(
    ("error", "number", "expected"),
    [
        (CallFailed("ABORTED", ""), 1, Retry("embed", "GRPC: ABORTED", 0.5)),
        (CallFailed("ABORTED", ""), 4, Retry("embed", "GRPC: ABORTED", 2)),
        (CallFailed("ABORTED", ""), 9, GiveUp("embed", "GRPC: ABORTED")),
        (CallFailed("UNAVAILABLE", "", step="embed"), 1, Fail("embed", "GRPC: UNAVAILABLE")),
        (CallFailed("RESOURCE_EXHAUSTED", "", step="embed"), 1, Retry("embed", "GRPC: RESOURCE_EXHAUSTED", 0.5)),
        (
            CallFailed("RESOURCE_EXHAUSTED", "too large", step="embed", retryable=False),
            1,
            Fail("embed", "GRPC: RESOURCE_EXHAUSTED: too large"),
        ),
        (BudgetSpent("no time left"), 1, Retry("embed", "DEADLINE: no time left", 0.5)),
    ],
    ids=str,
)
def test_a_step_with_a_policy_of_its_own_goes_by_that(error: Exception, number: int, expected: Ending) -> None:
    policy = RetryPolicy(frozenset({"ABORTED", "RESOURCE_EXHAUSTED"}), 9, (500, 2_000))
    assert ending_of(error, Try("embed", number, 9, policy), BACKOFF, may_write=True) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BUSY, Fail("embed", "too late")),
        (SegmentInterrupted("its deadline has passed"), Fail("embed", "too late")),
        (MappingFailed("rule x = y", step="embed"), Fail("embed", "MAPPING: rule x = y")),
        (StoreUnavailable("away"), Release("away", 5)),
        (LeaseLost("job", 7), Drop("claim 7 no longer holds the lease of run job")),
    ],
    ids=str,
)
def test_past_the_deadline_of_its_run_nothing_is_tried_again(error: Exception, expected: Ending) -> None:
    at = Try("embed", number=1, most=3)
    assert ending_of(error, at, BACKOFF, may_write=True, too_late="too late") == expected


def test_past_the_deadline_a_run_of_somebody_else_is_dropped_all_the_same() -> None:
    at = Try("embed", number=1, most=3)
    ending = ending_of(SegmentInterrupted("lost"), at, BACKOFF, may_write=False, too_late="too late")
    assert ending == Drop("lost")
