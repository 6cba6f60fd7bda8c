"""Every setting, declared once: `WORKFLOW_RUNS_*` in the environment, or the YAML file that `WORKFLOW_RUNS_FILE` names.

The environment wins over the file. `docs/settings.md` is rendered from this module, and a test compares the two.
"""

import difflib
import ipaddress
import os
import socket
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from schemas.errors import SettingsInvalid

PREFIX: Final = "WORKFLOW_RUNS_"
FILE_VARIABLE: Final = f"{PREFIX}FILE"


class Role(StrEnum):
    """A duty of a worker process."""

    INTAKE = "intake"
    RUNS = "runs"
    RELAY = "relay"
    WEB = "web"


def _default_worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


class Settings(BaseSettings):
    """The settings of one process, checked. Build it with `load_settings`, which explains what is wrong."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, case_sensitive=False)

    database_url: str | None = Field(
        None, repr=False, description="Postgres URL of the store. Required by every role but web."
    )
    listen_url: str | None = Field(
        None, repr=False, description="Postgres URL for LISTEN, where DATABASE_URL goes through a transaction pooler."
    )
    database_pool: int = Field(10, ge=2, le=200, description="Connections of the pool, at most.")
    allow_async_commit: bool = Field(
        False, description="Start although `synchronous_commit` is off, which voids the promises about crashes."
    )

    kafka_bootstrap: str | None = Field(None, description="Kafka brokers, host:port[,host:port]. Intake and relay.")
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How to speak to the brokers."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="SASL mechanism; required by the SASL protocols."
    )
    kafka_sasl_username: str | None = Field(None, description="SASL user.")
    kafka_sasl_password: SecretStr | None = Field(None, description="SASL password.")
    kafka_ca_file: Path | None = Field(None, description="PEM file of the authorities that sign the brokers.")
    kafka_cert_file: Path | None = Field(None, description="PEM file of the client certificate.")
    kafka_key_file: Path | None = Field(None, description="PEM file of the client key.")
    kafka_session_timeout_seconds: float = Field(
        10, ge=1, le=300, description="A worker unheard of for this long loses its partitions."
    )
    group: str = Field("workflow-runs", min_length=1, max_length=200, description="Consumer group of intake.")
    schema_registry_url: str | None = Field(None, description="Schema Registry with Confluent's API. Intake and relay.")
    schema_registry_username: str | None = Field(None, description="Basic-auth user of the registry.")
    schema_registry_password: SecretStr | None = Field(None, description="Basic-auth password of the registry.")

    topics_file: Path = Field(Path("topics.yaml"), description="Where the topics are declared.")
    workflows_dir: Path | None = Field(
        None, description="Folder of definitions to store at start (*.json, *.yaml, *.yml)."
    )
    types_dir: Path | None = Field(
        None, description="Folder of descriptor sets (*.binpb, *.desc, *.pb, *.protoset) whose types schemas may name."
    )
    types_modules: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Generated modules (shop_pb2) whose types schemas may name, comma-separated."
    )
    handlers: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Modules whose handlers in Python this worker serves, comma-separated."
    )
    targets_file: Path | None = Field(
        None, description="YAML file that gives target names their addresses, credentials and limits."
    )
    targets_allowed: Annotated[tuple[str, ...], NoDecode] = Field(
        ("127.0.0.1:*", "localhost:*", "[::1]:*"),
        description="Literal host:port targets that may be called, as patterns with `*`, comma-separated.",
    )

    worker_id: str = Field(
        default_factory=_default_worker_id, min_length=1, max_length=200, description="Names this process in leases."
    )
    roles: Annotated[frozenset[Role], NoDecode] = Field(
        frozenset(Role), description="Duties of this process, comma-separated: intake, runs, relay, web."
    )
    in_flight: int = Field(128, ge=1, le=10_000, description="Runs worked on at once by this process, at most.")
    permits_per_target: int = Field(8, ge=1, le=10_000, description="Calls in flight to one target, at most.")
    lease_seconds: float = Field(300, ge=1, le=86_400, description="How long a claim holds without a renewal.")
    max_attempts: int = Field(3, ge=1, le=10_000, description="Tries of one step before a run is DEAD.")
    max_lost_leases: int = Field(3, ge=1, le=100, description="Claims of one run that may expire before it is DEAD.")
    backoff_base_seconds: float = Field(
        5, gt=0, le=3_600, description="Delay before the second try; doubles each time."
    )
    backoff_cap_seconds: float = Field(3_600, gt=0, le=86_400, description="Longest delay between two tries.")
    call_cap_seconds: float = Field(900, gt=0, le=86_400, description="Longest call, whatever a definition says.")
    message_bytes: int = Field(16 << 20, ge=1 << 10, le=1 << 30, description="Largest gRPC message, either way.")
    drain_grace_seconds: float = Field(30, ge=0, le=3_600, description="How long SIGTERM waits for calls in flight.")

    batch_records: int = Field(500, ge=1, le=10_000, description="Records in one intake transaction, at most.")
    batch_bytes: int = Field(8 << 20, ge=1 << 16, le=1 << 30, description="Bytes in one intake transaction, at most.")
    max_queued: int = Field(
        100_000, ge=1, le=100_000_000, description="Due queued runs from which on intake reads no more for a while."
    )
    held_seconds: float = Field(
        600, ge=0, le=86_400, description="How long a record waits for a schema that the registry does not know yet."
    )
    prune_after_seconds: float = Field(
        604_800, ge=1, le=315_360_000, description="Age at which a settled run goes, once all of its events are out."
    )
    remember_seconds: float = Field(
        2_592_000,
        ge=2,
        le=315_360_000,
        description="How long a settled run's id stays taken. Above PRUNE_AFTER_SECONDS and the requests' retention.",
    )

    evaluator: Literal["child", "in_process"] = Field(
        "child",
        description="Where expressions of definitions are evaluated: in a child process with limits, or, faster and "
        "for trusted authors only, in the worker itself.",
    )
    http_bind: str = Field("127.0.0.1:8080", description="Address of the verbs, host:port; empty switches it off.")
    health_bind: str = Field("127.0.0.1:8090", description="Address of health and metrics; empty switches it off.")
    log_format: Literal["text", "json"] = Field("text", description="One line a record: for people or for machines.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least level that is logged.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(FILE_VARIABLE)
        files = (YamlConfigSettingsSource(settings_cls, yaml_file=file),) if file else ()
        return (init_settings, env_settings, *files)

    @field_validator("*", mode="before")
    @classmethod
    def _empty_means_unset(cls, value: object, info: Any) -> object:
        if value == "" and info.field_name not in ("http_bind", "health_bind"):
            field = cls.model_fields[info.field_name]
            return field.get_default(call_default_factory=True, validated_data={})
        return value

    @field_validator("roles", "targets_allowed", "handlers", "types_modules", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("worker_id")
    @classmethod
    def _worker_id_is_not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank: two workers must never share it")
        return value.strip()

    @field_validator("http_bind", "health_bind")
    @classmethod
    def _bind_is_an_address(cls, value: str) -> str:
        if value:
            split_address(value)
        return value

    @field_validator("http_bind")
    @classmethod
    def _verbs_listen_on_loopback(cls, value: str) -> str:
        if value and not is_loopback(split_address(value)[0]):
            raise ValueError(f"{value} is not loopback, and the verbs have no tokens yet: bind to 127.0.0.1 or [::1]")
        return value

    @model_validator(mode="after")
    def _hang_together(self) -> "Settings":
        wants_sasl = self.kafka_security_protocol.startswith("SASL")
        sasl = (self.kafka_sasl_mechanism, self.kafka_sasl_username, self.kafka_sasl_password)
        if wants_sasl and None in sasl:
            raise ValueError("KAFKA_SASL_MECHANISM, _USERNAME and _PASSWORD are required by the SASL protocols")
        if (self.kafka_cert_file is None) != (self.kafka_key_file is None):
            raise ValueError("KAFKA_CERT_FILE and KAFKA_KEY_FILE go together")
        if self.remember_seconds <= self.prune_after_seconds:
            raise ValueError("REMEMBER_SECONDS must be above PRUNE_AFTER_SECONDS: else a pruned run's id is free")
        return self

    def require(self, *names: str) -> None:
        """Raise SettingsInvalid naming each of the settings *names* that is not set."""
        missing = [name for name in names if getattr(self, name) in (None, "")]
        if missing:
            raise SettingsInvalid([f"{PREFIX}{name.upper()} is not set: {_help_of(name)}" for name in missing])

    def require_for_roles(self) -> None:
        """Raise SettingsInvalid where this process's roles need a setting that is not there."""
        if self.roles & {Role.INTAKE, Role.RUNS, Role.RELAY}:
            self.require("database_url")
        if self.roles & {Role.INTAKE, Role.RELAY}:
            self.require("kafka_bootstrap", "schema_registry_url")


