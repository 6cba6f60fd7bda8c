"""What a cluster's topics lack of what `topics.yaml` says: pure comparison, no broker.

A plan only ever adds: topics, config, and partitions where it is told to grow. Whatever would take something away, or
move keys, is withheld and said: a person does that with Kafka's own tools, or changes `topics.yaml`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from schemas import limits
from schemas.topics import BROKER_MAX_MESSAGE_BYTES, CLEANUP_POLICY, MAX_MESSAGE_BYTES, MIN_INSYNC_REPLICAS, Role, Topic
from schemas.topics import Topics as WantedTopics

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
RETENTION: Final = "retention.ms"
BROKER_RETENTION_MS: Final = "604800000"
"""How long a Kafka broker keeps records where a topic says nothing."""

SAFE_FROM_BROKERS: Final = 3
"""From this many brokers on, losing one may neither stop writes nor lose what was acknowledged."""

_LIMITS_THAT_DROP_RECORDS: Final = (RETENTION, "retention.bytes", "delete.retention.ms")


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as the cluster has it. `config` may lack what is at its default."""

    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What there is: the number of brokers, and every topic by name."""

    brokers: int
    topics: Mapping[str, FoundTopic]


class ChangeKind(StrEnum):
    """What `apply` does to one topic."""

    CREATE = "create"
    SET_CONFIG = "set config"
    GROW = "grow"


@dataclass(frozen=True, slots=True)
class Change:
    """One change, whole: `partitions` after it (CREATE, GROW), and the config that it sets (CREATE, SET_CONFIG)."""

    topic: str
    kind: ChangeKind
    partitions: int = 0
    replication: int = 0
    config: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in sorted(self.config.items()))
        match self.kind:
            case ChangeKind.CREATE:
                return f"create {self.topic}: {self.partitions} partitions, {self.replication} replicas, {settings}"
            case ChangeKind.SET_CONFIG:
                return f"set on {self.topic}: {settings}"
            case ChangeKind.GROW:
                return f"grow {self.topic} to {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one topic that a person should look at; `problem` is a sentence that names the way out."""

    topic: str
    problem: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` does, in order, and what it leaves alone on purpose. Empty `changes` means: nothing to do."""

    changes: tuple[Change, ...]
    withheld: tuple[Finding, ...]


def plan_for(wanted: WantedTopics, cluster: Cluster, *, grow: bool = False) -> Plan:
    """Compare; with *grow*, add partitions that are missing, which moves keys to other partitions."""
    changes: list[Change] = []
    withheld: list[Finding] = []
    for topic in wanted.all():
        found = cluster.topics.get(topic.name)
        if found is None:
            changes.append(_creation(topic, cluster.brokers))
            continue
        changes += _additions(topic, found, cluster.brokers, grow=grow)
        withheld += _withheld(topic, found, cluster.brokers, grow=grow)
    return Plan(tuple(changes), tuple(withheld))


def findings(wanted: WantedTopics, cluster: Cluster, *, remember_seconds: float | None = None) -> list[Finding]:
    """Everything in which the cluster differs from *wanted*, or is not safe. Empty means: all is well.

    With *remember_seconds*, how long the store remembers the ids of requests, their retention is compared with it.
    """
    plan = plan_for(wanted, cluster)
    found = [Finding(change.topic, f"`topics apply` would {_as_advice(change)}") for change in plan.changes]
    found += plan.withheld
    for topic in wanted.all():
        if topic.name in cluster.topics:
            found += _unsafe(topic, cluster)
    requests = cluster.topics.get(wanted.requests.name)
    if requests is not None and remember_seconds is not None:
        kept = outlives_memory(wanted.requests.name, requests.config, remember_seconds)
        found += [kept] if kept is not None else []
    return found + list(_tight_dead_letters(wanted, cluster))


def outlives_memory(topic: str, config: Mapping[str, str], remember_seconds: float) -> Finding | None:
    """Say so when a request topic with this config keeps records for as long as their ids are remembered, or longer."""
    kept_seconds = _amount(config.get(RETENTION, BROKER_RETENTION_MS)) / 1000
    if kept_seconds < remember_seconds:
        return None
    return Finding(
        topic,
        f"{RETENTION} must be below REMEMBER_SECONDS ({remember_seconds:.0f} s): a request that is read when runs of"
        " its age are forgotten is a dead letter",
    )


def _creation(topic: Topic, brokers: int) -> Change:
    replication = topic.replication_on(brokers)
    return Change(topic.name, ChangeKind.CREATE, topic.partitions, replication, topic.config_on(brokers))


def _additions(topic: Topic, found: FoundTopic, brokers: int, *, grow: bool) -> Iterator[Change]:
    config = {
        name: value
        for name, value in topic.config_on(brokers).items()
        if found.config.get(name) != value and not _takes_away(name, found.config.get(name), value)
    }
    if config:
        yield Change(topic.name, ChangeKind.SET_CONFIG, config=config)
    if grow and found.partitions < topic.partitions:
        yield Change(topic.name, ChangeKind.GROW, partitions=topic.partitions)


def _withheld(topic: Topic, found: FoundTopic, brokers: int, *, grow: bool) -> Iterator[Finding]:
    if found.partitions > topic.partitions:
        yield Finding(topic.name, f"has {found.partitions} partitions, {topic.partitions} are wanted: none is removed")
    if found.partitions < topic.partitions and not grow:
        yield Finding(
            topic.name,
            f"has {found.partitions} partitions, {topic.partitions} are wanted: `topics apply --grow` adds them, and"
            f" {_growing_means(topic.role)}",
        )
    if found.replication < topic.replication_on(brokers):
        yield Finding(
            topic.name,
            f"has {found.replication} replicas, {topic.replication_on(brokers)} are wanted: reassign its partitions",
        )
    for name, value in topic.config_on(brokers).items():
        if _takes_away(name, found.config.get(name), value):
            yield Finding(
                topic.name,
                f"{name} is {found.config[name]}, {value} is wanted: records could be lost, so change it by hand",
            )


def _growing_means(role: Role) -> str:
    if role is Role.EVENTS:
        return "keys move: later events of a run can be read before earlier ones while the old partitions are read"
    return "keys move to other partitions"


def _takes_away(name: str, found: str | None, wanted: str) -> bool:
    """Whether the new value could drop records, or refuse ones that fitted."""
    if found is None or found == wanted:
        return False
    if name == CLEANUP_POLICY:
        return True
    if name in _LIMITS_THAT_DROP_RECORDS:
        return _amount(wanted) < _amount(found)
    return name == MAX_MESSAGE_BYTES and int(wanted) < int(found)


def _amount(text: str) -> float:
    return float("inf") if text == "-1" else float(text)


def _unsafe(topic: Topic, cluster: Cluster) -> Iterator[Finding]:
    config = cluster.topics[topic.name].config
    if cluster.brokers >= SAFE_FROM_BROKERS and int(config.get(MIN_INSYNC_REPLICAS, 1)) < 2:
        yield Finding(topic.name, f"{MIN_INSYNC_REPLICAS} must be 2: else one lost disk can lose acknowledged records")
    if config.get(UNCLEAN_ELECTION) == "true":
        yield Finding(topic.name, f"{UNCLEAN_ELECTION} must be false: else a lagging replica can drop records")


def _tight_dead_letters(wanted: WantedTopics, cluster: Cluster) -> Iterator[Finding]:
    for source, letters in wanted.dead_letters.items():
        if source not in cluster.topics or letters.name not in cluster.topics:
            continue
        room = _max_message_bytes(cluster.topics[source]) + limits.DEAD_LETTER_ROOM_BYTES
        if (size := _max_message_bytes(cluster.topics[letters.name])) < room:
            yield Finding(
                letters.name, f"{MAX_MESSAGE_BYTES} is {size}, under {room}: {source}'s and 64 kB for headers"
            )


def _max_message_bytes(topic: FoundTopic) -> int:
    return int(topic.config.get(MAX_MESSAGE_BYTES, BROKER_MAX_MESSAGE_BYTES))


def _as_advice(change: Change) -> str:
    return "create it" if change.kind is ChangeKind.CREATE else str(change)
