"""Relays that share the shards of a queue, and the time that passes for their leases."""

from collections.abc import Collection
from datetime import timedelta

from store.relay_queue import RelayQueue
from tests.store.samples import Sql


async def pass_time(sql: Sql, seconds: float) -> None:
    """Let that much time pass for every lease."""
    params = {"age": timedelta(seconds=seconds)}
    await sql.execute(b"update shard set lease_until = lease_until - %(age)s", params)
    await sql.execute(b"update relay_worker set live_until = live_until - %(age)s", params)


async def held(queue: RelayQueue, owner: str) -> frozenset[int]:
    return (await queue.lease_shards(owner=owner)).held


async def settle(queue: RelayQueue, owners: Collection[str]) -> dict[str, frozenset[int]]:
    """Let *owners* look in turn, each giving back what is above its share, until nothing changes hands any more."""
    shares: dict[str, frozenset[int]] = {}
    for _ in range(4):
        for owner in owners:
            leases = await queue.lease_shards(owner=owner)
            surplus = sorted(leases.held)[leases.share :]
            await queue.release_shards(owner=owner, shards=surplus)
            shares[owner] = leases.held - set(surplus)
    return shares
