"""What fails of a step that fans out: which items, whether they are tried again, and what the step says of it."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import (
    CallFailed,
    ItemFailed,
    SegmentInterrupted,
)
from schemas.limits import DETAIL_BYTES
from streams.workflow.items import ItemStatus, TriedItem
from streams.workflow.limits import MAX_FAN_OUT_ITEMS
from streams.workflow.plan import Plan
from tests.workflow.mail import Kept, Mailer, gone, mail_all, mailed, result, sent, ticks, tried
from tests.workflow.samples import Log

DONE, FAILED, QUEUED = ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.QUEUED


async def test_continuing_leaves_out_what_failed_and_says_which(plan: Plan) -> None:
    mailer, log, kept = Mailer(plan), Log(), Kept()
    mailer.failing = {1: gone("INVALID_ARGUMENT"), 4: gone("NOT_FOUND")}

    completed = await mailed(plan, mailer, count=6, log=log, items=kept)

    assert result(completed)["sentMails"] == sent(0, 2, 3, 5)
    assert log.stored[0].detail == {"items": {"total": 6, "done": 4, "failed": 2, "failedIndexes": [1, 4]}}
    failed = tried(1, FAILED, 1, error="GRPC: mailall#1: INVALID_ARGUMENT: gone")
    assert kept.items[1] == replace(failed, input={"to": "1", "subject": "", "labels": []})


async def test_aligned_responses_stand_at_the_places_of_their_items(compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(aligned=True))
    mailer, log, kept = Mailer(plan), Log(), Kept()
    mailer.failing = {0: gone("INVALID_ARGUMENT"), 2: gone("NOT_FOUND")}

    completed = await mailed(plan, mailer, count=4, log=log, items=kept)

    gap = {"id": ""}
    assert result(completed)["sentMails"] == [gap, *sent(1), gap, *sent(3)]
    assert log.stored[0].detail == {"items": {"total": 4, "done": 2, "failed": 2, "failedIndexes": [0, 2]}}
    assert result(await mailed(plan, mailer, count=4, log=log, items=kept)) == result(completed)


async def test_continuing_succeeds_with_nothing_when_everything_failed(plan: Plan) -> None:
    mailer = Mailer(plan)
    mailer.failing = {index: gone("INTERNAL") for index in range(3)}

    assert result(await mailed(plan, mailer, count=3, items=Kept()))["sentMails"] == []


async def test_what_is_told_of_failed_items_fits_into_an_event_however_many_they_are(compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(maxItems=MAX_FAN_OUT_ITEMS, maxConcurrency=64))
    mailer, log = Mailer(plan), Log()
    mailer.failing = {index: gone("INTERNAL") for index in range(MAX_FAN_OUT_ITEMS)}

    await mailed(plan, mailer, count=MAX_FAN_OUT_ITEMS, log=log)

    assert len(json.dumps(log.stored[0].detail)) <= DETAIL_BYTES


async def test_failing_fast_stops_what_has_not_begun_and_cancels_what_runs(fail_fast: Plan) -> None:
    mailer, kept = Mailer(fail_fast), Kept()
    mailer.holding = {index: asyncio.Event() for index in (0, 2, 3)}
    mailer.failing = {1: gone("INVALID_ARGUMENT")}

    with pytest.raises(ItemFailed) as caught:
        await mailed(fail_fast, mailer, count=50, items=kept)

    assert str(caught.value) == "GRPC: mailall#1: INVALID_ARGUMENT: gone"
    assert (caught.value.step, caught.value.retryable, caught.value.failed_tries) == ("mailall", False, 1)
    assert (sorted(mailer.called), sorted(mailer.cancelled)) == ([0, 1, 2, 3], [0, 2, 3])
    assert (kept.of(FAILED), kept.of(DONE)) == ([1], [])


async def test_failing_fast_never_names_an_item_that_was_cancelled(fail_fast: Plan) -> None:
    mailer, kept = Mailer(fail_fast), Kept()
    mailer.holding = {0: asyncio.Event()}
    mailer.failing = {1: gone("NOT_FOUND")}

    with pytest.raises(ItemFailed, match=r"GRPC: mailall#1: NOT_FOUND"):
        await mailed(fail_fast, mailer, count=2, items=kept)

    assert (mailer.cancelled, kept.of(FAILED)) == ([0], [1])


async def test_of_several_final_failures_the_lowest_is_named(fail_fast: Plan) -> None:
    failures = [tried(index, FAILED, 1, error=f"GRPC: mailall#{index}: INTERNAL: gone") for index in (3, 1, 2)]

    with pytest.raises(ItemFailed, match=r"GRPC: mailall#1: INTERNAL"):
        await mailed(fail_fast, Mailer(fail_fast), count=4, items=Kept(*failures))


async def test_what_has_its_response_is_kept_though_another_item_fails_fast(fail_fast: Plan) -> None:
    mailer = Mailer(fail_fast)
    mailer.failing = {1: gone("NOT_FOUND")}

    class Slow(Kept):
        async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
            if item.index == 0:
                await ticks()
            await super().keep(step, item, of=of)

    kept = Slow()
    with pytest.raises(ItemFailed):
        await mailed(fail_fast, mailer, count=2, items=kept)

    assert kept.of(DONE) == [0]


async def test_an_item_whose_failure_may_pass_is_tried_again_later_and_the_others_go_on(plan: Plan) -> None:
    mailer, log, kept = Mailer(plan), Log(), Kept()
    mailer.failing = {2: gone()}

    with pytest.raises(ItemFailed, match=r"GRPC: mailall#2: UNAVAILABLE: gone") as caught:
        await mailed(plan, mailer, count=8, log=log, items=kept)

    assert (caught.value.retryable, caught.value.failed_tries) == (True, 1)
    assert (kept.of(QUEUED), kept.of(DONE), log.stored) == ([2], [0, 1, 3, 4, 5, 6, 7], [])

    mailer.failing.clear()
    again = Mailer(plan)
    assert result(await mailed(plan, again, count=8, log=log, items=kept))["sentMails"] == sent(*range(8))
    assert (again.called, again.requests[0].attempt) == ([2], 2)


@pytest.mark.parametrize("policy", ["CONTINUE", "FAIL_FAST"])
async def test_an_item_that_used_up_its_tries_has_failed(policy: str, compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(failurePolicy=policy))
    mailer, kept = Mailer(plan), Kept(tried(0, QUEUED, 2, error="GRPC: mailall#0: UNAVAILABLE: gone"))
    mailer.failing = {0: gone()}

    if policy == "CONTINUE":
        assert result(await mailed(plan, mailer, count=3, items=kept))["sentMails"] == sent(1, 2)
    else:
        with pytest.raises(ItemFailed) as caught:
            await mailed(plan, mailer, count=3, items=kept)
        assert (caught.value.retryable, caught.value.failed_tries) == (True, 3)
    assert kept.of(FAILED) == [0]


async def test_a_service_that_is_away_is_not_asked_for_every_item(plan: Plan) -> None:
    mailer, kept = Mailer(plan), Kept()
    mailer.failing = {index: gone() for index in range(100)}

    with pytest.raises(ItemFailed, match="mailall#0"):
        await mailed(plan, mailer, count=100, items=kept)

    assert len(mailer.requests) < 2 * 4
    assert kept.of(FAILED) == []


async def test_a_service_that_refuses_some_items_is_asked_for_all_of_them(compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(maxConcurrency=2))
    mailer, kept = Mailer(plan), Kept()
    mailer.failing = {index: gone() for index in range(1, 20, 2)}

    with pytest.raises(ItemFailed, match="mailall#1"):
        await mailed(plan, mailer, count=20, items=kept)

    assert (kept.of(DONE), kept.of(QUEUED)) == (list(range(0, 20, 2)), list(range(1, 20, 2)))


async def test_a_call_that_is_cancelled_by_itself_leaves_no_gap(plan: Plan) -> None:
    mailer, log = Mailer(plan), Log()
    mailer.failing = {1: asyncio.CancelledError()}

    with pytest.raises(SegmentInterrupted):
        await mailed(plan, mailer, count=3, log=log, items=Kept())

    assert log.stored == []


async def test_the_most_tried_item_tells_how_often_the_step_failed(plan: Plan) -> None:
    mailer, kept = Mailer(plan), Kept(tried(3, QUEUED, 1, error="GRPC: x"), most=5)
    mailer.failing = {1: gone(), 3: gone("DEADLINE_EXCEEDED")}

    with pytest.raises(ItemFailed, match="mailall#1") as caught:
        await mailed(plan, mailer, count=4, items=kept)

    assert caught.value.failed_tries == 2


async def test_a_final_failure_that_was_kept_fails_the_step_at_once(fail_fast: Plan) -> None:
    mailer = Mailer(fail_fast)
    kept = Kept(tried(2, FAILED, 1, error="GRPC: mailall#2: NOT_FOUND: gone"))

    with pytest.raises(ItemFailed) as caught:
        await mailed(fail_fast, mailer, count=4, items=kept)

    assert (str(caught.value), caught.value.step) == ("GRPC: mailall#2: NOT_FOUND: gone", "mailall")
    assert mailer.requests == []


def test_a_final_failure_keeps_its_kind_and_text() -> None:
    failure = ItemFailed.of(CallFailed("NOT_FOUND", "x"), "a#1", step="a", retryable=False, failed_tries=2)
    again = ItemFailed.kept(str(failure), step="a", failed_tries=2)

    assert (str(again), again.kind, again.failed_tries) == (str(failure), failure.kind, 2)
