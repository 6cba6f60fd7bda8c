"""One relay: the shard leases, the wake-ups and the publishing, as one service of a worker."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Final

from schemas.errors import StoreUnavailable
from schemas.topics import Topics
from store.database import CommitPoint, passes
from store.notify import RELAY, RESEND, Listener
from store.relay_queue import RelayQueue, ShardLeases
from streams.health import ServiceHealth
from streams.kafka.producer import EventProducer
from streams.kafka.registry import SchemaRegistry
from streams.metrics import Metrics
from streams.relay.publish import Publisher
from streams.relay.render import Renderer
from streams.relay.shards import Shards
from streams.relay.step_records import StepRecords

log = logging.getLogger(__name__)

DEAF_POLL_SECONDS: Final = 1.0
"""How often to look while wake-ups are missed. With them, renewing the leases tells whether something waits."""

RETRY_SECONDS: Final = 0.5
GIVE_BACK_SECONDS: Final = 1.0
LEAVE_SECONDS: Final = 1.0
COUNT_SECONDS: Final = 10.0


class Relay:
    """Publishes events, records of steps and dead letters from the store. Any number of relays share the work.

    The events of a job arrive in order, each at least once, and each time with the same bytes. The producer is started
    and closed by the caller, and outlives the relay.
    """

    def __init__(
        self,
        *,
        queue: RelayQueue,
        producer: EventProducer,
        registry: SchemaRegistry,
        topics: Topics,
        listener: Listener,
        owner: str,
        metrics: Metrics,
        lease_seconds: float = 10.0,
        commit_point: CommitPoint = passes,
    ) -> None:
        """Describe the relay; nothing runs before `run`.

        Args:
            queue: What is to be published.
            producer: Where it goes.
            registry: Where the id of our schema text is looked up.
            topics: Which topics there are.
            listener: Wakes the relay when something was queued.
            owner: Names this relay in lease rows; no two that ever live may share it.
            metrics: Counts what is published.
            lease_seconds: How long a shard stays with a relay that is gone.
            commit_point: Awaited at `relay.acknowledged`, `relay.before_mark` and `relay.after_mark`.
        """
        self._queue = queue
        self._producer = producer
        self._listener = listener
        self._metrics = metrics
        metrics.relay_in_flight.set_function(lambda: producer.in_flight)
        self._shards = Shards(queue, owner=owner, lease_seconds=lease_seconds, on_lost=self._lost, low=self._low)
        self._publisher = Publisher(
            queue=queue,
            producer=producer,
            renderer=Renderer(topics, registry, StepRecords(queue, topics, registry)),
            shards=self._shards,
            owner=owner,
            metrics=metrics,
            commit_point=commit_point,
        )
        self._wake = listener.subscribe(RELAY)
        self._resend = listener.subscribe(RESEND)
        self._look_now = asyncio.Event()
        self._stopping = asyncio.Event()
        self._drain_seconds = 0.0
        self._running = False
        self._ended = asyncio.Event()
        self._store_trouble: str | None = None
        self._backlog = 0
        self._counted_at = 0.0

    async def run(self) -> None:
        """Relay until cancelled, or until `stop` has let everything land. Gives its shards back at the end."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                works = (self._keep(), self._publisher.run(), self._listen(), self._listen_for_resends())
                loops = [tasks.create_task(work) for work in works]
                await self._stopping.wait()
                await self._publisher.until_landed(self._shards.held, timeout_seconds=self._drain_seconds)
                for loop in loops:
                    loop.cancel()
        finally:
            await self._leave()
            self._running = False
            self._ended.set()

    async def stop(self, *, timeout_seconds: float = 2.0) -> None:
        """Send nothing new, let what is on its way land within the time-out, and end `run`, a second later at most.

        What has not landed stays in the queue: another relay publishes it, so that it may be published twice.
        """
        self._drain_seconds = timeout_seconds
        self._shards.close_all()
        self._stopping.set()
        if self._running:
            await self._ended.wait()

    def history_changed(self) -> None:
        """The database was put back or failed over: drop the shards and all that is in hand, and read its queue anew.

        What is in hand speaks of rows that may be gone, under ids that may stand for other rows by now.
        """
        self._publisher.forget(self._shards.drop())
        self._look_now.set()

    def health(self) -> ServiceHealth:
        """Not ready while a topic cannot be published to, also by the producer's account; degraded by a blocked key.

        `detail` says what, and why.
        """
        if not self._running:
            return ServiceHealth("relay", alive=self._stopping.is_set() or not self._ended.is_set(), ready=False)
        kafka = self._producer.health()
        trouble = self._store_trouble or self._publisher.trouble() or ("" if kafka.ready else f"Kafka: {kafka.detail}")
        blocked = self._publisher.blocked()
        told = "; ".join(part for part in (trouble, blocked) if part)
        detail = told or f"{len(self._shards.held)} shards, {kafka.detail}"
        return ServiceHealth("relay", alive=kafka.alive, ready=not trouble, detail=detail, degraded=bool(blocked))

    async def _keep(self) -> None:
        """Keep the shards: renew them, take free ones, give back what others should have."""
        while True:
            try:
                leases = await self._shards.look()
                await self._give_back()
                await self._count(leases)
                self._store_trouble = None
                delay = leases.next_look_seconds
            except StoreUnavailable as error:
                self._store_trouble = f"store: {error}"
                delay = RETRY_SECONDS
            else:
                if leases.pending:
                    self._publisher.look_again()
            self._metrics.relay_shards.set(len(self._shards.held))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), delay)
            self._look_now.clear()

    async def _give_back(self) -> None:
        """Hand surplus shards on as soon as nothing of theirs is on its way; else the next look tries again."""
        surplus = self._shards.surplus
        if surplus and await self._publisher.until_landed(surplus, timeout_seconds=GIVE_BACK_SECONDS):
            await self._shards.give_back(surplus)

    async def _count(self, leases: ShardLeases) -> None:
        """Count what waits, while something does, and not often."""
        waits = leases.pending or self._publisher.waits or self._backlog
        if time.monotonic() - self._counted_at >= COUNT_SECONDS and waits:
            self._backlog = await self._queue.backlog()
            self._counted_at = time.monotonic()
            self._metrics.relay_backlog.set(self._backlog)

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._listener.connected else DEAF_POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            self._publisher.look_again()

    async def _listen_for_resends(self) -> None:
        """A wake-up that is missed costs no more than the time until the key is looked at by itself."""
        while True:
            await self._resend.wait()
            self._resend.clear()
            self._publisher.try_all()

    def _low(self) -> Mapping[int, int]:
        return self._publisher.low()

    def _lost(self, shards: frozenset[int]) -> None:
        log.warning("another relay may have the shards %s", sorted(shards))
        self._publisher.forget(shards)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._shards.leave()
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("the relay's shards are free only when their leases end: %s", error)
