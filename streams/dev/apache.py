"""Apache Kafka in KRaft mode on loopback: one broker or several, each broker a controller too."""

import base64
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.dev import apache_jars
from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, accepts, free_ports
from streams.dev.processes import ChildProcess, StartFailed
from streams.dev.server import Server

_JVM: Final = (
    "-Xms64m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_FORMAT_SECONDS: Final = 60.0
_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 20.0


def available(cache: Path | None = None) -> str | None:
    """Return why Apache Kafka cannot run on this machine, None when it can; the first call may fetch its jars."""
    try:
        apache_jars.java()
        apache_jars.fetch(cache)
    except apache_jars.Unavailable as reason:
        return str(reason)
    return None


@dataclass(frozen=True, slots=True)
class Listener:
    """One more way into the first broker, beside the plaintext one that the cluster itself uses.

    Clients are told to go to `advertised_port`, `port` when absent: that of a fault proxy in front of it.
    """

    name: str
    port: int
    advertised_port: int | None = None
    protocol: str = "PLAINTEXT"


class ApacheKafka(Server):
    """A cluster whose data lasts until `close`: brokers can be stopped, killed and started, one or all.

    Topics are made only on request; a topic has as many replicas as there are brokers, at most three.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: Sequence[Listener] = (),
        cache: Path | None = None,
    ) -> None:
        """Describe the cluster; nothing is started yet.

        Args:
            brokers: How many; they are called by their index, from 0.
            settings: Broker settings over those of ours.
            listeners: Listeners of the first broker beside its plaintext one.
            cache: Where the jars are kept, see `apache_jars.default_cache`.
        """
        ports = free_ports(2 * brokers)
        self._ports, self._controller_ports = ports[:brokers], ports[brokers:]
        self._settings = dict(settings or {})
        self._listeners = tuple(listeners)
        self._cache = cache
        self._guard: Guard | None = None
        self._brokers: list[ChildProcess] = []

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._ports)

    def start(self) -> None:
        """Start every broker that does not run, and wait until all have joined (4 s for one, 12 s for three).

        Raises:
            StartFailed: Java or the jars are missing, or a broker could not start.
        """
        if not self._brokers:
            self._prepare()
        # A broker serves only once a majority of controllers is there: start all, then wait for each.
        for broker in self._brokers:
            if not broker.running:
                broker.start()
        for index in range(len(self._brokers)):
            self._wait_for(index)

    def stop(self) -> None:
        """Stop all brokers in order, keeping their data."""
        for broker in self._brokers:
            if broker.running:
                broker.send(signal.SIGTERM)
        for broker in self._brokers:
            broker.stop(grace_seconds=_STOP_SECONDS)

    def kill(self) -> None:
        """Crash all brokers; their data stays."""
        for broker in self._brokers:
            broker.kill()

    def start_broker(self, index: int) -> None:
        """Start one broker again on its data, and wait until it has joined."""
        self._brokers[index].start()
        self._wait_for(index)

    def stop_broker(self, index: int) -> None:
        """Stop one broker in order: its partitions move to the others first."""
        self._brokers[index].stop(grace_seconds=_STOP_SECONDS)

    def kill_broker(self, index: int) -> None:
        """Crash one broker; its data stays."""
        self._brokers[index].kill()

    def close(self) -> None:
        """End all brokers and remove their data. To close twice is harmless."""
        for broker in self._brokers:
            broker.close()
        self._brokers = []
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _prepare(self) -> None:
        try:
            java, jars = apache_jars.java(), apache_jars.fetch(self._cache)
        except apache_jars.Unavailable as reason:
            raise StartFailed(f"Apache Kafka cannot run here: {reason}") from reason
        self._guard = Guard()
        folder = self._guard.make_folder("kafka")
        program = [str(java), *_JVM, "-cp", f"{jars}/*"]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        brokers = []
        for index in range(len(self._ports)):
            properties = folder / f"broker-{index}.properties"
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties(index, folder)))
            _format(
                [*program, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(properties)]
            )
            command = [*program, "kafka.Kafka", str(properties)]
            log = folder / f"broker-{index}.log"
            brokers.append(ChildProcess(f"Kafka broker {index}", command, log=log, guard=self._guard))
        self._brokers = brokers

    def _properties(self, index: int, folder: Path) -> list[tuple[str, str]]:
        count = len(self._ports)
        replicas, in_sync = str(min(3, count)), str(min(2, count))
        voters = ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in enumerate(self._controller_ports))
        own = [Listener("PLAINTEXT", self._ports[index]), *(self._listeners if index == 0 else ())]
        listeners = [*own, Listener("CONTROLLER", self._controller_ports[index])]
        protocols = [
            "CONTROLLER:PLAINTEXT",
            "PLAINTEXT:PLAINTEXT",
            *(f"{x.name}:{x.protocol}" for x in self._listeners),
        ]
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(index),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{one.name}://{LOOPBACK}:{one.port}" for one in listeners),
            "advertised.listeners": ",".join(f"{x.name}://{LOOPBACK}:{x.advertised_port or x.port}" for x in own),
            "listener.security.protocol.map": ",".join(protocols),
            "log.dirs": str(folder / f"broker-{index}"),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            # A broker that was killed may join again once its old session is over.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "1000",
            # Tests wait for none of these: the first member of a group, a dead one, retention, compaction.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "log.retention.check.interval.ms": "1000",
            "log.cleaner.backoff.ms": "500",
        }
        return list({**properties, **self._settings}.items())

    def _wait_for(self, index: int) -> None:
        self._brokers[index].wait_until(lambda: self._joined(index), deadline_seconds=_START_SECONDS)

    def _joined(self, index: int) -> bool:
        if not accepts(self._ports[index]):
            return False
        try:
            seen = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{self._ports[index]}"}).list_topics(timeout=1.0)
        except KafkaException:
            return False
        return index in seen.brokers


def _format(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise StartFailed(f"Kafka's storage was not formatted within {_FORMAT_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise StartFailed(f"Kafka's storage could not be formatted: {(done.stderr or done.stdout).strip()}")
