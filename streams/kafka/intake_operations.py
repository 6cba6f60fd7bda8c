"""What an operator may ask of intake and do to it: where it stands, back to an earlier record, past a bad one."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from schemas.errors import BrokerUnavailable, InputInvalid, NotFound, SettingsInvalid
from store.positions import PositionChange, PositionOf, Positions, Why
from store.records import Position
from streams.kafka.assignment import Partition
from streams.kafka.committed import committed_offsets
from streams.kafka.identities import TopicIdentities
from streams.kafka.log_reader import LogReader, LogState
from streams.kafka.positions import Bounds, Start, start_of
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.watch import retention_of

_ANSWER_SECONDS: Final = 15.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far one partition is read, and what its log holds.

    `start` is where a reader that is assigned the partition now would begin, and why. `lag` counts offsets, which is
    records and a few markers. `oldest_unread` is the time of the first record that is not read, None where none waits;
    `seconds_left` says how long the topic's retention still keeps it, None where nothing waits or nothing is removed.
    """

    topic: str
    partition: int
    topic_id: str
    stored: Position | None
    committed: int | None
    bounds: Bounds
    start: Start
    oldest_unread: datetime | None
    seconds_left: float | None

    @property
    def lag(self) -> int:
        return max(0, self.bounds.end - self.start.offset)


class IntakeOperations:
    """Operations on the positions of one group in one request topic. Live workers may read it meanwhile.

    Every method raises BrokerUnavailable or StoreUnavailable when there is no answer: call it again. Those that name a
    topic and a partition raise NotFound when it is not the one that intake reads, or is not there.
    """

    def __init__(
        self, *, bootstrap: str, security: KafkaSecurity, group_id: str, topic: str, positions: Positions, actor: str
    ) -> None:
        """Describe the connection. *actor* stands in the audit for whoever calls."""
        self._group_id = group_id
        self._topic = topic
        self._positions = positions
        self._actor = actor
        self._identities = TopicIdentities(bootstrap, security)
        self._logs = LogReader(bootstrap, security)
        self._topics = TopicAdmin(bootstrap, security)
        self._client_config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            **security.client_config(),
        }
        self._admin = AdminClient(self._client_config)

    async def status(self) -> list[PartitionStatus]:
        """Return how each partition stands, in their order.

        Raises:
            NotFound: the topic is not there.
        """
        partitions = await self._partitions()
        topic_id = await self._topic_id()
        stored = await self._positions.read(self._group_id, [self._topic])
        committed = await self._committed(partitions)
        places = {p: _unread_from(stored.get(p), committed.get(p), topic_id) for p in partitions}
        logs = await self._logs.look(places)
        retention = await self._retention()
        return [_status(p, topic_id, stored.get(p), committed.get(p), logs[p], retention) for p in partitions]

    async def seek(
        self, topic: str, partition: int, offset: int | None, *, below_floor: bool = False, reason: str | None = None
    ) -> PositionChange:
        """Let the partition be read again from *offset* on, None: from the log's beginning. See `Positions.seek`.

        Raises:
            InputInvalid: the log does not hold *offset*, it lies ahead of what is read, or below what was skipped.
        """
        of, log = await self._find(topic, partition)
        if offset is not None and offset < log.start:
            raise InputInvalid(f"the log of {of} begins at {log.start}: say `beginning`")
        wanted = log.start if offset is None else offset
        if wanted > log.end:
            raise InputInvalid(f"the log of {of} ends at {log.end}: {wanted} lies beyond it")
        return await self._positions.seek(of, wanted, below_floor=below_floor, why=Why(self._actor, reason))

    async def skip(self, topic: str, partition: int, to_offset: int, *, reason: str) -> PositionChange:
        """Never read the records below *to_offset* that are not read yet. See `Positions.skip`.

        Raises:
            InputInvalid: *to_offset* lies beyond the end of the log, or what lies below it is read or gone already.
        """
        of, log = await self._find(topic, partition)
        if to_offset > log.end:
            raise InputInvalid(f"the log of {of} ends at {log.end}: --to {log.end} passes over all that is there now")
        if to_offset <= log.start:
            raise InputInvalid(f"the log of {of} begins at {log.start}: nothing below {to_offset} is there to skip")
        committed = (await self._committed([(topic, partition)]))[topic, partition]
        return await self._positions.skip(of, to_offset, committed=committed, why=Why(self._actor, reason))

    async def _find(self, topic: str, partition: int) -> tuple[PositionOf, LogState]:
        if topic != self._topic:
            raise NotFound(f"intake does not read {topic}: the request topic is {self._topic}")
        partitions = await self._partitions()
        if (topic, partition) not in partitions:
            raise NotFound(f"{topic} has partitions 0 to {len(partitions) - 1}, and no {partition}")
        of = PositionOf(self._group_id, topic, partition, await self._topic_id())
        return of, (await self._logs.look({(topic, partition): None}))[topic, partition]

    async def _partitions(self) -> list[Partition]:
        # All topics are listed: a broker that creates topics by itself makes those that it is asked for.
        metadata = await _answered(asyncio.to_thread(self._admin.list_topics, timeout=_ANSWER_SECONDS))
        if (found := metadata.topics.get(self._topic)) is None:
            raise NotFound(f"there is no topic {self._topic} on this cluster: `workflow-runs topics apply` makes it")
        return [(self._topic, number) for number in sorted(found.partitions)]

    async def _topic_id(self) -> str:
        return (await self._identities.of([self._topic])).topic_ids[self._topic]

    async def _committed(self, partitions: list[Partition]) -> dict[Partition, int | None]:
        return await asyncio.to_thread(committed_offsets, self._client_config, self._group_id, partitions)

    async def _retention(self) -> timedelta | None:
        try:
            return retention_of(await self._topics.config(self._topic) or {})
        except SettingsInvalid:  # no right to read it: then it is not told
            return None


def _unread_from(stored: Position | None, committed: int | None, topic_id: str) -> int | None:
    if stored is None or stored.topic_id != topic_id:
        return None
    return max(stored.next_offset if committed is None else min(committed, stored.next_offset), stored.floor_offset)


def _status(
    partition: Partition,
    topic_id: str,
    stored: Position | None,
    committed: int | None,
    log: LogState,
    retention: timedelta | None,
) -> PartitionStatus:
    bounds = Bounds(log.start, log.end)
    start = start_of(committed, stored, topic_id, bounds)
    oldest = log.next_time if start.offset < log.end else None
    return PartitionStatus(
        *partition,
        topic_id=topic_id,
        stored=stored,
        committed=committed,
        bounds=bounds,
        start=start,
        oldest_unread=oldest,
        seconds_left=_seconds_left(oldest, retention),
    )


def _seconds_left(oldest_unread: datetime | None, retention: timedelta | None) -> float | None:
    if oldest_unread is None or retention is None:
        return None
    return max(0.0, (oldest_unread + retention - datetime.now(UTC)).total_seconds())


async def _answered(answer: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(answer, _ANSWER_SECONDS + 5)
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise BrokerUnavailable("Kafka gave no answer in time") from error