def load_settings(**given: object) -> Settings:
    """Read the settings of this process; *given* wins over the environment and the file.

    Raises:
        SettingsInvalid: one sentence per broken or unknown setting. Nothing was started.
    """
    problems = list(_unknown_names(os.environ))
    file = os.environ.get(FILE_VARIABLE)
    if file and not Path(file).is_file():
        raise SettingsInvalid([f"{FILE_VARIABLE}: there is no file {file}"])
    try:
        settings = Settings(**given)  # type: ignore[arg-type]  # checked by pydantic, whatever it is
    except ValidationError as error:
        problems += [_sentence(item["loc"], item["msg"], item["type"]) for item in error.errors(include_url=False)]
    except (yaml.YAMLError, ValueError) as error:  # the file is not YAML, or not a mapping
        problems.append(f"{FILE_VARIABLE}: {error}")
    if problems:
        raise SettingsInvalid(problems)
    return settings


def quiet_grpc() -> None:
    """Keep gRPC's own lines out of the log, which has a format. Call it before gRPC is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def child_environment() -> dict[str, str]:
    """The environment for a process of people's code: this one's, without the settings, which hold passwords."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`; raise ValueError naming what is wrong. Port 0 picks one."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach *host*."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def table() -> list[tuple[str, str, str]]:
    """Every setting as (environment name, default, meaning), in declaration order."""
    rows = [(FILE_VARIABLE, "", "YAML file with any of these settings, in lower case and without the prefix.")]
    for name, field in Settings.model_fields.items():
        default = "host-pid" if name == "worker_id" else _shown(field.default)
        rows.append((f"{PREFIX}{name.upper()}", default, field.description or ""))
    return rows


def _shown(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, frozenset):
        return ",".join(role for role in Role if role in default)
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _help_of(name: str) -> str:
    return Settings.model_fields[name].description or ""


def _unknown_names(environment: Mapping[str, str]) -> Iterable[str]:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | {FILE_VARIABLE}
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            yield f"{name} is not a setting{_nearest(name.upper(), known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; did you mean {close[0]}?" if close else ""


def _sentence(location: tuple[int | str, ...], message: str, kind: str) -> str:
    name = str(location[0]) if location else ""
    message = message.removeprefix("Value error, ")
    if not name:
        return message
    if kind == "extra_forbidden":
        return f"{name} is not a setting{_nearest(name, Settings.model_fields)}"
    return f"{PREFIX}{name.upper()}: {message}"
