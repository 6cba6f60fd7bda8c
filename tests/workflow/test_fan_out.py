"""Running a step that fans out: in order, so many at once, what fails, and what a later segment still has to do."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import (
    BudgetSpent,
    CallFailed,
    EdgeFailed,
    ItemFailed,
    LeaseLost,
    SegmentInterrupted,
    StoreUnavailable,
    WorkflowBroken,
)
from schemas.limits import DETAIL_BYTES
from streams.workflow.items import ItemStatus, TriedItem
from streams.workflow.limits import MAX_FAN_OUT_ITEMS
from streams.workflow.plan import Plan
from streams.workflow.runner import Completed
from tests.workflow.mail import Kept, Mailer, gone, mail_all, mailed, sent, tried
from tests.workflow.samples import Clock, Log, entry

DONE, FAILED, QUEUED = ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.QUEUED


@pytest.fixture
async def plan(compiled_plan: Any) -> Plan:
    found: Plan = await compiled_plan(mail_all())
    return found


@pytest.fixture
async def fail_fast(compiled_plan: Any) -> Plan:
    found: Plan = await compiled_plan(mail_all(failurePolicy="FAIL_FAST"))
    return found


def result(completed: object) -> Any:
    assert isinstance(completed, Completed)
    return completed.result


async def ticks(times: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(times):
        await asyncio.sleep(0)


async def test_responses_are_collected_in_the_order_of_the_items(plan: Plan) -> None:
    mailer, log, kept = Mailer(plan), Log(), Kept()
    mailer.holding = {0: asyncio.Event()}
    running = asyncio.create_task(mailed(plan, mailer, count=10, log=log, items=kept))
    await kept.until(range(1, 10))
    mailer.holding[0].set()

    assert result(await running)["sentMails"] == sent(*range(10))
    [checkpoint] = log.stored
    assert checkpoint.detail == {"items": {"total": 10, "done": 10, "failed": 0, "failedIndexes": []}}


async def test_what_is_kept_is_the_json_of_the_collected_message(plan: Plan) -> None:
    log = Log()
    completed = await mailed(plan, Mailer(plan), count=3, log=log)

    assert log.stored[0].response == result(completed)
    parsed = plan.schema_set.parse_json("mail.v1.SentBatch", log.stored[0].response)
    assert plan.render(parsed) == log.stored[0].response


@pytest.mark.parametrize("concurrency", [1, 3, 64])
async def test_no_more_calls_are_in_flight_than_allowed(concurrency: int, compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(maxConcurrency=concurrency))
    mailer = Mailer(plan)

    await mailed(plan, mailer, count=20)

    assert mailer.most_in_flight == min(concurrency, 20)
    assert sorted(mailer.called) == list(range(20))


async def test_a_call_of_an_item_names_its_branch_and_its_try(plan: Plan) -> None:
    mailer = Mailer(plan)
    await mailed(plan, mailer, count=2, items=Kept(tried(1, QUEUED, 2, error="GRPC: gone")))

    first, second = mailer.requests
    assert (first.step, first.step_index, first.attempt, first.response_type) == ("mailall#0", 0, 1, "mail.v1.Sent")
    assert (second.step, second.attempt, second.target) == ("mailall#1", 3, "mailer")


async def test_no_items_are_a_success_with_an_empty_collection(plan: Plan) -> None:
    mailer, log = Mailer(plan), Log()

    assert result(await mailed(plan, mailer, count=0, log=log))["sentMails"] == []
    assert mailer.requests == []
    assert log.stored[0].detail == {"items": {"total": 0, "done": 0, "failed": 0, "failedIndexes": []}}


async def test_an_unset_message_on_the_way_to_the_items_means_no_items(compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(edge={"rules": []}, items="envelope.mails"))

    assert result(await mailed(plan, Mailer(plan), count=3))["sentMails"] == []


async def test_an_edge_makes_items_by_expressions(compiled_plan: Any) -> None:
    selector = "input.drafts.filter(d, d.to != '1').map(d, mail.v1.Mail{to: d.to, subject: 'for ' + d.to})"
    edge = {"rules": [], "celRules": [{"target": "mails", "selector": selector}]}
    plan = await compiled_plan(mail_all(edge=edge))
    mailer = Mailer(plan)

    assert result(await mailed(plan, mailer, count=3))["sentMails"] == sent(0, 2)
    first: Any = plan.schema_set.from_wire("mail.v1.Mail", mailer.requests[0].payload)
    assert first.subject == "for 0"


async def test_a_gate_decides_before_the_edge_and_a_skipped_step_has_no_items(compiled_plan: Any) -> None:
    document = mail_all(maxItems=1)
    document["steps"][0]["when"] = "size(input.drafts) < 2"
    document["output"] = {"type": "mail.v1.SentBatch", "rules": ["sent_mails = mailall.sent_mails", 'title = "t"']}
    plan = await compiled_plan(document)
    mailer, log = Mailer(plan), Log()

    assert result(await mailed(plan, mailer, count=2, log=log))["title"] == "t"
    assert (mailer.requests, [kept.skipped for kept in log.stored]) == ([], [True])
    assert result(await mailed(plan, mailer, count=1))["sentMails"] == sent(0)


async def test_too_many_items_fail_the_step_before_anything_is_called(compiled_plan: Any) -> None:
    plan = await compiled_plan(mail_all(maxItems=3))
    mailer = Mailer(plan)

    with pytest.raises(EdgeFailed, match="EDGE: there are 4 items, and maxItems is 3") as caught:
        await mailed(plan, mailer, count=4)

    assert (caught.value.step, caught.value.retryable, mailer.requests) == ("mailall", False, [])


async def test_continuing_leaves_out_what_failed_and_says_which(plan: Plan) -> None:
    mailer, log, kept = Mailer(plan), Log(), Kept()
    mailer.failing = {1: gone("INVALID_ARGUMENT"), 4: gone("NOT_FOUND")}

    completed = await mailed(plan, mailer, count=6, log=log, items=kept)

    assert result(completed)["sentMails"] == sent(0, 2, 3, 5)
    assert log.stored[0].detail == {"items": {"total": 6, "done": 4, "failed": 2, "failedIndexes": [1, 4]}}
    failed = tried(1, FAILED, 1, error="GRPC: mailall#1: INVALID_ARGUMENT: gone")
    assert kept.items[1] == replace(failed, input={"to": "1", "subject": "", "labels": []})


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


async def test_a_crash_repeats_no_item_that_was_kept(plan: Plan) -> None:
    mailer, log, kept = Mailer(plan), Log(), Kept()
    mailer.holding = {5: asyncio.Event()}
    running = asyncio.create_task(mailed(plan, mailer, count=6, log=log, items=kept))
    await kept.until(range(5))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert mailer.cancelled == [5]

    again = Mailer(plan)
    assert result(await mailed(plan, again, count=6, log=log, items=kept))["sentMails"] == sent(*range(6))
    assert again.called == [5]


async def test_the_time_of_a_call_is_what_is_left_when_it_begins(compiled_plan: Any) -> None:
    document = mail_all(maxConcurrency=1)
    document["deadlineMs"] = 10_000
    plan = await compiled_plan(document)
    clock = Clock()

    class Slow(Mailer):
        async def __call__(self, request: Any) -> bytes:
            clock.now += 4
            return await super().__call__(request)

    mailer, kept = Slow(plan), Kept()
    with pytest.raises(SegmentInterrupted, match="3 of 5 items are done"):
        await mailed(plan, mailer, count=5, items=kept, clock=clock)
    assert [request.timeout_seconds for request in mailer.requests] == [10, 6, 2]

    mailer = Slow(plan)
    assert result(await mailed(plan, mailer, count=5, items=kept, clock=clock))["sentMails"] == sent(*range(5))
    assert mailer.called == [3, 4]


@pytest.mark.parametrize("kept", [None, Kept(tried(0, DONE, response={"id": "m-0"}))])
async def test_a_budget_that_is_spent_on_nothing_fails_the_step(kept: Kept | None, compiled_plan: Any) -> None:
    document = mail_all(maxConcurrency=1)
    document["deadlineMs"] = 10_000
    plan = await compiled_plan(document)
    clock = Clock()

    class Late(Kept):
        async def tried(self, step: str) -> list[TriedItem]:
            clock.now += 11
            return list(kept.items.values()) if kept is not None else []

    with pytest.raises(BudgetSpent):
        await mailed(plan, Mailer(plan), count=3, items=Late(), clock=clock)


async def test_without_a_store_a_spent_budget_fails_the_step_whatever_is_done(compiled_plan: Any) -> None:
    document = mail_all(maxConcurrency=1)
    document["deadlineMs"] = 10_000
    plan = await compiled_plan(document)
    clock = Clock()

    class Slow(Mailer):
        async def __call__(self, request: Any) -> bytes:
            clock.now += 6
            return await super().__call__(request)

    with pytest.raises(BudgetSpent):
        await mailed(plan, Slow(plan), count=3, clock=clock)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), LeaseLost("job", 1)])
async def test_what_cannot_be_kept_ends_the_segment_untouched(error: Exception, plan: Plan) -> None:
    mailer, kept = Mailer(plan), Kept()
    mailer.holding = {3: asyncio.Event()}
    kept.failing = error

    with pytest.raises(type(error)) as caught:
        await mailed(plan, mailer, count=20, items=kept)

    assert caught.value is error
    assert (mailer.cancelled, len(mailer.requests)) == ([3], 4)


async def test_a_call_that_is_interrupted_ends_the_segment_and_counts_no_try(plan: Plan) -> None:
    mailer, kept = Mailer(plan), Kept()
    mailer.holding = {0: asyncio.Event()}
    mailer.failing = {1: SegmentInterrupted("this worker is stopping")}

    with pytest.raises(SegmentInterrupted):
        await mailed(plan, mailer, count=3, items=kept)

    assert (sorted(mailer.cancelled), kept.of(QUEUED), kept.of(FAILED)) == ([0, 2], [], [])


async def test_an_unexpected_error_in_a_call_is_a_failure_of_its_item(fail_fast: Plan) -> None:
    mailer = Mailer(fail_fast)
    mailer.failing = {0: RuntimeError("a bug")}

    with pytest.raises(ItemFailed, match="WORKFLOW: mailall#0: unexpected RuntimeError: a bug"):
        await mailed(fail_fast, mailer, count=1, items=Kept())


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (tried(7, DONE, response={"id": "m"}), "an item 7 is kept of mailall, which has 3"),
        (tried(1, DONE, response={"what": "m"}), "the stored response of mailall#1 does not parse"),
        (tried(1, DONE, response=None), "the stored response of mailall#1 does not parse"),
        (replace(tried(1, DONE, response={"id": "m"}), input_hash="00"), "mailall#1 is no longer what it was"),
        (replace(tried(1, QUEUED, 1, error="GRPC: x"), input_hash="00"), "mailall#1 is no longer what it was"),
    ],
)
async def test_items_that_are_not_those_of_the_step_end_the_run(item: TriedItem, text: str, plan: Plan) -> None:
    mailer = Mailer(plan)

    with pytest.raises(WorkflowBroken, match=text):
        await mailed(plan, mailer, count=3, items=Kept(item))

    assert mailer.requests == []


@pytest.mark.spec(74)
async def test_a_finished_fan_out_is_replayed_with_its_collect_type(compiled_plan: Any) -> None:
    document = mail_all()
    document["output"] = {"type": "mail.v1.SentBatch", "rules": ["sent_mails += mailall.sent_mails", 'title = "t"']}
    plan = await compiled_plan(document)
    mailer, log = Mailer(plan), Log()
    log.stored = [entry(0, "mailall", {"sentMails": sent(0, 2), "ids": ["x"]})]

    replayed = result(await mailed(plan, mailer, count=3, log=log))

    assert (replayed["sentMails"], replayed["title"], mailer.requests) == (sent(0, 2), "t", [])

    log.stored = [entry(0, "mailall", {"id": "m-0"})]
    with pytest.raises(WorkflowBroken, match="the stored response of mailall does not parse"):
        await mailed(plan, mailer, count=3, log=log)


async def test_the_requests_of_the_items_are_the_same_bytes_on_every_try(plan: Plan) -> None:
    payloads = []
    for _ in range(2):
        mailer = Mailer(plan)
        await mailed(plan, mailer, count=5)
        payloads.append({request.step: request.payload for request in mailer.requests})

    assert payloads[0] == payloads[1]


def test_a_final_failure_keeps_its_kind_and_text() -> None:
    failure = ItemFailed.of(CallFailed("NOT_FOUND", "x"), "a#1", step="a", retryable=False, failed_tries=2)
    again = ItemFailed.kept(str(failure), step="a", failed_tries=2)

    assert (str(again), again.kind, again.failed_tries) == (str(failure), failure.kind, 2)
