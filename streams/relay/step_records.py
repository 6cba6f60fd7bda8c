"""Records that steps send to topics of others: from the queued row to what is published."""

from datetime import UTC, datetime, timedelta
from typing import Final

from schemas.errors import ContractError
from schemas.topics import Topics
from store.relay_queue import RelayQueue
from store.step_records import QueuedRecord
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.registry import SchemaRegistry

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FRAMES_KEPT: Final = 1_000


class StepRecords:
    """Renders records of steps: the stored bytes behind the frame of their schema, the same each time.

    The frame is that of the newest schema under `<topic>-value` when the first record of a definition went to the
    topic. It is kept in the store, so that later schemas change nothing for what is sent again, or by another relay.
    """

    def __init__(self, queue: RelayQueue, topics: Topics, registry: SchemaRegistry) -> None:
        self._queue = queue
        self._own = frozenset(topic.name for topic in topics.all())
        self._registry = registry
        self._frames: dict[tuple[bytes, str, str], bytes] = {}

    async def render(self, row: QueuedRecord) -> OutgoingRecord:
        """Render one record, which nobody gave up.

        Raises:
            ContractError: code `own-topic`: it is for a topic of ours, where it would be taken for something else; code
                `no-such-message` or `not-protobuf`: the topic's schema is not one of this message.
            UnknownSchema: nothing is registered for the topic.
            RegistryUnavailable, StoreUnavailable: no answer; try again.
        """
        if row.topic in self._own:
            raise ContractError(f"{row.topic} is a topic of the workers themselves", code="own-topic")
        frame = await self._frame(row)
        return OutgoingRecord(
            row.topic,
            row.key,
            frame + await self._queue.value(row),
            [(name, text.encode()) for name, text in row.headers],
            (row.occurred_at - _EPOCH) // timedelta(milliseconds=1),
        )

    async def _frame(self, row: QueuedRecord) -> bytes:
        named = row.definition_hash, row.topic, row.type
        if (known := self._frames.get(named)) is not None:
            return known
        frame = await self._queue.frame(*named)
        if frame is None:
            newest = await self._registry.newest_frame(f"{row.topic}-value", row.type)
            frame = await self._queue.keep_frame(*named, newest)
        if len(self._frames) >= _FRAMES_KEPT:
            self._frames.clear()
        self._frames[named] = frame
        return frame
