"""What intake stands on, as far as it is not Faust."""

from dataclasses import dataclass

from schemas.topics import Topic, load_topics
from store.notify import POSITIONS
from streams.agents.accept import Accept
from streams.agents.held import HeldLetters
from streams.kafka.backpressure import Backpressure
from streams.kafka.identities import TopicIdentities
from streams.kafka.log_reader import LogReader
from streams.kafka.positions import StartingPoints
from streams.kafka.registry import SchemaRegistry
from streams.kafka.retention_watch import RetentionWatch
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.watch import PositionWatch, Reading
from streams.metrics import Metrics
from streams.parts.store import Store
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class IntakeParts:
    """What becomes of the records of `topic`, where they are read, and what goes on beside."""

    topic: Topic
    accept: Accept
    reading: Reading
    held: HeldLetters
    retention: RetentionWatch
    registry: SchemaRegistry


def build_intake_parts(settings: Settings, store: Store, metrics: Metrics, backpressure: Backpressure) -> IntakeParts:
    """Build what reads the request topic that TOPICS_FILE declares, while *backpressure* lets it.

    Raises:
        SettingsInvalid: topics.yaml or a setting of Kafka or the registry cannot be used.
    """
    settings.require("kafka_bootstrap")
    topic = load_topics(settings.topics_file).requests
    bootstrap, security = settings.kafka_bootstrap or "", KafkaSecurity.from_settings(settings)
    registry = SchemaRegistry.from_settings(settings)
    held = HeldLetters(
        topic=topic,
        letters=store.dead_letters,
        submits=store.submits,
        submitter=store.submitter,
        registry=registry,
        metrics=metrics,
    )
    accept = Accept(
        group_id=settings.group,
        topic=topic,
        submitter=store.submitter,
        registry=registry,
        batches=store.submits,
        metrics=metrics,
        held_seconds=settings.held_seconds,
        on_held=held.wake,
    )
    starts = StartingPoints(
        group_id=settings.group,
        positions=store.positions,
        identities=TopicIdentities(bootstrap, security),
        metrics=metrics,
    )
    admin = TopicAdmin(bootstrap, security)
    watch = PositionWatch(
        starts=starts,
        logs=LogReader(bootstrap, security),
        configs=admin,
        metrics=metrics,
        changed_by_hand=store.listener.subscribe(POSITIONS),
    )
    retention = RetentionWatch(admin, topic, remember_seconds=settings.remember_seconds)
    return IntakeParts(topic, accept, Reading(starts, watch, backpressure), held, retention, registry)
