"""Items of a step that fans out: kept in batches under the claim, counted once, and told when they failed."""

from dataclasses import replace

import psycopg
import pytest

from schemas.errors import MoveRefused
from store.items import Items
from store.queries import Queries
from store.records import HeldRun, ItemStatus, StoredItem
from tests.store.given import Given, done_item, finished
from tests.store.samples import select

STEP = "embed-all"


def failed_item(item_index: int, *, attempt: int = 1, again: bool = False) -> StoredItem:
    status = ItemStatus.QUEUED if again else ItemStatus.FAILED
    return StoredItem(item_index, status, attempt, "00ff", error="GRPC: UNAVAILABLE: gone", input={"text": "a"})


async def keep(given: Given, run: HeldRun, *items: StoredItem, new_items: int = 0) -> None:
    await given.moves.items(run, step=STEP, items=items, new_items=new_items)


async def counts(given: Given, run: HeldRun) -> tuple[int, int, int]:
    row = await given.row(run.job_id)
    return row["items_total"], row["items_done"], row["items_failed"]


async def test_items_are_kept_in_batches_and_counted_without_an_event(given: Given) -> None:
    run = await given.held()
    await keep(given, run, done_item(0), done_item(2), failed_item(1), new_items=5)
    assert await counts(given, run) == (5, 2, 1)
    await keep(given, run, done_item(4))
    assert await counts(given, run) == (5, 3, 1)
    assert await given.log(run.job_id) == ["ACCEPTED"]
    assert len(given.woken.payloads) == 1  # by the submit

    stored = await Items(given.database).of_step(run.job_id, STEP)
    assert stored == [done_item(0), replace(failed_item(1), input=None), done_item(2), done_item(4)]
    assert await Items(given.database).of_step(run.job_id, "another") == []


async def test_items_of_many_runs_leave_in_one_move_and_each_run_counts_its_own(given: Given) -> None:
    runs = await given.many_held(3)
    for number, run in enumerate(runs):
        await keep(given, run, *(done_item(index) for index in range(number + 1)), new_items=10)
    assert [await counts(given, run) for run in runs] == [(10, 1, 0), (10, 2, 0), (10, 3, 0)]


@pytest.mark.spec(114)
async def test_an_item_reported_twice_counts_once_and_what_is_final_stays(given: Given) -> None:
    run = await given.held()
    await keep(given, run, done_item(0), failed_item(1), new_items=3)
    await keep(given, run, done_item(0, {"n": "other"}), done_item(1), failed_item(0))
    assert await counts(given, run) == (3, 1, 1)
    [first, second] = await Items(given.database).of_step(run.job_id, STEP)
    assert (first.response, second.status) == ({"n": 0}, ItemStatus.FAILED)


async def test_an_item_that_is_tried_again_is_counted_when_it_is_final(given: Given) -> None:
    run = await given.held()
    await keep(given, run, failed_item(0, again=True), new_items=1)
    assert await counts(given, run) == (1, 0, 0)
    taken = await given.reclaimed(run)
    await keep(given, taken, done_item(0))
    assert await counts(given, run) == (1, 1, 0)
    [row] = await select(given.sql, "select status, fence, attempt, error, input from item")
    assert row == {"status": "COMPLETED", "fence": 2, "attempt": 0, "error": None, "input": None}


async def test_more_items_than_a_page_are_read_in_order(given: Given) -> None:
    run = await given.held()
    await keep(given, run, *(done_item(index) for index in reversed(range(250))), new_items=250)
    stored = await Items(given.database).of_step(run.job_id, STEP)
    assert [item.item_index for item in stored] == list(range(250))


async def test_items_are_progress_so_lost_leases_are_forgotten(given: Given) -> None:
    run = await given.held()
    taken = await given.reclaimed(run)
    assert taken.claim.lost_leases == 1
    await keep(given, taken, done_item(0), new_items=2)
    assert (await given.row(run.job_id))["lost_leases"] == 0
    await given.moves.release(taken, target="x")
    assert (await given.row(run.job_id))["lost_leases"] == 0


async def test_the_items_that_failed_are_listed_up_to_a_bound(given: Given) -> None:
    run = await given.held()
    long = replace(failed_item(2), error="e" * 10_000)
    await keep(given, run, failed_item(3), done_item(0), failed_item(1, again=True), long, new_items=4)
    queries = Queries(given.database)
    listed = await queries.failed_items(run.job_id, limit=2)
    assert [(item.step, item.item_index, item.status, item.attempt, item.error) for item in listed] == [
        (STEP, 1, ItemStatus.QUEUED, 1, "GRPC: UNAVAILABLE: gone"),
        (STEP, 2, ItemStatus.FAILED, 1, "e" * 4_000),
    ]
    assert await queries.failed_items((await given.held()).job_id, limit=2) == []


@pytest.mark.parametrize("response", ["\0", float("nan")])
async def test_an_item_that_cannot_be_stored_is_refused_and_the_claim_stands(given: Given, response: object) -> None:
    run = await given.held()
    with pytest.raises(MoveRefused):
        await keep(given, run, done_item(0), done_item(1, {"text": response}), new_items=2)
    assert await counts(given, run) == (0, 0, 0)
    await keep(given, run, done_item(0), new_items=2)


async def test_a_response_of_null_is_kept_as_such(given: Given) -> None:
    run = await given.held()
    await keep(given, run, StoredItem(0, ItemStatus.COMPLETED, 0, "00ff"), new_items=1)
    [row] = await select(given.sql, "select response::text from item")
    assert row == {"response": "null"}
    with pytest.raises(psycopg.errors.CheckViolation):
        await given.sql.execute(b"update item set response = null")


async def test_a_checkpoint_tells_its_detail(given: Given) -> None:
    run = await given.held()
    await given.moves.checkpoint(run, finished(), detail={"items": {"total": 3, "failed": [1]}})
    [row] = await select(given.sql, "select detail from event where type = 2")
    assert row == {"detail": '{"items":{"total":3,"failed":[1]}}'}
    with pytest.raises(MoveRefused, match="detail"):
        await given.moves.checkpoint(run, finished(1), detail="x" * 9000)
