"""The brokers: what they take, and that nothing of them is left."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams.dev import apache_jars
from streams.dev.apache import ApacheKafka, available
from streams.dev.broker import EmbeddedBroker
from streams.dev.faultproxy import FaultProxy
from streams.dev.ports import accepts, free_port
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.processes import StartFailed
from streams.dev.registry.server import RegistryServer
from streams.dev.server import Server
from tests.fixtures.eventually import wait_until

ROOT = Path(__file__).parents[2]


def _send(bootstrap: str, value: bytes, topic: str = "kept") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def _read(bootstrap: str, count: int, topic: str = "kept") -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def _create(bootstrap: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("kept", 1, replicas)])["kept"].result(30)


def test_the_embedded_broker_serves_and_ignores_settings_that_are_not_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LISTENER_URL", "tcp://0.0.0.0:9092")
    monkeypatch.setenv("STORAGE_ENGINE", "nonsense://")
    with EmbeddedBroker() as broker:
        _create(broker.bootstrap)
        _send(broker.bootstrap, b"one")
        assert _read(broker.bootstrap, 1) == [b"one"]
    assert not accepts(broker.port)


def test_a_paused_embedded_broker_keeps_what_it_has() -> None:
    with EmbeddedBroker() as broker:
        _create(broker.bootstrap)
        _send(broker.bootstrap, b"before")
        broker.pause()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("kept", b"meanwhile", partition=0)
        assert producer.flush(0.5) == 1
        broker.resume()
        assert producer.flush(30) == 0
        assert _read(broker.bootstrap, 2) == [b"before", b"meanwhile"]


def test_a_killed_embedded_broker_comes_back_empty_on_its_port() -> None:
    with EmbeddedBroker() as broker:
        _create(broker.bootstrap)
        broker.kill()
        assert not broker.running
        broker.start()
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
        assert "kept" not in topics


def test_clients_go_through_a_proxy_whose_port_the_broker_advertises() -> None:
    port, proxy_port = free_port(), free_port()
    with EmbeddedBroker(port=port, advertised_port=proxy_port) as broker, FaultProxy(port, port=proxy_port) as proxy:
        _create(broker.bootstrap)
        proxy.delay(0.05)
        _send(broker.bootstrap, b"late")
        proxy.reset_all()
        proxy.heal()
        assert _read(f"127.0.0.1:{port}", 1) == [b"late"]
        assert sum(proxy.passed_bytes.values()) > 0


@pytest.mark.apache
def test_an_apache_cluster_takes_records_while_a_broker_is_down_and_keeps_them() -> None:
    with ApacheKafka(3) as cluster:
        _create(cluster.bootstrap, replicas=3)
        _send(cluster.bootstrap, b"one")
        cluster.kill_broker(0)
        _send(cluster.bootstrap, b"two")
        cluster.start_broker(0)
        assert _read(cluster.bootstrap, 2) == [b"one", b"two"]


@pytest.mark.apache
def test_an_apache_topic_is_made_only_on_request() -> None:
    with ApacheKafka(settings={"log.retention.check.interval.ms": "500"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = admin.list_topics("nobody-made-it", timeout=10).topics
        assert topics["nobody-made-it"].error is not None
        ports = [int(address.rsplit(":", 1)[1]) for address in cluster.bootstrap.split(",")]
    assert not any(accepts(port) for port in ports)


def test_a_machine_without_java_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert available() == "no Java"
    with pytest.raises(StartFailed, match="Apache Kafka cannot run here: no Java"), ApacheKafka():
        pytest.fail("it started")


def test_a_machine_without_maven_says_so_unless_the_jars_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apache_jars, "java", lambda: Path("/usr/bin/java"))
    monkeypatch.setenv("PATH", "")
    assert available(tmp_path) == "no Maven to fetch it with"
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_fetch_that_fails_leaves_nothing_that_looks_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text('#!/bin/sh\nfor last; do :; done\n/bin/mkdir -p "${last#*=}"\necho cannot resolve it\nexit 1\n')
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent))
    with pytest.raises(apache_jars.Unavailable, match="Maven could not fetch it: cannot resolve it"):
        apache_jars.fetch(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


@pytest.mark.parametrize(
    "name",
    [
        "broker.EmbeddedBroker",
        "registry.server.RegistryServer",
        pytest.param("apache.ApacheKafka", marks=pytest.mark.apache),
    ],
)
def test_a_server_goes_with_an_owner_that_is_killed(name: str) -> None:
    module, kind = name.rsplit(".", 1)
    script = (
        "import time\n"
        f"from streams.dev.{module} import {kind}\n"
        f"with {kind}() as server:\n"
        "    print(getattr(server, 'bootstrap', None) or server.url, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline().rsplit(":", 1)[1])
        assert accepts(port)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait(10)
    wait_until(lambda: not accepts(port))


@pytest.mark.parametrize("kind", [EmbeddedBroker, RegistryServer])
def test_a_taken_port_is_reported(kind: type[EmbeddedBroker] | type[RegistryServer]) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match=f"port {port} is taken"), kind(port=port):
            pytest.fail("it started")


@pytest.mark.parametrize("kind", [EmbeddedBroker, ApacheKafka, EmbeddedPostgres, RegistryServer])
def test_what_never_ran_can_be_stopped_and_closed(kind: type[Server]) -> None:
    server = kind()
    server.stop()
    server.kill()
    server.close()
    server.close()
