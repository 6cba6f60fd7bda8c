"""Shards of the relay's queue: who holds which, and who follows whom."""

import asyncio

import pytest

from store.relay_queue import RelayQueue, ShardLeases
from tests.store.samples import Sql, connected, select, select_one, until_blocked
from tests.store.shares import held, pass_time, settle

ALL = frozenset(range(16))


async def test_one_relay_holds_every_shard(queue: RelayQueue) -> None:
    first = await queue.lease_shards(owner="a", lease_seconds=12)
    again = await queue.lease_shards(owner="a", lease_seconds=12)

    assert first == again == ShardLeases(ALL, 16, pending=False, next_look_seconds=6)


@pytest.mark.parametrize("relays", [2, 3, 5, 16, 20])
async def test_relays_share_the_shards_fairly_and_none_twice(queue: RelayQueue, relays: int) -> None:
    shares = await settle(queue, [f"relay-{number}" for number in range(relays)])

    assert sorted(shard for share in shares.values() for shard in share) == sorted(ALL)
    assert max(len(share) for share in shares.values()) == -(-16 // relays)


async def test_a_relay_that_holds_nothing_is_counted_and_takes_nothing_that_another_holds(queue: RelayQueue) -> None:
    await queue.lease_shards(owner="a")

    newcomer = await queue.lease_shards(owner="b")

    assert (newcomer.held, newcomer.share) == (frozenset(), 8)
    assert (await queue.lease_shards(owner="a")).share == 8


async def test_shards_are_given_back_by_their_holder_alone(queue: RelayQueue) -> None:
    await queue.lease_shards(owner="a")
    await queue.lease_shards(owner="b")

    await queue.release_shards(owner="b", shards=[0, 1])
    assert await held(queue, "b") == frozenset()
    await queue.release_shards(owner="a", shards=[0, 1])
    assert await held(queue, "b") == {0, 1}


async def test_a_relay_that_is_gone_is_followed_when_its_leases_end(queue: RelayQueue, sql: Sql) -> None:
    await settle(queue, ["a", "b"])
    await pass_time(sql, 8)
    look = await queue.lease_shards(owner="b")
    assert len(look.held) == 8
    assert look.next_look_seconds == pytest.approx(2, abs=0.5)

    await pass_time(sql, 2.5)

    assert await held(queue, "b") == ALL
    assert await held(queue, "a") == frozenset()


async def test_ten_idle_relays_look_twice_a_second_together(queue: RelayQueue, sql: Sql) -> None:
    """Each at half of its lease, and not earlier on account of the others: their leases end later than that."""
    relays = [f"relay-{number}" for number in range(10)]
    await settle(queue, relays)
    looks = []
    for owner in relays * 2:
        await pass_time(sql, 0.4)
        looks.append(await queue.lease_shards(owner=owner, lease_seconds=10))

    assert {round(look.next_look_seconds, 1) for look in looks[10:]} == {5}


async def test_leases_that_ran_out_and_nobody_took_are_renewed(queue: RelayQueue, sql: Sql) -> None:
    await queue.lease_shards(owner="a")
    await pass_time(sql, 100)

    assert await held(queue, "a") == ALL


async def test_a_relay_that_leaves_frees_everything_at_once(queue: RelayQueue, sql: Sql) -> None:
    await settle(queue, ["a", "b"])

    await queue.release_shards(owner="a")

    look = await queue.lease_shards(owner="b")
    assert (look.held, look.share) == (ALL, 16)
    assert await select(sql, "select owner from relay_worker") == [{"owner": "b"}]


async def test_names_of_relays_long_gone_are_forgotten(queue: RelayQueue, sql: Sql) -> None:
    await queue.lease_shards(owner="a")
    await pass_time(sql, 2 * 3600)
    await queue.lease_shards(owner="b")

    assert await select(sql, "select owner from relay_worker") == [{"owner": "b"}]


async def test_two_relays_on_one_shard_never_both_get_it(queue: RelayQueue, sql: Sql, database_url: str) -> None:
    """The lease of a late relay is renewed by itself while another takes it over."""
    await queue.lease_shards(owner="late")
    await pass_time(sql, 100)
    async with connected(database_url) as other:
        async with other.transaction():
            await other.execute(
                b"update shard set lease_owner = 'quick', lease_until = now() + interval '10 s' where shard < 3"
            )
            late = asyncio.create_task(queue.lease_shards(owner="late"))
            await until_blocked(sql, late)

        assert (await late).held == ALL - {0, 1, 2}
    assert await select_one(sql, "select count(*) from shard where lease_owner = 'quick'") == 3


async def test_a_relay_waits_for_no_shard_that_another_is_just_taking(queue: RelayQueue, database_url: str) -> None:
    async with connected(database_url) as other, other.transaction(force_rollback=True):
        await other.execute(b"select from shard where shard in (0, 1) for update")
        async with asyncio.timeout(2):
            assert await held(queue, "a") == ALL - {0, 1}


async def test_many_relays_at_once_never_share_a_shard(queue: RelayQueue) -> None:
    looks = await asyncio.gather(*(queue.lease_shards(owner=f"relay-{number}") for number in range(12)))

    shards = [shard for look in looks for shard in look.held]
    assert len(shards) == len(set(shards))
