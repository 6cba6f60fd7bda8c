"""Builds what a command needs from the settings: the one place that knows every part below Faust."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from schemas.topics import load_topics
from store.answers import Answers
from store.committer import Committer
from store.control import Control
from store.database import CommitPoint, Database, passes
from store.definitions import Definitions
from store.leases import Leases
from store.moves import Moves
from store.notify import Listener, Notifier
from store.positions import Positions
from store.queries import Queries
from store.relay_queue import RelayQueue
from store.submit import Submits
from store.upkeep import Upkeep
from streams.calls.grpc_calls import GrpcCalls
from streams.calls.targets import Targets
from streams.driver.driver import Driver, DriverLimits
from streams.evaluator.protoc import ProtocChild
from streams.kafka.producer import EventProducer
from streams.kafka.registry import SchemaRegistry
from streams.kafka.security import KafkaSecurity
from streams.metrics import Metrics
from streams.relay.relay import Relay
from streams.settings import Settings
from streams.verbs.plans import Plans
from streams.verbs.submit import Submitter
from streams.verbs.verbs import Verbs, VerbStores
from streams.workflow.plan import ENGINE_LEVEL


@dataclass(frozen=True, slots=True)
class Store:
    """The store and what speaks to it, not opened yet. `listener` hears wake-ups, `notifier` sends them."""

    database: Database
    listener: Listener
    notifier: Notifier
    definitions: Definitions
    submits: Submits
    answers: Answers
    control: Control
    queries: Queries
    positions: Positions
    relay_queue: RelayQueue
    plans: Plans
    submitter: Submitter
    protoc: ProtocChild

    def verbs(self, actor: str) -> Verbs:
        """Return the verbs over this store; what they store says that *actor* did it."""
        return Verbs(
            VerbStores(
                definitions=self.definitions,
                submits=self.submits,
                answers=self.answers,
                control=self.control,
                queries=self.queries,
                plans=self.plans,
                protoc=self.protoc,
                submitter=self.submitter,
            ),
            actor=actor,
        )


@dataclass(frozen=True, slots=True)
class Runs:
    """What drives runs: the driver and what must be closed after it."""

    driver: Driver
    committer: Committer
    leases: Leases
    calls: GrpcCalls


@dataclass(frozen=True, slots=True)
class Relaying:
    """What publishes events: the relay and what must be closed after it."""

    relay: Relay
    producer: EventProducer
    registry: SchemaRegistry


def build_store(settings: Settings, *, commit_point: CommitPoint = passes) -> Store:
    """Build the store of DATABASE_URL. *commit_point* is awaited by name around every commit, for tests of crashes.

    Raises:
        SettingsInvalid: the URL is missing or is none.
    """
    settings.require("database_url")
    url = settings.database_url or ""
    database = Database(url, pool_size=settings.database_pool)
    listener = Listener(settings.listen_url or url)
    notifier = Notifier(database, listener)
    definitions = Definitions(database)
    plans = Plans(definitions)
    return Store(
        database=database,
        listener=listener,
        notifier=notifier,
        definitions=definitions,
        submits=Submits(database, on_committed=notifier.notify, commit_point=commit_point),
        answers=Answers(database, on_committed=notifier.notify),
        control=Control(database, on_committed=notifier.notify),
        queries=Queries(database),
        positions=Positions(database),
        relay_queue=RelayQueue(database),
        plans=plans,
        submitter=Submitter(plans, max_attempts=settings.max_attempts),
        protoc=ProtocChild(),
    )


def build_runs(
    settings: Settings, store: Store, owner: str, metrics: Metrics, *, commit_point: CommitPoint = passes
) -> Runs:
    """Build the driver and what it stands on.

    Raises:
        SettingsInvalid: the file of targets cannot be used.
    """
    targets = Targets(
        settings.targets_file, allowed=settings.targets_allowed, default_permits=settings.permits_per_target
    )
    calls = GrpcCalls(targets, message_bytes=settings.message_bytes, call_cap_seconds=settings.call_cap_seconds)
    committer = Committer(store.database, on_committed=store.notifier.notify, commit_point=commit_point)
    leases = Leases(store.database, owner=owner, lease_seconds=settings.lease_seconds, engine_level=ENGINE_LEVEL)
    driver = Driver(
        leases=leases,
        moves=Moves(committer),
        upkeep=Upkeep(
            store.database,
            lease_seconds=settings.lease_seconds,
            max_lost_leases=settings.max_lost_leases,
            on_committed=store.notifier.notify,
        ),
        plans=store.plans,
        calls=calls,
        targets=targets,
        listener=store.listener,
        metrics=metrics,
        limits=DriverLimits(
            in_flight=settings.in_flight,
            lease_seconds=settings.lease_seconds,
            backoff_base_seconds=settings.backoff_base_seconds,
            backoff_cap_seconds=settings.backoff_cap_seconds,
        ),
    )
    return Runs(driver, committer, leases, calls)


def build_relaying(
    settings: Settings, store: Store, owner: str, metrics: Metrics, *, commit_point: CommitPoint = passes
) -> Relaying:
    """Build the relay and what it publishes with.

    Raises:
        SettingsInvalid: topics.yaml or a setting of Kafka or the registry cannot be used.
    """
    settings.require("kafka_bootstrap")
    topics = load_topics(settings.topics_file)
    registry = open_registry(settings)
    producer = EventProducer(settings.kafka_bootstrap or "", KafkaSecurity.from_settings(settings))
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


def open_registry(settings: Settings) -> SchemaRegistry:
    """Build the client of SCHEMA_REGISTRY_URL; the caller closes it."""
    settings.require("schema_registry_url")
    password = settings.schema_registry_password
    return SchemaRegistry(
        settings.schema_registry_url or "",
        username=settings.schema_registry_username,
        password=password.get_secret_value() if password is not None else None,
    )


@asynccontextmanager
async def open_verbs(settings: Settings) -> AsyncIterator[Verbs]:
    """Open the verbs on the store of the settings; without DATABASE_URL each of them is unavailable."""
    if settings.database_url is None:
        yield Verbs(None)
        return
    store = build_store(settings)
    await store.database.open()
    try:
        yield store.verbs(actor=f"cli:{settings.worker_id}")
        await store.notifier.close()
    finally:
        await store.database.close()


def new_owner(worker_id: str) -> str:
    """Return the name that stands in this process's leases: a worker that is started again is another owner."""
    return f"{worker_id}/{os.getpid()}-{secrets.token_hex(3)}"
