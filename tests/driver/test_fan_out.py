"""Steps that fan out, by whole workers on a real database and a real service: no item that is done is called again."""

import asyncio
import json
from collections import Counter
from typing import Any
from uuid import UUID

import grpc

from tests.driver.stories import EMBED, embed_only
from tests.driver.world import World, until
from tests.fixtures.grpc_server import Answer
from tests.store.samples import select
from tests.workflow.mail import campaign, mail_all

SEND = "/mail.v1.Mailer/Send"
SENT = Answer(b"\n\x02m1")
AWAY = Answer(status=grpc.StatusCode.UNAVAILABLE, details="try later")
NO = Answer(status=grpc.StatusCode.INVALID_ARGUMENT, details="no such box")


async def fanned_out(world: World, count: int, *, deadline_ms: int = 30_000, **fan_out: Any) -> UUID:
    """A queued run of so many items."""
    world.targets.setdefault("mailer", {"address": world.server.target})
    known = {name: fan_out.pop(name) for name in ("max_attempts",) if name in fan_out}
    document = {**mail_all(**fan_out), "deadlineMs": deadline_ms}
    return await world.run(document, input=json.dumps(campaign(count)), **known)


def calls(world: World, job_id: UUID) -> Counter[int]:
    """How often each item was called."""
    return Counter(int(call.metadata["step-name"].partition("#")[2]) for call in world.calls_of(job_id, SEND))


async def items(world: World, job_id: UUID) -> dict[int, str]:
    query = "select item_index, status from item where job_id = %(id)s order by item_index"
    return {row["item_index"]: row["status"] for row in await select(world.sql, query, {"id": job_id})}


async def progress(world: World, job_id: UUID) -> tuple[int, int, int]:
    row = await world.row(job_id)
    return row["items_total"], row["items_done"], row["items_failed"]


async def until_done(world: World, job_id: UUID, count: int) -> None:
    """Wait until so many items are done."""
    async with asyncio.timeout(15):
        while (await progress(world, job_id))[1] < count:  # noqa: ASYNC110  # only the database tells
            await asyncio.sleep(0.005)


async def test_every_item_is_called_once_and_kept_by_itself(world: World) -> None:
    world.server.script(SEND, SENT)
    job_id = await fanned_out(world, 20)

    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")

    assert row["result"]["sentMails"] == [{"id": "m1"}] * 20
    assert (row["items_total"], row["items_done"], row["items_failed"]) == (20, 20, 0)
    assert await items(world, job_id) == dict.fromkeys(range(20), "COMPLETED")
    assert calls(world, job_id) == Counter(range(20))
    assert {call.metadata["attempt"] for call in world.calls_of(job_id, SEND)} == {"1"}
    assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT mailall", "COMPLETED"]
    [told] = await select(world.sql, "select detail from event where type = 2")
    assert json.loads(told["detail"]) == {"items": {"total": 20, "done": 20, "failed": 0, "failedIndexes": []}}


async def test_an_item_is_tried_again_by_itself_after_a_pause(world: World) -> None:
    world.server.script(SEND, SENT, AWAY, SENT, AWAY, SENT)
    job_id = await fanned_out(world, 4, maxConcurrency=1, max_attempts=2)

    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")

    assert calls(world, job_id) == Counter({0: 1, 1: 2, 2: 2, 3: 1})
    tries = [(call.metadata["step-name"], call.metadata["attempt"]) for call in world.calls_of(job_id, SEND)]
    assert tries == [
        ("mailall#0", "1"),
        ("mailall#1", "1"),
        ("mailall#1", "2"),
        ("mailall#2", "1"),
        ("mailall#2", "2"),
        ("mailall#3", "1"),
    ]
    assert (row["items_done"], row["attempt"]) == (4, 0)


async def test_a_pause_tells_the_items_tries_and_its_error(world: World) -> None:
    world.server.script(SEND, SENT, AWAY)
    job_id = await fanned_out(world, 3, maxConcurrency=1)

    async with world.worker(backoff_base_seconds=300):
        row = await world.until_error(job_id)

    assert (row["status"], row["attempt"], row["attempt_step"], row["next_target"]) == (
        "QUEUED",
        1,
        "mailall",
        "mailer",
    )
    assert row["last_error"] == "GRPC: mailall#1: UNAVAILABLE: try later"
    assert await items(world, job_id) == {0: "COMPLETED", 1: "QUEUED"}


