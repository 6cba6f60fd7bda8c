"""Topics on a cluster: what there is, and making what is missing."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from schemas.errors import BrokerUnavailable, SettingsInvalid
from schemas.topics import Topics
from streams.kafka.security import KafkaSecurity
from streams.kafka.topics import Change, ChangeKind, Cluster, Finding, FoundTopic, Plan, findings, plan_for

T = TypeVar("T")

SEEN_POLL_SECONDS: Final = 0.05

_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
    }
)


class TopicAdmin:
    """Compares a cluster's topics with `topics.yaml`, and applies the difference.

    Every method raises BrokerUnavailable when Kafka gives no answer in time: call it again. Applying twice at once, or
    again after a time-out, is harmless.
    """

    def __init__(self, bootstrap: str, security: KafkaSecurity, *, timeout_seconds: float = 15.0) -> None:
        """Describe the connection; `timeout_seconds` bounds each request to Kafka."""
        self._timeout_seconds = timeout_seconds
        # The client lives as long as its requests: a pending one of a collected client is answered with an error.
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, **security.client_config()})

    async def plan(self, topics: Topics, *, grow: bool = False) -> Plan:
        """What `apply` would do now."""
        return plan_for(topics, await self.cluster(topics), grow=grow)

    async def check(self, topics: Topics, *, remember_seconds: float | None = None) -> list[Finding]:
        """In what the cluster differs from *topics*, or is not safe; empty means that all is well.

        With *remember_seconds* the retention of requests is compared with it too.
        """
        return findings(topics, await self.cluster(topics), remember_seconds=remember_seconds)

    async def config(self, topic: str) -> Mapping[str, str] | None:
        """What is configured for one topic, defaults included as far as the broker tells them; None: no such topic.

        Raises:
            SettingsInvalid: Kafka refuses to tell, for want of rights say.
        """
        try:
            return (await self._configs([topic]))[topic]
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise SettingsInvalid([f"Kafka refuses to describe {topic}: {_text(error)}"]) from error

    async def apply(self, topics: Topics, *, grow: bool = False) -> Plan:
        """Create what is missing, set config, and with *grow* add partitions; return what was done and what was not.

        When it is over, what it created or grew is what clients are told.

        Raises:
            SettingsInvalid: Kafka refuses some of it; one sentence per refusal. The rest was done.
        """
        plan = await self.plan(topics, grow=grow)
        problems: list[str] = []
        done: list[Change] = []
        for change in plan.changes:
            try:
                await self._do(change)
            except KafkaException as error:
                problems.append(f"{change}: {_text(error)}")
            else:
                done.append(change)
        await self._until_seen(done)
        if problems:
            raise SettingsInvalid(problems)
        return plan

    async def cluster(self, topics: Topics) -> Cluster:
        """What the cluster has of *topics*.

        Raises:
            SettingsInvalid: Kafka refuses to tell, for want of rights say.
        """
        try:
            return await self._described(topics)
        except KafkaException as error:
            raise SettingsInvalid([f"Kafka refuses to describe the topics: {_text(error)}"]) from error

    async def _described(self, topics: Topics) -> Cluster:
        # The names are picked from the whole list: a broker that creates topics by itself makes those it is asked for.
        metadata = await self._metadata()
        names = [topic.name for topic in topics.all() if topic.name in metadata.topics]
        configs = await self._configs(names)
        found = {}
        for name in names:
            partitions = metadata.topics[name].partitions
            replication = min((len(partition.replicas) for partition in partitions.values()), default=0)
            found[name] = FoundTopic(len(partitions), replication, configs[name])
        return Cluster(len(metadata.brokers), found)

    async def _metadata(self) -> ClusterMetadata:
        return await self._answer(asyncio.to_thread(self._client.list_topics, timeout=self._timeout_seconds))

    async def _configs(self, names: Iterable[str]) -> dict[str, Mapping[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        asked = self._client.describe_configs(resources, request_timeout=self._timeout_seconds)
        described: dict[str, Mapping[str, str]] = {}
        for resource, future in asked.items():
            entries = await self._answer(asyncio.wrap_future(future))
            described[resource.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
        return described

    async def _do(self, change: Change) -> None:
        match change.kind:
            case ChangeKind.CREATE:
                new = NewTopic(change.topic, change.partitions, change.replication, config=dict(change.config))
                answers = self._client.create_topics([new], request_timeout=self._timeout_seconds)
                await self._finish(answers.values(), but=KafkaError.TOPIC_ALREADY_EXISTS)
            case ChangeKind.SET_CONFIG:
                entries = [
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in change.config.items()
                ]
                resource = ConfigResource(ResourceType.TOPIC, change.topic, incremental_configs=entries)
                await self._finish(
                    self._client.incremental_alter_configs([resource], request_timeout=self._timeout_seconds).values()
                )
            case ChangeKind.GROW:
                grown = [NewPartitions(change.topic, change.partitions)]
                await self._finish(
                    self._client.create_partitions(grown, request_timeout=self._timeout_seconds).values()
                )

    async def _finish(self, answers: Iterable["Future[object]"], *, but: int | None = None) -> None:
        for answer in answers:
            try:
                await self._answer(asyncio.wrap_future(answer))
            except KafkaException as error:
                if error.args[0].code() != but:
                    raise

    async def _until_seen(self, done: Iterable[Change]) -> None:
        """Wait until what was created or grown is what clients are told."""
        wanted = {change.topic: change.partitions for change in done if change.partitions}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                while wanted:
                    found = (await self._metadata()).topics
                    wanted = {
                        topic: partitions
                        for topic, partitions in wanted.items()
                        if topic not in found or len(found[topic].partitions) < partitions
                    }
                    if wanted:
                        await asyncio.sleep(SEEN_POLL_SECONDS)
        except TimeoutError as error:
            raise BrokerUnavailable(f"created or grown, but not seen yet: {', '.join(sorted(wanted))}") from error

    async def _answer(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_seconds + 1):
                return await answer
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka gave no answer within {self._timeout_seconds:g} s") from error
        except KafkaException as error:
            if error.args[0].code() in _UNREACHABLE:
                raise BrokerUnavailable(_text(error)) from error
            raise


def _text(error: KafkaException) -> str:
    return f"{error.args[0].name()}: {error.args[0].str()}"
