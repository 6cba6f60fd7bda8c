"""Who publishes which shard, and until when."""

from collections.abc import AsyncIterator, Callable

import pytest

from store.database import Database
from store.relay_queue import RelayQueue
from streams.relay.shards import Shards
from tests.store.samples import connected

ALL = frozenset(range(16))
LEASE_SECONDS = 10.0


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def queue(database_url: str) -> AsyncIterator[RelayQueue]:
    database = Database(database_url, pool_size=2)
    await database.open()
    yield RelayQueue(database)
    await database.close()


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def lost() -> list[frozenset[int]]:
    return []


NewShards = Callable[[str], Shards]


@pytest.fixture
def shards_of(queue: RelayQueue, clock: _Clock, lost: list[frozenset[int]]) -> NewShards:
    def build(owner: str) -> Shards:
        return Shards(queue, owner=owner, lease_seconds=LEASE_SECONDS, on_lost=lost.append, clock=clock)

    return build


async def test_nothing_is_sendable_before_the_first_look(shards_of: NewShards) -> None:
    assert shards_of("a:1").sendable() == frozenset()


async def test_a_lone_relay_has_every_shard(shards_of: NewShards) -> None:
    shards = shards_of("a:1")

    await shards.look()

    assert shards.held == shards.sendable() == ALL
    assert shards.surplus == frozenset()


async def test_nothing_is_sent_once_the_lease_may_be_over_and_all_goes_on_when_it_was_not(
    shards_of: NewShards, clock: _Clock, lost: list[frozenset[int]]
) -> None:
    shards = shards_of("a:1")
    await shards.look()

    clock.now += 0.9 * LEASE_SECONDS
    assert shards.sendable() == frozenset()
    assert shards.held == ALL

    await shards.look()
    assert shards.sendable() == ALL
    assert lost == []


async def test_what_another_relay_has_is_lost_and_told(
    shards_of: NewShards, lost: list[frozenset[int]], database_url: str
) -> None:
    shards = shards_of("a:1")
    await shards.look()
    async with connected(database_url) as sql:
        await sql.execute(b"update shard set lease_owner = 'thief:1' where shard in (3, 4)")

    await shards.look()

    assert lost == [frozenset({3, 4})]
    assert shards.sendable() == ALL - {3, 4}


async def test_surplus_is_not_sent_but_held_until_it_is_given_back(shards_of: NewShards) -> None:
    first, second = shards_of("a:1"), shards_of("b:1")
    await first.look()
    await second.look()
    assert second.held == frozenset()

    await first.look()
    surplus = first.surplus
    assert len(surplus) == 8
    assert first.held == ALL
    assert first.sendable() == ALL - surplus

    await first.give_back(surplus)
    await second.look()
    assert first.held == ALL - surplus
    assert second.sendable() == surplus
    await first.look()
    assert first.surplus == frozenset()


async def test_a_leaving_relay_sends_nothing_new_and_frees_its_shards(shards_of: NewShards) -> None:
    first, second = shards_of("a:1"), shards_of("b:1")
    await first.look()

    first.close_all()
    await first.look()
    assert first.sendable() == frozenset()

    await first.leave()
    assert first.held == frozenset()
    await second.look()
    assert second.sendable() == ALL