async def test_continuing_past_an_item_whose_tries_are_used_up_tells_which_failed(world: World) -> None:
    world.server.script(SEND, SENT, AWAY, AWAY, SENT, NO, SENT)
    job_id = await fanned_out(world, 5, maxConcurrency=1, max_attempts=2)

    async with world.worker():
        row = await world.until_status(job_id, "COMPLETED")

    assert len(row["result"]["sentMails"]) == 3
    assert (row["items_total"], row["items_done"], row["items_failed"]) == (5, 3, 2)
    [told] = await select(world.sql, "select detail from event where type = 2")
    assert json.loads(told["detail"])["items"]["failedIndexes"] == [1, 3]
    failed = await select(world.sql, "select item_index, attempt, error, input from item where status = 'FAILED'")
    assert [(row["item_index"], row["attempt"], row["error"], row["input"]["to"]) for row in failed] == [
        (1, 2, "GRPC: mailall#1: UNAVAILABLE: try later", "1"),
        (3, 1, "GRPC: mailall#3: INVALID_ARGUMENT: no such box", "3"),
    ]


async def test_failing_fast_ends_the_run_with_the_item_that_caused_it_and_cuts_the_others(world: World) -> None:
    world.server.script(SEND, Answer(SENT.payload, delay_seconds=60), NO)
    job_id = await fanned_out(world, 30, maxConcurrency=2, failurePolicy="FAIL_FAST")

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    [failed] = [index for index, status in (await items(world, job_id)).items() if status == "FAILED"]
    assert row["error"] == f"GRPC: mailall#{failed}: INVALID_ARGUMENT: no such box"
    assert await world.log(job_id) == ["ACCEPTED", "FAILED mailall"]
    assert calls(world, job_id) == Counter([0, 1])
    [cut] = [call for call in world.calls_of(job_id, SEND) if call.metadata["step-name"] != f"mailall#{failed}"]
    assert await cut.was_cut()


async def test_failing_fast_at_an_items_last_try_gives_the_run_up(world: World) -> None:
    world.server.script(SEND, AWAY)
    job_id = await fanned_out(world, 3, maxConcurrency=1, failurePolicy="FAIL_FAST", max_attempts=2)

    async with world.worker():
        row = await world.until_status(job_id, "DEAD")

    assert (row["error"], row["attempt"]) == ("GRPC: mailall#0: UNAVAILABLE: try later", 2)
    assert calls(world, job_id) == Counter({0: 2})


async def test_another_worker_goes_on_with_the_items_that_are_missing(world: World) -> None:
    world.server.script(SEND, SENT, SENT, SENT, Answer(SENT.payload, delay_seconds=60), SENT)
    job_id = await fanned_out(world, 6, maxConcurrency=1)

    async with world.worker():
        await until_done(world, job_id, 3)
        await until(lambda: calls(world, job_id)[3] == 1)

    async with world.worker("worker-b:1"):
        row = await world.until_status(job_id, "COMPLETED")

    assert calls(world, job_id) == Counter({0: 1, 1: 1, 2: 1, 3: 2, 4: 1, 5: 1})
    assert (row["attempt"], row["lost_leases"]) == (0, 0)
    assert (row["items_total"], row["items_done"], row["items_failed"]) == (6, 6, 0)


async def test_a_worker_that_lost_its_lease_keeps_no_item(world: World) -> None:
    world.server.script(SEND, SENT)
    job_id = await fanned_out(world, 8)

    async with world.worker() as stale:
        with world.server.holding(SEND) as hold:
            for _ in range(4):
                await hold.arrived()
            await world.sql.execute("update run set run_after = now() + interval '1 hour'")
            await world.lose_lease(job_id)
        await until(lambda: stale.count("leases_lost_total") == 1)
        assert await items(world, job_id) == {}
        assert await progress(world, job_id) == (0, 0, 0)

    await world.sql.execute("update run set run_after = now()")
    async with world.worker("worker-b:1"):
        row = await world.until_status(job_id, "COMPLETED")

    assert row["items_done"] == 8


