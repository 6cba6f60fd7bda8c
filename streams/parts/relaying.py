"""What publishes events."""

from dataclasses import dataclass

from schemas.topics import load_topics
from store.database import CommitPoint, passes
from streams.kafka.producer import EventProducer
from streams.kafka.registry import SchemaRegistry
from streams.kafka.security import KafkaSecurity
from streams.metrics import Metrics
from streams.parts.store import Store
from streams.relay.relay import Relay
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Relaying:
    """What publishes events: the relay and what must be closed after it."""

    relay: Relay
    producer: EventProducer
    registry: SchemaRegistry


def build_relaying(
    settings: Settings, store: Store, owner: str, metrics: Metrics, *, commit_point: CommitPoint = passes
) -> Relaying:
    """Build the relay and what it publishes with.

    Raises:
        SettingsInvalid: topics.yaml or a setting of Kafka or the registry cannot be used.
    """
    settings.require("kafka_bootstrap")
    topics = load_topics(settings.topics_file)
    registry = SchemaRegistry.from_settings(settings)
    security = KafkaSecurity.from_settings(settings)
    producer = EventProducer.for_topics(settings.kafka_bootstrap or "", security, topics)
    relay = Relay(
        queue=store.relay_queue,
        producer=producer,
        registry=registry,
        topics=topics,
        listener=store.listener,
        owner=owner,
        metrics=metrics,
        commit_point=commit_point,
    )
    return Relaying(relay, producer, registry)
