"""Records that steps send: kept and queued with the step's own event, or not at all."""

import asyncio
from typing import Any

import psycopg
import pytest

from schemas.errors import LeaseLost, MoveRefused, StoreUnavailable
from store.records import HeldRun
from store.step_records import StepRecord
from tests.store.given import Given, finished, worker
from tests.store.samples import select
from tests.store.test_unknown_commits import Lanes, kill_lanes, lanes

__all__ = ["lanes"]

VALUE = bytes(range(256))


def sent(step_index: int = 0, **changes: Any) -> StepRecord:
    values: dict[str, Any] = {
        "step_index": step_index,
        "topic": "orders",
        "type": "acme.v1.Order",
        "key": b"order-7",
        "value": VALUE,
        "headers": [("ce_id", "1"), ("job-id", "2")],
    }
    return StepRecord(**{**values, **changes})


async def publish(given: Given, run: HeldRun, record: StepRecord | None = None) -> None:
    await given.moves.checkpoint(run, finished(), record=record or sent())


async def ask(given: Given, run: HeldRun, record: StepRecord | None = None) -> None:
    await given.moves.park(
        run, step="review", step_index=0, request={"a": 1}, resume_target="x", record=record or sent()
    )


async def outgoing(given: Given, run: HeldRun) -> list[tuple[str, int]]:
    query = "select kind, seq from relay_queue where job_id = %(id)s order by id"
    return [(row["kind"], row["seq"]) for row in await select(given.sql, query, {"id": run.job_id})]


@pytest.mark.parametrize("move", [publish, ask])
async def test_a_record_is_kept_byte_for_byte_and_queued_before_its_event(given: Given, move: Any) -> None:
    run = await given.held()
    await move(given, run)
    [row] = await select(given.sql, "select * from record where job_id = %(id)s", {"id": run.job_id})
    assert (row["seq"], row["step_index"], row["topic"], row["type"]) == (2, 0, "orders", "acme.v1.Order")
    assert (bytes(row["key"]), bytes(row["value"])) == (b"order-7", VALUE)
    assert row["headers"] == [["ce_id", "1"], ["job-id", "2"]]
    assert await outgoing(given, run) == [("event", 1), ("record", 2), ("event", 2)]


async def test_records_of_many_runs_leave_in_one_flush_with_moves_that_have_none(given: Given) -> None:
    runs = await given.many_held(12)
    moves = [publish, ask, lambda given, run: given.moves.checkpoint(run, finished())]
    await asyncio.gather(*(moves[index % 3](given, run) for index, run in enumerate(runs)))
    for index, run in enumerate(runs):
        assert len(await outgoing(given, run)) == (2 if index % 3 == 2 else 3)


@pytest.mark.parametrize("move", [publish, ask])
async def test_a_holder_that_lost_its_lease_sends_nothing(given: Given, move: Any) -> None:
    run = await given.held()
    await given.reclaimed(run, owner=worker(run))  # by itself, even: the claim counts, not who made it
    before = await given.everything(run.job_id)
    with pytest.raises(LeaseLost):
        await move(given, run)
    assert await given.everything(run.job_id) == before


@pytest.mark.parametrize(
    ("move", "table"),
    [(publish, table) for table in ("record", "checkpoint", "event", "relay_queue")]
    + [(ask, table) for table in ("record", "run_outcome", "event", "relay_queue")],
)
async def test_a_record_and_its_event_stand_or_fall_together(given: Given, move: Any, table: str) -> None:
    run = await given.held()
    before = await given.everything(run.job_id)
    await given.sql.execute(
        b"create function refuse() returns trigger language plpgsql as"
        b" $$ begin raise exception 'refused' using errcode = 'insufficient_privilege'; end $$"
    )
    trigger = f"create trigger refuse before insert on {table} for each row execute function refuse()"
    await given.sql.execute(trigger.encode())
    with pytest.raises(StoreUnavailable, match="refused"):
        await move(given, run)
    assert await given.everything(run.job_id) == before


async def test_a_record_that_cannot_be_stored_fails_alone(given: Given) -> None:
    bad, *others = await given.many_held(5)
    moves = [publish(given, run) for run in others]
    told, *_ = await asyncio.gather(publish(given, bad, sent(topic="or\0ders")), *moves, return_exceptions=True)
    assert isinstance(told, MoveRefused)
    assert await outgoing(given, bad) == [("event", 1)]
    for run in others:
        assert await outgoing(given, run) == [("event", 1), ("record", 2), ("event", 2)]


@pytest.mark.parametrize("side", ["before_commit", "after_commit"])
@pytest.mark.parametrize("move", ["checkpoint", "park"])
async def test_a_record_whose_flush_got_no_answer_is_sent_once(
    given: Given, lanes: Lanes, side: str, move: str
) -> None:
    run = await given.held()

    async def lose() -> None:
        await kill_lanes(given.sql)
        if side == "after_commit":  # the commit stands, and its answer never came
            raise psycopg.OperationalError("the connection is gone")

    await lanes.moves.release(await given.held(), target="x")  # so that there is a connection to lose
    lanes.once(side, lose)
    if move == "checkpoint":
        await lanes.moves.checkpoint(run, finished(), record=sent())
    else:
        await lanes.moves.park(run, step="review", step_index=0, request={}, resume_target="x", record=sent())
    assert await outgoing(given, run) == [("event", 1), ("record", 2), ("event", 2)]
    assert len(await select(given.sql, "select from record where job_id = %(id)s", {"id": run.job_id})) == 1
