"""One description of security serves both Kafka clients."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from schemas.errors import SettingsInvalid
from streams.kafka.security import KafkaSecurity
from streams.settings import load_settings


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, as PEM files in one folder."""
    folder = tmp_path_factory.mktemp("pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


def test_plaintext_needs_nothing_and_says_nothing_more() -> None:
    security = KafkaSecurity()

    assert security.client_config() == {"security.protocol": "PLAINTEXT"}
    assert security.ssl_context() is None


def test_what_the_protocol_does_not_use_is_left_out(pem: Path) -> None:
    security = KafkaSecurity(
        protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        username="alice",
        password="secret",
        ca_file=pem / "cert.pem",
    )

    assert security.client_config() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    assert security.ssl_context() is None


def test_both_clients_get_the_same_files(pem: Path) -> None:
    security = KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="alice",
        password="secret",
        ca_file=pem / "cert.pem",
        cert_file=pem / "cert.pem",
        key_file=pem / "key.pem",
    )

    config = security.client_config()
    context = security.ssl_context()

    assert config["ssl.ca.location"] == config["ssl.certificate.location"] == str(pem / "cert.pem")
    assert context is not None
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    Producer(config)  # librdkafka reads the files and refuses names that it does not know


def test_a_broken_file_is_named(pem: Path, tmp_path: Path) -> None:
    missing = KafkaSecurity(protocol="SSL", ca_file=tmp_path / "nowhere.pem")
    swapped = KafkaSecurity(
        protocol="SSL", ca_file=pem / "cert.pem", cert_file=pem / "key.pem", key_file=pem / "cert.pem"
    )

    with pytest.raises(SettingsInvalid, match=r"nowhere\.pem"):
        missing.ssl_context()
    with pytest.raises(SettingsInvalid, match=r"key\.pem"):
        swapped.ssl_context()


def test_the_password_never_shows() -> None:
    assert "secret" not in repr(KafkaSecurity(protocol="SASL_SSL", password="secret"))


def test_the_settings_fill_every_field(monkeypatch: pytest.MonkeyPatch, pem: Path) -> None:
    for name, value in {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": "SCRAM-SHA-256",
        "SASL_USERNAME": "alice",
        "SASL_PASSWORD": "secret",
        "CA_FILE": str(pem / "cert.pem"),
        "CERT_FILE": str(pem / "cert.pem"),
        "KEY_FILE": str(pem / "key.pem"),
    }.items():
        monkeypatch.setenv(f"WORKFLOW_RUNS_KAFKA_{name}", value)

    assert KafkaSecurity.from_settings(load_settings()) == KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-256",
        username="alice",
        password="secret",
        ca_file=pem / "cert.pem",
        cert_file=pem / "cert.pem",
        key_file=pem / "key.pem",
    )
