"""An independent consumer of events: a plain client with the registry's own deserializer, in a thread of its own."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.messages import WorkflowRunEvent


@dataclass(frozen=True)
class Told:
    """One record of the events topic, with the event that it holds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    event: WorkflowRunEvent

    @property
    def what(self) -> str:
        """Type and step, such as `STEP_CHECKPOINT embed`."""
        return f"{WorkflowRunEvent.Type.Name(self.event.type)} {self.event.step}".strip()

    @property
    def content(self) -> tuple[object, ...]:
        """All that must be the same whenever this event is published again."""
        return (self.partition, self.key, self.value, tuple(self.headers), self.timestamp_ms)


def first_arrivals(records: Iterable[Told]) -> list[Told]:
    """What a consumer keeps that drops every event id it has seen."""
    seen: dict[str, Told] = {}
    for record in records:
        seen.setdefault(record.event.event_id, record)
    return list(seen.values())


class EventReader:
    """Reads every partition from its beginning while the block lasts, and keeps all it reads."""

    def __init__(self, bootstrap: str, registry_url: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._registry_url = registry_url
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}.reader",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._told: list[Told] = []
        self._trouble: BaseException | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._read, name="events", daemon=True)

    def told(self) -> list[Told]:
        """Every record so far, in the order they were read: within a partition that of the log."""
        if self._trouble is not None:
            raise AssertionError("an independent consumer cannot read an event") from self._trouble
        return self._told[:]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        self._thread.join(10)
        self._consumer.close()

    def _read(self) -> None:
        try:
            with SchemaRegistryClient({"url": self._registry_url}) as registry:
                deserializer = ProtobufDeserializer(WorkflowRunEvent, {}, registry)
                while not self._enough.is_set():
                    message = self._consumer.poll(0.1)
                    if message is not None and message.error() is None:
                        self._told.append(self._decoded(message, deserializer))
        except Exception as error:  # noqa: BLE001  # the thread's edge: the test's own thread raises it
            self._trouble = error

    def _decoded(self, message: Message, deserializer: ProtobufDeserializer) -> Told:
        value = message.value()
        assert value is not None
        event = deserializer(value, SerializationContext(self._topic, MessageField.VALUE))
        assert isinstance(event, WorkflowRunEvent)
        return Told(
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            key=message.key(),
            value=value,
            headers=list(message.headers() or []),
            timestamp_ms=message.timestamp()[1],
            event=event,
        )
