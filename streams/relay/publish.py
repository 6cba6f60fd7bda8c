"""Publishing: read what waits in the shards held, send it, and mark what the broker has acknowledged.

Nothing leaves the queue before its own acknowledgement, and everything may be sent twice: after a crash between the
two, with the same bytes. Outages (Kafka, the registry, Postgres) only delay. A record that fails by itself waits for
its next try, with all later ones of its key, while everything else goes on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, Protocol

from schemas.errors import (
    BrokerUnavailable,
    ContractError,
    RecordRefused,
    RegistryUnavailable,
    StoreUnavailable,
    TopicUnavailable,
    UnknownSchema,
)
from store.database import CommitPoint, passes
from store.relay_queue import BLOCKED_AT, RelayQueue
from store.step_records import QueuedRecord
from streams.kafka.producer import EventProducer
from streams.metrics import Metrics
from streams.relay.pauses import Pauses
from streams.relay.reading import BLOCKED_LOOK_SECONDS, LONGEST_RETRY_SECONDS, Reader
from streams.relay.render import Renderer
from streams.relay.window import Row, Window, key_of, kind_of

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 0.5
NEWER_LOOK_SECONDS: Final = 30.0
"""How often to look whether we have learnt what a newer release wrote; a newer relay publishes it meanwhile."""

ROWS_AT_A_STRETCH: Final = 50
"""Rows rendered before the other services of this process have their turn."""

STORE_PAUSE_SECONDS: Final = 0.2
LONGEST_STORE_PAUSE_SECONDS: Final = 2.0

_NEEDS_NEWER: Final = frozenset({"contract-version", "event-format"})


Refusal = RecordRefused | ContractError | TopicUnavailable


class SendableShards(Protocol):
    """The shards that may be published at this moment."""

    def sendable(self) -> frozenset[int]: ...


def retry_delay_seconds(failures: int) -> float:
    """How long a record waits after that many failed tries, one or more: doubling from 0.5 s, at most 30 s."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_RETRY_SECONDS)


