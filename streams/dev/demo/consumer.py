"""An independent consumer: prints each event as a JSON line, and tells repeats by `event_id` as every consumer should.

python consumer.py BOOTSTRAP REGISTRY_URL TOPIC
"""

import json
import sys

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.gen.workflow_runs.v1.workflow_runs_pb2 import WorkflowRunEvent


def main(bootstrap: str, registry_url: str, topic: str) -> None:
    deserializer = ProtobufDeserializer(WorkflowRunEvent, {}, SchemaRegistryClient({"url": registry_url}))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-consumer", "fetch.wait.max.ms": 50})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    seen: set[str] = set()
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if record.error() is not None:
            print(record.error(), file=sys.stderr, flush=True)
            continue
        event = deserializer(record.value(), SerializationContext(topic, MessageField.VALUE))
        print(json.dumps(told(event, record.key(), duplicate=event.event_id in seen)), flush=True)
        seen.add(event.event_id)


def told(event: WorkflowRunEvent, key: bytes | None, *, duplicate: bool) -> dict[str, object]:
    return {
        "key": (key or b"").decode(),
        "job_id": event.job_id,
        "business_key": event.business_key,
        "seq": event.seq,
        "type": WorkflowRunEvent.Type.Name(event.type),
        "step": event.step,
        "attempt": event.attempt,
        "status": event.status,
        "duplicate": duplicate,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