async def test_cancelling_cuts_the_calls_of_the_items_and_keeps_no_more(world: World) -> None:
    world.server.script(SEND, SENT, SENT, Answer(SENT.payload, delay_seconds=60))
    job_id = await fanned_out(world, 50, maxConcurrency=4)

    async with world.worker() as worker:
        await until_done(world, job_id, 2)
        await until(lambda: len(world.calls_of(job_id, SEND)) == 6)
        await world.control().cancel(tenant_id="default", job_id=job_id, reason="no longer needed")
        await world.until_idle(worker)

    assert (await world.row(job_id))["status"] == "CANCELLED"
    assert len(await items(world, job_id)) == 2
    for call in world.calls_of(job_id, SEND)[2:]:
        assert await call.was_cut()


async def test_items_take_no_more_permits_than_there_are_and_leave_room_to_other_runs(world: World) -> None:
    world.server.script(SEND, Answer(SENT.payload, delay_seconds=0.05))
    world.targets["mailer"] = {"address": world.server.target, "permits": 2}
    first = await fanned_out(world, 40, maxConcurrency=30)

    async with world.worker():
        await until(lambda: len(world.calls_of(first, SEND)) >= 3)
        second = await fanned_out(world, 2)
        await world.until_status(second, "COMPLETED")
        assert (await world.row(first))["status"] == "RUNNING"
        row = await world.until_status(first, "COMPLETED")

    assert calls(world, first) == Counter(range(40))
    assert (row["attempt"], row["items_done"]) == (0, 40)


async def test_an_item_waits_for_a_permit_as_long_as_others_of_its_step_are_called(world: World) -> None:
    world.server.script(SEND, Answer(SENT.payload, delay_seconds=1.2))
    world.targets["mailer"] = {"address": world.server.target, "permits": 1}
    job_id = await fanned_out(world, 2, maxConcurrency=2)

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    assert calls(world, job_id) == Counter([0, 1])


async def test_a_budget_that_ends_in_the_middle_is_begun_anew_and_fails_nothing(world: World) -> None:
    world.server.script(SEND, Answer(SENT.payload, delay_seconds=0.1))
    job_id = await fanned_out(world, 12, deadline_ms=450, maxConcurrency=1, max_attempts=3)

    async with world.worker() as worker:
        row = await world.until_status(job_id, "COMPLETED")
        assert worker.count("claims_total") > 1

    assert row["items_done"] == 12
    assert sum(calls(world, job_id).values()) <= 12 + worker.count("claims_total")


async def test_connections_killed_in_the_middle_lose_and_repeat_no_item(world: World) -> None:
    world.server.script(SEND, Answer(SENT.payload, delay_seconds=0.01))
    job_id = await fanned_out(world, 60)

    async with world.worker():
        for count in (5, 20, 40):
            await until_done(world, job_id, count)
            await world.kill_connections()
        row = await world.until_status(job_id, "COMPLETED")

    assert (row["items_done"], row["items_failed"]) == (60, 0)
    assert calls(world, job_id) == Counter(range(60))


async def test_two_steps_that_fan_out_add_up(world: World) -> None:
    world.server.script(SEND, SENT)
    world.targets["mailer"] = {"address": world.server.target}
    document = mail_all()
    document["steps"].append({**document["steps"][0], "name": "again"})
    job_id = await world.run(document, input=json.dumps(campaign(3)))

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    assert await progress(world, job_id) == (6, 6, 0)


async def test_an_edge_without_a_fan_out_builds_the_request(world: World) -> None:
    document = embed_only()
    [step] = document["steps"]
    rules = step.pop("rules")
    step["edge"] = {"sources": ["input"], "produceType": "text.v1.Tokens", "rules": rules}
    job_id = await world.run(document)

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    [call] = world.server.calls(EMBED)
    assert call.request == b"\n\x01a"