class Publisher:
    """One loop for all shards of a process: `run`. The other methods may be called while it runs."""

    def __init__(
        self,
        *,
        queue: RelayQueue,
        producer: EventProducer,
        renderer: Renderer,
        shards: SendableShards,
        owner: str,
        metrics: Metrics,
        commit_point: CommitPoint = passes,
    ) -> None:
        self._queue = queue
        self._producer = producer
        self._renderer = renderer
        self._shards = shards
        self._owner = owner
        self._metrics = metrics
        self._commit_point = commit_point
        self._window = Window()
        self._reader = Reader(queue, self._window)
        self._pauses = Pauses()
        self._landed: list[tuple[Row, asyncio.Future[None]]] = []
        self._acknowledged: list[Row] = []
        self._refused: list[tuple[Row, Refusal]] = []
        self._wake = asyncio.Event()
        self._round_done = asyncio.Event()
        self._store_trouble: str | None = None
        metrics.relay_blocked.set_function(lambda: len(self._reader.blocked()))

    def look_again(self) -> None:
        """Something may have been queued."""
        self._reader.look_again()
        self._wake.set()

    def try_all(self) -> None:
        """An operator freed something: what waits for its next try, or is blocked, is looked at anew, and at once."""
        self._reader.try_all()
        self._wake.set()

    def forget(self, shards: Collection[int]) -> None:
        """Shards were lost: drop what is in hand of them, and have the producer forget what is on its way."""
        self._acknowledged = [row for row in self._acknowledged if row.shard not in shards]
        self._refused = [(row, error) for row, error in self._refused if row.shard not in shards]
        self._reader.forget(shards)
        if self._window.forget(shards):
            self._producer.purge()
        self._round_done.set()

    async def until_landed(self, shards: Collection[int], *, timeout_seconds: float) -> bool:
        """Wait until nothing of *shards* is in hand, which nobody may add to meanwhile; False when time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while self._window.holds(shards):
                    self._round_done.clear()
                    self._wake.set()
                    await self._round_done.wait()
        return not self._window.holds(shards)

    def low(self) -> Mapping[int, int]:
        """The ids, by shard, below which nothing waits but what is in hand or waits for its next try."""
        return self._reader.low()

    @property
    def waits(self) -> bool:
        """Whether something is in hand or waits for its next try."""
        return self._window.rows > 0 or self._window.next_wake() is not None

    def trouble(self) -> str:
        """Why nothing goes out to some topic now, in one line; empty when all topics can be published to."""
        store = f"store: {self._store_trouble}" if self._store_trouble else ""
        return "; ".join(part for part in (store, str(self._pauses)) if part)

    def blocked(self) -> str:
        """Which keys wait for an operator, in one line; empty when none does. All others go on."""
        keys = self._reader.blocked()
        return f"{len(keys)} blocked keys, {keys[0]} is one" if keys else ""

    async def run(self) -> None:
        """Publish until cancelled."""
        pause = STORE_PAUSE_SECONDS
        while True:
            await self._until_due()
            try:
                await self._round()
            except StoreUnavailable as error:
                if self._store_trouble is None:
                    log.warning("the relay waits for the store: %s", error)
                self._store_trouble = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_STORE_PAUSE_SECONDS)
                self._wake.set()
            else:
                pause = STORE_PAUSE_SECONDS
                self._store_trouble = None
            self._round_done.set()

    async def _until_due(self) -> None:
        ends = [end for end in (self._window.next_wake(), self._pauses.next_end()) if end is not None]
        wait = max(0.0, min(ends) - time.monotonic()) if ends else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._wake.wait()
        self._wake.clear()

    async def _round(self) -> None:
        """Everything there is to do now, once. What fails midway is still to do in the next round."""
        await self._settle()
        await self._send()
        await self._mark()
        await self._set_aside()
        self._window.wake_aside(time.monotonic())
        if self._pauses.take_ended():
            self._reader.look_again()
        if self._reader.wants():
            with_events = self._pauses.until(self._renderer.events_topic) is None
            await self._reader.read(self._shards.sendable(), with_events=with_events)
            await self._send()
        if self._reader.wants():  # what was read may all have to wait, and nothing else would wake us
            self._wake.set()

    async def _settle(self) -> None:
        """Take in what became of the records that were sent."""
        landed, self._landed = self._landed, []
        before = len(self._acknowledged)
        for row, future in landed:
            match future.exception():
                case None:
                    self._pauses.well(self._renderer.topic_of(row))
                    self._reader.unblock(key_of(row))
                    if self._window.acknowledged(row):
                        self._acknowledged.append(row)
                case RecordRefused() as error:
                    self._refuse(row, error)
                case TopicUnavailable() as error if isinstance(row, QueuedRecord):
                    self._refuse(row, error)
                case error:
                    self._hold_back(row, str(error))
        if len(self._acknowledged) > before:
            await self._commit_point("relay.acknowledged")

    async def _send(self) -> None:
        sent = 0
        while (row := self._window.next()) is not None:
            sent += 1
            if sent % ROWS_AT_A_STRETCH == 0:
                await asyncio.sleep(0)
            if row.shard not in self._shards.sendable():
                self._window.put_back(row)
                continue
            try:
                await self._send_one(row)
            except (TopicUnavailable, UnknownSchema) as error:
                # For a topic of ours that is an operator's to mend; one that a workflow names may not be there at all.
                if isinstance(row, QueuedRecord):
                    self._refuse(row, error)
                else:
                    self._hold_back(row, str(error))
            except (BrokerUnavailable, RegistryUnavailable) as error:
                self._hold_back(row, str(error))
            except StoreUnavailable:
                self._window.put_back(row)
                raise
            except (RecordRefused, ContractError) as error:
                self._refuse(row, error)
            except Exception as error:  # one row that breaks our own code must not stop all the others
                log.exception("%s %s cannot be rendered", _label(row), key_of(row))
                self._refuse(row, ContractError(repr(error), code="not-rendered"))

    def _refuse(self, row: Row, error: Refusal) -> None:
        self._refused.append((row, error))
        self._wake.set()

    async def _send_one(self, row: Row) -> None:
        until = self._pauses.until(self._renderer.topic_of(row))
        if until is not None:
            self._window.put_back(row, until=until)
            return
        if isinstance(row, QueuedRecord) and row.skip_reason is not None:
            self._pass_over(row)
            return
        record = await self._renderer.record(row)
        future = await self._producer.produce(record)
        future.add_done_callback(partial(self._land, row))

    def _pass_over(self, row: QueuedRecord) -> None:
        """An operator gave the record up: it leaves the queue as if it were out."""
        self._window.acknowledged(row)
        self._acknowledged.append(row)
        self._wake.set()

    def _land(self, row: Row, future: asyncio.Future[None]) -> None:
        self._landed.append((row, future))
        self._wake.set()

    def _hold_back(self, row: Row, reason: str) -> None:
        """An outage, or something an operator has to mend: the row is tried again, and nothing is counted."""
        topic = self._renderer.topic_of(row)
        if self._pauses.pause(topic, reason):
            log.warning("nothing can be published to %s for now: %s", topic, reason)
        self._window.put_back(row, until=self._pauses.until(topic))

    async def _mark(self) -> None:
        """Take what was acknowledged out of the queue."""
        if not self._acknowledged:
            return
        await self._commit_point("relay.before_mark")
        rows = list(self._acknowledged)
        await self._queue.delete([(row.shard, row.id) for row in rows], owner=self._owner)
        await self._commit_point("relay.after_mark")
        marked = {id(row) for row in rows}
        self._acknowledged = [row for row in self._acknowledged if id(row) not in marked]
        self._window.deleted(rows)
        for row in rows:
            self._metrics.relay_published.labels(kind=_label(row)).inc()

    async def _set_aside(self) -> None:
        """Count the records that failed by themselves, and give each its next time."""
        while self._refused:
            row, error = self._refused[0]
            if isinstance(error, ContractError) and error.code in _NEEDS_NEWER:
                self._window.put_back(row, until=time.monotonic() + NEWER_LOOK_SECONDS)
            else:
                await self._count_failure(row, error)
            self._refused = [entry for entry in self._refused if entry[0] is not row]

    async def _count_failure(self, row: Row, error: Refusal) -> None:
        delay = retry_delay_seconds(row.attempts + 1)
        text = f"{error.code}: {error}"
        failures = await self._queue.set_aside(row.shard, row.id, error=text, delay_seconds=delay)
        self._metrics.relay_failures.labels(kind=_label(row)).inc()
        log.error("%s %s could not be published, try %d: %s", _label(row), key_of(row), failures, text)
        if failures >= BLOCKED_AT:
            self._reader.block(key_of(row))
            delay = BLOCKED_LOOK_SECONDS
        self._window.put_back(row, until=time.monotonic() + delay)


def _label(row: Row) -> str:
    return "record" if isinstance(row, QueuedRecord) else kind_of(row)
