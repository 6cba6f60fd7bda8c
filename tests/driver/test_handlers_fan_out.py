"""Steps that fan out over handlers in Python: each item is a call of its own, and none may bring a transaction."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.driver.python_steps import STEPS, asking, calling
from tests.driver.world import World
from tests.handlers.steps import SEEN
from tests.store.samples import select

_LISTS = """
syntax = "proto3";
package steps.v1;
import "steps.proto";
message Asks { repeated Ask asks = 1; }
message Replies { repeated Reply replies = 1; }
"""


@pytest.fixture(autouse=True)
def _seen() -> Iterator[None]:
    SEEN.reset()
    yield
    SEEN.gate.set()


def calling_each(method: str, count: int) -> dict[str, Any]:
    """One call of a handler for each of so many items, all of which are the run's input."""
    document = calling(method)
    document["schema"]["sources"]["lists.proto"] = _LISTS
    document["schema"]["root"] = "lists.proto"
    [step] = document["steps"]
    del step["rules"]
    step["edge"] = {"sources": ["input"], "produceType": "steps.v1.Asks", "rules": ["asks += input"] * count}
    step["fanOut"] = {
        "items": "asks",
        "maxItems": count,
        "maxConcurrency": 2,
        "failurePolicy": "FAIL_FAST",
        "collectType": "steps.v1.Replies",
        "collectInto": "replies",
    }
    return document


@pytest.mark.parametrize("method", ["Sync", "Async"])
async def test_each_item_is_a_call_of_a_handler(world: World, method: str) -> None:
    job_id = await world.run(calling_each(method, 5), input=asking("tells"))

    async with world.worker(handlers=[STEPS]):
        row = await world.until_status(job_id, "COMPLETED")

    told = [reply["text"].split()[2:4] for reply in row["result"]["replies"]]
    assert told == [[f"work#{index}", "1"] for index in range(5)]
    assert (row["items_total"], row["items_done"]) == (5, 5)


async def test_a_transactional_handler_serves_no_items(world: World) -> None:
    await world.sql.execute("create table public.written (job_id uuid, note text)")
    job_id = await world.run(calling_each("Write", 2), input=asking("writes"))

    async with world.worker(handlers=["tests.handlers.transactional"]):
        row = await world.until_status(job_id, "FAILED")

    assert "the transactional handler of steps.v1.Steps/Write cannot serve items" in row["error"]
    assert await select(world.sql, "select from public.written") == []
