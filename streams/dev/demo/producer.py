"""An independent producer: plain confluent-kafka and the generated message, nothing else of ours.

    python producer.py BOOTSTRAP REGISTRY_URL TOPIC < requests.jsonl

Each input line is a JSON object with job_id, workflow_name, input (JSON text) and business_key. Each record that was
acknowledged is told as one JSON line with its partition and offset.
"""

import json
import sys

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.gen.workflow_runs.v1.workflow_runs_pb2 import WorkflowRunRequest


def main(bootstrap: str, registry_url: str, topic: str) -> int:
    registry = SchemaRegistryClient({"url": registry_url})
    serializer = ProtobufSerializer(
        WorkflowRunRequest, registry, {"auto.register.schemas": False, "use.latest.version": True}
    )
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    failures: list[str] = []

    def told(error: KafkaError | None, record: Message) -> None:
        if error is not None:
            failures.append(str(error))
            return
        print(json.dumps({"partition": record.partition(), "offset": record.offset()}), flush=True)

    for line in sys.stdin:
        fields = json.loads(line)
        value = serializer(WorkflowRunRequest(**fields), SerializationContext(topic, MessageField.VALUE))
        producer.produce(topic, key=fields["job_id"].encode(), value=value, on_delivery=told)
    producer.flush(30)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
