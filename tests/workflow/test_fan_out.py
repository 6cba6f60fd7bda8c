"""Running a step that fans out: in order, so many at once, what fails, and what a later segment still has to do."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import (
    BudgetSpent,
    EdgeFailed,
    ItemFailed,
    LeaseLost,
    SegmentInterrupted,
    StoreUnavailable,
    WorkflowBroken,
)
from streams.workflow.items import ItemStatus, TriedItem
from streams.workflow.plan import Plan
from tests.workflow.mail import Kept, Mailer, mail_all, mailed, result, sent, tried
from tests.workflow.samples import Clock, Log, entry

DONE, FAILED, QUEUED = ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.QUEUED


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
