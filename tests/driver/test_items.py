"""Items on their way into the store: in batches of a bounded size, one after the other, and all of them by the end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schemas.errors import LeaseLost
from store.committer import Committer
from store.items import Items
from store.leases import Leases
from store.moves import Moves
from streams.driver.held import Holding
from streams.driver.items import MOVE_BYTES, HeldItems
from streams.workflow.items import ItemStatus, TriedItem
from streams.workflow.plan import ENGINE_LEVEL
from tests.driver.world import World
from tests.store.samples import connected, select, until_blocked


class Kept:
    """The items of one claimed run, and how many moves they took."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.moves = 0
        self.committer = Committer(world.database, on_committed=lambda payloads: None, commit_point=self._count)

    async def claim(self) -> None:
        await self.world.run()
        [run] = await Leases(
            self.world.database, owner="worker-a:1", lease_seconds=60, engine_level=ENGINE_LEVEL
        ).claim({"tokenizer": 1})
        self.run = run
        self.items = HeldItems(
            Holding(run),
            items=Items(self.world.database),
            moves=Moves(self.committer),
            patience_seconds=5,
            may_try_again=lambda error, failed_tries: False,
        )

    def keep(self, index: int, size: int = 1) -> "asyncio.Task[None]":
        item = TriedItem(index, ItemStatus.COMPLETED, 0, "00", response={"text": "x" * size})
        return asyncio.create_task(self.items.keep("each", item, of=10))

    async def stored(self) -> list[int]:
        rows = await select(self.world.sql, "select item_index from item order by item_index")
        return [row["item_index"] for row in rows]

    async def _count(self, point: str) -> None:
        self.moves += point == "item.before_commit"


@pytest.fixture
async def kept(world: World) -> AsyncIterator[Kept]:
    kept = Kept(world)
    running = asyncio.create_task(kept.committer.run())
    await kept.claim()
    yield kept
    await kept.items.close()
    await asyncio.wait_for(kept.committer.close(), 10)
    await running


async def test_what_is_done_while_a_move_is_under_way_goes_into_the_next_one(kept: Kept) -> None:
    async with connected(kept.world.url) as other, other.transaction():
        await other.execute("select from run for update")
        first = kept.keep(0)
        await until_blocked(kept.world.sql, first)
        others = [kept.keep(index) for index in range(1, 6)]
    await asyncio.gather(first, *others)

    assert kept.moves == 2
    assert await kept.stored() == list(range(6))


async def test_a_move_is_bounded_in_size(kept: Kept) -> None:
    sizes = [MOVE_BYTES // 2 + 1, 10, MOVE_BYTES // 2, 3 * MOVE_BYTES, 10]
    await asyncio.gather(*(kept.keep(index, size) for index, size in enumerate(sizes)))

    assert kept.moves == 4
    assert await kept.stored() == list(range(5))


async def test_the_end_of_a_segment_leaves_no_done_item_behind(kept: Kept) -> None:
    async with connected(kept.world.url) as other, other.transaction():
        await other.execute("select from run for update")
        first = kept.keep(0)
        await until_blocked(kept.world.sql, first)
        second = kept.keep(1)
        await asyncio.sleep(0)
        closing = asyncio.create_task(kept.items.close())
        first.cancel()
        second.cancel()
    await closing

    assert await kept.stored() == [0, 1]


async def test_everybody_who_waits_learns_that_the_lease_is_lost(kept: Kept) -> None:
    await kept.world.sql.execute("update run set fence = fence + 1")
    outcomes = await asyncio.gather(*(kept.keep(index) for index in range(3)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 3
    assert await kept.stored() == []
