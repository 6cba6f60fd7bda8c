"""How both Kafka clients prove who they are and whom they trust: one place, so that they can never differ."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from schemas.errors import SettingsInvalid
from streams.settings import Settings

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Protocol, credentials and certificates for the brokers. The password is never part of `repr()`.

    Without `ca_file` the system's authorities are trusted. Host names are always verified.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "KafkaSecurity":
        """Take the `KAFKA_*` settings, which were checked against each other when they were loaded."""
        password = settings.kafka_sasl_password
        return cls(
            protocol=settings.kafka_security_protocol,
            mechanism=settings.kafka_sasl_mechanism,
            username=settings.kafka_sasl_username,
            password=password.get_secret_value() if password else None,
            ca_file=settings.kafka_ca_file,
            cert_file=settings.kafka_cert_file,
            key_file=settings.kafka_key_file,
        )

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def client_config(self) -> dict[str, str]:
        """The properties that confluent-kafka's clients take. What the protocol does not use is left out."""
        config: dict[str, str] = {"security.protocol": self.protocol}
        if self.uses_sasl:
            config |= _given("sasl.mechanism", self.mechanism)
            config |= _given("sasl.username", self.username)
            config |= _given("sasl.password", self.password)
        if self.uses_tls:
            config |= _given("ssl.ca.location", self.ca_file)
            config |= _given("ssl.certificate.location", self.cert_file)
            config |= _given("ssl.key.location", self.key_file)
        return config

    def ssl_context(self) -> ssl.SSLContext | None:
        """The same trust and certificate for aiokafka; None where the protocol has no TLS.

        Raises:
            SettingsInvalid: a file is missing or is not what it should be; the message names it.
        """
        if not self.uses_tls:
            return None
        context = _trusting(self.ca_file)
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except (OSError, ssl.SSLError) as error:
                raise SettingsInvalid(
                    [f"client certificate {self.cert_file} with key {self.key_file}: {error}"]
                ) from error
        return context


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsInvalid([f"certificate authorities {ca_file}: {error}"]) from error


def _given(name: str, value: str | Path | None) -> dict[str, str]:
    return {} if value is None else {name: str(value)}
