"""Which shards this relay may publish: lease rows, renewed in time."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from store.relay_queue import RelayQueue, ShardLeases

SAFE_PART_OF_A_LEASE: Final = 0.9
"""Past this part of a lease, counted from when it was asked for, nothing is sent any more on the strength of it."""


class Shards:
    """The leases of one relay. `look` keeps them; `sendable` says what they allow at this moment."""

    def __init__(
        self,
        queue: RelayQueue,
        *,
        owner: str,
        lease_seconds: float,
        on_lost: Callable[[frozenset[int]], None],
        low: Callable[[], Mapping[int, int]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_lost` is told of shards that another relay may have by now: drop all that belongs to them.

        `low` says below which id of a shard nothing counts as pending.
        """
        self._queue = queue
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._on_lost = on_lost
        self._low = low
        self._clock = clock
        self._held: frozenset[int] = frozenset()
        self._until = 0.0
        self._closing: frozenset[int] = frozenset()
        self._leaving = False

    @property
    def held(self) -> frozenset[int]:
        """What the last look found to be ours, even if the lease may have run out since."""
        return self._held

    @property
    def surplus(self) -> frozenset[int]:
        """What is being given back: nothing new of it is sent."""
        return self._closing & self._held

    def sendable(self) -> frozenset[int]:
        """The shards that may be published now. Empty when the lease has, or may have, run out."""
        if self._leaving or self._clock() >= self._until:
            return frozenset()
        return self._held - self._closing

    async def look(self) -> ShardLeases:
        """Renew, take what is free, and find out what was lost and what is to be given back.

        Raises:
            StoreUnavailable: nothing is known; what is held stays sendable until its lease is over.
        """
        asked_at = self._clock()
        low = self._low()
        leases = await self._queue.lease_shards(owner=self._owner, lease_seconds=self._lease_seconds, low=low)
        lost, self._held = self._held - leases.held, leases.held
        self._until = asked_at + SAFE_PART_OF_A_LEASE * self._lease_seconds
        self._closing = frozenset(sorted(leases.held)[max(leases.share, 0) :])
        if lost:
            self._on_lost(lost)
        return leases

    def drop(self) -> frozenset[int]:
        """Take every lease for void: nothing may be published before the next look. Returns what was held."""
        dropped, self._held, self._closing = self._held, frozenset(), frozenset()
        self._until = 0.0
        return dropped

    def close_all(self) -> None:
        """Let nothing new be sent from now on, whatever later looks say."""
        self._leaving = True

    async def give_back(self, shards: frozenset[int]) -> None:
        """Hand *shards* on; nothing of theirs may be on its way any more."""
        self._held -= shards
        await self._queue.release_shards(owner=self._owner, shards=shards)

    async def leave(self) -> None:
        """Give back everything; this relay is no longer counted."""
        self._held = frozenset()
        await self._queue.release_shards(owner=self._owner)
