"""From a queued row to the record that is published: the same bytes each time, whoever renders it, and whenever."""

from datetime import UTC, datetime, timedelta
from typing import Final

from schemas.errors import ContractError, RecordRefused
from schemas.events import EventFields, EventType, Status, build_message, serialize
from schemas.framing import frame
from schemas.headers import Failure, dead_letter_headers, event_headers
from schemas.ids import key_of
from schemas.messages import INDEXES, WorkflowRunEvent
from schemas.registered import schema_text
from schemas.topics import Topic, Topics
from store.records import QueuedEvent, QueuedLetter
from store.step_records import QueuedRecord
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.registry import SchemaRegistry
from streams.relay.reduced import reduced_event, reduced_letter
from streams.relay.step_records import StepRecords
from streams.relay.window import Row

PROTOBUF_FORMAT: Final = 1
STAGE: Final = "intake"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Renderer:
    """Renders events, records of steps and dead letters for the topics they go to."""

    def __init__(self, topics: Topics, registry: SchemaRegistry, step_records: StepRecords) -> None:
        self._topics = topics
        self._registry = registry
        self._step_records = step_records

    @property
    def events_topic(self) -> str:
        """Where events go."""
        return self._topics.events.name

    def topic_of(self, row: Row) -> str:
        """Which topic *row* goes to; for a letter that has none, how its source's dead letters are called."""
        if isinstance(row, QueuedEvent):
            return self.events_topic
        if isinstance(row, QueuedRecord):
            return row.topic
        source = row.letter.identity.topic
        topic = self._topics.dead_letters.get(source)
        return topic.name if topic is not None else f"dead letters of {source}"

    async def record(self, row: Row) -> OutgoingRecord:
        """Render any kind, see `event`, `letter` and `StepRecords`.

        An event or letter that an operator gave up is rendered in its reduced form.
        """
        if isinstance(row, QueuedRecord):
            return await self._step_records.render(row)
        if isinstance(row, QueuedEvent):
            return await self.event(row if row.skip_reason is None else reduced_event(row, row.skip_reason))
        return self.letter(row if row.skip_reason is None else reduced_letter(row, row.skip_reason))

    async def event(self, row: QueuedEvent) -> OutgoingRecord:
        """Render one event, framed with the id of the schema text that its contract version was published as.

        Raises:
            ContractError: code `contract-version` or `event-format` where a newer release is needed; any other: the row
                can never be published as it is.
            RecordRefused: it is larger than its topic takes.
            UnknownSchema: our schema text is not registered yet. This is the registry's lack, not the row's.
            RegistryUnavailable: no answer; try again.
        """
        if row.format != PROTOBUF_FORMAT:
            raise ContractError(f"event format {row.format} is unknown here, 1 is known", code="event-format")
        topic = self._topics.events
        schema_id = await self._registry.id_of(
            topic.subject or f"{topic.name}-value", schema_text(row.contract_version)
        )
        message = build_message(_fields(row), row.occurred_at)
        record = OutgoingRecord(
            topic.name,
            key_of(row.job_id),
            frame(schema_id, serialize(message), INDEXES[WorkflowRunEvent]),
            event_headers(message, traceparent=row.trace_context),
            (row.occurred_at - _EPOCH) // timedelta(milliseconds=1),
        )
        return _that_fits(record, topic)

    def letter(self, row: QueuedLetter) -> OutgoingRecord:
        """Render one dead letter: key, value and time as they were, and why it is here as headers.

        Raises:
            ContractError: code `no-dead-letters`: its source topic is not in `topics.yaml` any more.
            RecordRefused: it is larger than its topic takes.
        """
        letter, identity = row.letter, row.letter.identity
        topic = self._topics.dead_letters.get(identity.topic)
        if topic is None:
            raise ContractError(f"topics.yaml names no dead letters of {identity.topic}", code="no-dead-letters")
        failure = Failure(identity.topic, identity.partition, identity.offset, STAGE, letter.code, letter.reason)
        record = OutgoingRecord(
            topic.name,
            letter.key,
            letter.value,
            dead_letter_headers(letter.headers, failure),
            identity.timestamp_ms if identity.timestamp_ms >= 0 else None,
        )
        return _that_fits(record, topic)


def _fields(row: QueuedEvent) -> EventFields:
    try:
        kind, status = EventType(row.type), Status(row.status)
    except ValueError as error:
        raise ContractError(f"the row cannot be read: {error}", code="event") from error
    return EventFields(
        event_id=row.event_id,
        job_id=row.job_id,
        tenant_id=row.tenant_id,
        workflow_name=row.workflow_name,
        type=kind,
        status=status,
        step=row.step,
        attempt=row.attempt,
        verdict=row.verdict,
        error=row.error,
        detail=row.detail,
        seq=row.seq,
        business_key=row.business_key,
        labels=row.labels,
    )


def _that_fits(record: OutgoingRecord, topic: Topic) -> OutgoingRecord:
    if not record.fits(topic.max_message_bytes):
        raise RecordRefused(
            f"{record.batch_bytes()} bytes, {topic.name} takes {topic.max_message_bytes}: raise max.message.bytes",
            code="too-large",
        )
    return record
