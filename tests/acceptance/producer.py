"""An independent producer: a plain client with the registry's own serializer."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import confluent_kafka
from confluent_kafka import KafkaError, Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.messages import WorkflowRunRequest

Format = Literal["protobuf", "json"]
Offset = tuple[int, int]
"""Partition and offset."""

ANY_PARTITION = -1
_FLUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """What a producer asks for."""

    job_id: UUID
    workflow: str
    input: Mapping[str, object]


class Producer:
    """Puts requests and other values on the request topic, and keeps what the broker acknowledged."""

    def __init__(self, bootstrap: str, registry_url: str, topic: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.max.bytes": 4_000_000, "log_level": 2}
        )
        self._registry = SchemaRegistryClient({"url": registry_url})
        self._serializer = ProtobufSerializer(
            WorkflowRunRequest,
            self._registry,
            {"auto.register.schemas": False, "use.latest.version": True},
        )
        self.acknowledged: dict[Offset, UUID | None] = {}

    def close(self) -> None:
        self._registry.close()

    def ends(self) -> dict[int, int]:
        """The offset after the last acknowledged record of each partition that has one."""
        ends: dict[int, int] = {}
        for partition, offset in list(self.acknowledged):
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends

    def send(self, requests: Sequence[Request], format: Format = "protobuf") -> None:
        """Send *requests*, keyed by their job, and wait until all are acknowledged."""
        for request in requests:
            self.put(request, format)
        self.flush()

    def put(self, request: Request, format: Format = "protobuf", partition: int = ANY_PARTITION) -> None:
        """Send one request and do not wait."""
        value = self._framed(request) if format == "protobuf" else _plain(request)
        self._produce(value, str(request.job_id).encode(), request.job_id, partition)

    def put_value(self, value: bytes | None, key: bytes | None, partition: int) -> None:
        """Send something that is no request, as it is, and do not wait."""
        self._produce(value, key, None, partition)

    def flush(self) -> None:
        """Wait until the broker has acknowledged everything."""
        assert self._producer.flush(_FLUSH_SECONDS) == 0, "the broker did not acknowledge everything"

    def _produce(self, value: bytes | None, key: bytes | None, job_id: UUID | None, partition: int) -> None:
        self._producer.produce(self._topic, value, key, partition, on_delivery=self._told(job_id))
        self._producer.poll(0)

    def _told(self, job_id: UUID | None) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, record: Message) -> None:
            assert error is None, error
            self.acknowledged[record.partition() or 0, record.offset() or 0] = job_id

        return delivered

    def _framed(self, request: Request) -> bytes:
        message = WorkflowRunRequest(
            job_id=str(request.job_id), workflow_name=request.workflow, input=json.dumps(request.input)
        )
        value: bytes = self._serializer(message, SerializationContext(self._topic, MessageField.VALUE))
        return value


def _plain(request: Request) -> bytes:
    return json.dumps(
        {"job_id": str(request.job_id), "workflow_name": request.workflow, "input": request.input}
    ).encode()
