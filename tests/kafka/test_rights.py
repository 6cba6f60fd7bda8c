"""The least rights that a worker needs on Kafka, and what becomes of it without one of them."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streams.dev.apache import ApacheKafka, Listener
from streams.dev.ports import LOOPBACK, free_port
from streams.dev.registry.server import RegistryServer
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet, opened_fleet
from tests.acceptance.processes import WorkerProcess
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, Compiler
from tests.fixtures.grpc_server import ScriptedServer
from tests.fixtures.kafka import OnApache

pytestmark = [pytest.mark.acceptance, pytest.mark.apache]

USER, PASSWORD = "worker", "a secret"
HEALED_SECONDS = 60.0
"""A right is granted by people: the client that lacked it asks again each half minute."""
TOLD_SECONDS = 60.0  # the start of the worker included
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@pytest.fixture
def pem(tmp_path: Path, _apache_missing: str | None) -> Path:
    """A certificate for the broker and its key, in one file as Kafka wants them, and the certificate alone."""
    if _apache_missing is not None:
        pytest.skip(f"needs Apache Kafka: {_apache_missing}")
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    (tmp_path / "broker.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    return tmp_path


@pytest.fixture
def guarded(pem: Path) -> Iterator[tuple[ApacheKafka, str]]:
    """A broker that lets clients in by TLS and password, and lets them do only what it was told; and that address."""
    port = free_port()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.guarded.scram-sha-512.sasl.jaas.config": _SCRAM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem / "broker.pem"),
    }
    listener = Listener("GUARDED", port, protocol="SASL_SSL")
    with ApacheKafka(settings=settings, listeners=[listener]) as cluster:
        yield cluster, f"{LOOPBACK}:{port}"


@dataclass(frozen=True)
class Rights:
    """What the worker's user may do."""

    kafka: OnApache

    def set_password(self, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        [done] = self.kafka.admin.alter_user_scram_credentials([change]).values()
        done.result(30)

    def grant(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        binding = AclBinding(kind, name, ResourcePatternType.LITERAL, *_ANYWHERE, operation, AclPermissionType.ALLOW)
        [done] = self.kafka.admin.create_acls([binding]).values()
        done.result(30)

    def revoke(self, kind: ResourceType, name: str) -> None:
        everything = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, *_ANYWHERE, AclOperation.ANY, AclPermissionType.ANY
        )
        [done] = self.kafka.admin.delete_acls([everything]).values()
        assert done.result(30), f"there was no right on {name}"


_ANYWHERE = (f"User:{USER}", "*")


@pytest.fixture
def services(grpc_server: ScriptedServer) -> ScriptedServer:
    grpc_server.script(TOKENIZE, TOKENS)
    grpc_server.script(EMBED, VECTOR)
    return grpc_server


@pytest.fixture
async def fleet(
    guarded: tuple[ApacheKafka, str], registry: RegistryServer, database_url: str, pem: Path, services: ScriptedServer
) -> AsyncIterator[Fleet]:
    async with opened_fleet(OnApache(guarded[0]), registry, database_url, pem, services, Compiler()) as fleet:
        yield fleet


async def troubled(worker: WorkerProcess, name: str, words: str) -> None:
    """Wait until *worker* says that this service cannot work, in these words; it is alive all the same."""
    seen: Any = None

    async def told() -> bool:
        nonlocal seen
        status, seen = await worker.health("/readyz")
        services = seen["services"] if status else []
        return any(one["name"] == name and not one["ready"] and words in one.get("detail", "") for one in services)

    await until(told, lambda: f"nothing of {words!r}: {seen}\n{worker.log[-3000:]}", seconds=TOLD_SECONDS)
    assert (await worker.health("/healthz"))[0] == 200


@pytest.mark.timeout(240)
@pytest.mark.case("D23")
async def test_d23_the_least_rights_suffice_and_a_topic_that_denies_writes_is_told_and_heals_when_it_is_granted(
    fleet: Fleet, guarded: tuple[ApacheKafka, str], pem: Path
) -> None:
    rights, group = Rights(OnApache(guarded[0])), fleet.settings("worker-a")["group"]
    topics = fleet.topics
    events, letters = topics.events.name, topics.dead_letters_of(topics.requests.name).name
    rights.set_password(PASSWORD)
    rights.grant(ResourceType.TOPIC, events, AclOperation.WRITE)
    rights.grant(ResourceType.TOPIC, letters, AclOperation.WRITE)
    rights.grant(ResourceType.TOPIC, topics.requests.name, AclOperation.READ)
    rights.grant(ResourceType.GROUP, group, AclOperation.READ)
    worker = fleet.start(
        "worker-a",
        kafka_bootstrap=guarded[1],
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username=USER,
        kafka_sasl_password=PASSWORD,
        kafka_ca_file=pem / "ca.pem",
    )
    early = await fleet.produce(5)
    await fleet.until_told(early, EMBED_TEXT_LOG, seconds=TOLD_SECONDS)
    fleet.producer.put_value(b"no request", uuid4().bytes, partition=0)
    await fleet.until_read_up()
    await worker.ready()

    rights.revoke(ResourceType.TOPIC, events)
    kept = await fleet.produce(20)
    await fleet.until_all(kept, "COMPLETED")
    await troubled(worker, "relay", "uthoriz")
    pending = await fleet.rows(
        "select status, attempts from workflow_run_events_outbox where job_id = any (%(jobs)s)", jobs=kept
    )
    assert {(row["status"], row["attempts"]) for row in pending} == {("PENDING", 0)}
    rights.grant(ResourceType.TOPIC, events, AclOperation.WRITE)
    await fleet.until_told(kept, EMBED_TEXT_LOG, seconds=HEALED_SECONDS)
    assert await worker.count("relay_failures_total") == 0
    await worker.ready()


async def test_a_wrong_password_is_told_and_heals_when_it_is_right(
    fleet: Fleet, guarded: tuple[ApacheKafka, str], pem: Path
) -> None:
    rights, group = Rights(OnApache(guarded[0])), fleet.settings("worker-a")["group"]
    rights.set_password("another one")
    for name, operation in (
        (fleet.topics.requests.name, AclOperation.READ),
        (fleet.topics.events.name, AclOperation.WRITE),
    ):
        rights.grant(ResourceType.TOPIC, name, operation)
    rights.grant(ResourceType.GROUP, group, AclOperation.READ)
    worker = fleet.start(
        "worker-a",
        kafka_bootstrap=guarded[1],
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username=USER,
        kafka_sasl_password=PASSWORD,
        kafka_ca_file=pem / "ca.pem",
    )
    jobs = await fleet.produce(2)
    await troubled(worker, "relay", "uthentication failed")
    await troubled(worker, "intake", "")
    assert PASSWORD not in worker.log
    rights.set_password(PASSWORD)
    await fleet.until_told(jobs, EMBED_TEXT_LOG, seconds=HEALED_SECONDS)
    await worker.ready()
