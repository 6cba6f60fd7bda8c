"""The topics of a worker, as `topics.yaml` describes them. The file itself says what each key means."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from schemas import limits
from schemas.errors import SettingsInvalid
from schemas.text import unstorable
from schemas.yaml_section import Section, load_mapping

DEFAULT_TENANT: Final = "default"
DEFAULT_REPLICATION: Final = 3

JOB_ID_KEY: Final = "job_id"
DEAD_LETTERS_SUFFIX: Final = ".dlq"

CLEANUP_POLICY: Final = "cleanup.policy"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"

BROKER_MAX_MESSAGE_BYTES: Final = 1_048_588
"""What a Kafka broker takes where a topic says nothing."""


class Role(StrEnum):
    """What a topic is for."""

    REQUESTS = "requests"
    EVENTS = "events"
    ANSWERS = "answers"
    DEAD_LETTERS = "dead-letters"


class Format(StrEnum):
    """What a value may be: framed Protobuf, or plain JSON."""

    PROTOBUF = "protobuf"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it should be.

    `config` has Kafka's names and texts. A dead-letter topic has no `formats` and no `subject`: its values are whatever
    they were. `tenant` owns the records of a topic that is read; where it is None the header `tenant_header` of each
    record says whose it is.
    """

    name: str
    role: Role
    formats: tuple[Format, ...]
    subject: str | None
    partitions: int
    replication: int
    config: Mapping[str, str]
    tenant: str | None
    tenant_header: str | None = None

    @property
    def max_message_bytes(self) -> int:
        """The largest record batch the topic takes; a record's own limit is a little lower."""
        return int(self.config.get(MAX_MESSAGE_BYTES, BROKER_MAX_MESSAGE_BYTES))

    def replication_on(self, brokers: int) -> int:
        """Return the copies to make on a cluster of that many brokers."""
        return min(self.replication, brokers)

    def config_on(self, brokers: int) -> dict[str, str]:
        """Return the config for a cluster of that many brokers: writes must go on when one of them is lost."""
        config = dict(self.config)
        if MIN_INSYNC_REPLICAS in config:
            most = max(1, self.replication_on(brokers) - 1)
            config[MIN_INSYNC_REPLICAS] = str(min(int(config[MIN_INSYNC_REPLICAS]), most))
        return config


@dataclass(frozen=True, slots=True)
class Topics:
    """Every topic of a worker. `dead_letters` maps the name of each topic that is read to its dead-letter topic."""

    requests: Topic
    events: Topic
    answers: Topic
    dead_letters: Mapping[str, Topic]

    def dead_letters_of(self, topic: str) -> Topic:
        """Return where records of *topic* go that no run can be made of; KeyError for a topic that is not read."""
        return self.dead_letters[topic]

    def all(self) -> tuple[Topic, ...]:
        """Return every topic, each once, sources before their dead letters."""
        return (self.requests, self.events, self.answers, *self.dead_letters.values())


def load_topics(source: Path | str) -> Topics:
    """Read the description of the topics: a Path is read as a file, a str is the YAML text itself.

    Raises:
        SettingsInvalid: the file cannot be read or does not describe the topics of a worker. `problems` has one
            sentence per fault, each beginning with where it stands, such as `workflow-run-requests.partitions: ...`.
    """
    try:
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid([f"{source}: cannot be read: {error}"]) from error
    return _TopicsReader(load_mapping(text)).read()


_READ_ROLES: Final = (Role.REQUESTS, Role.ANSWERS)
_UNSERVED_ROLES: Final = ("binding", "state")
_FORMATS: Final[Mapping[Role, tuple[Format, ...]]] = {
    Role.REQUESTS: (Format.PROTOBUF, Format.JSON),
    Role.EVENTS: (Format.PROTOBUF,),
    Role.ANSWERS: (Format.PROTOBUF, Format.JSON),
}
_SOURCE_KEYS: Final = ("role", "key", "value", "partitions", "replication", "config")
_READ_KEYS: Final = (*_SOURCE_KEYS, "dead_letters", "tenant")
_DEAD_LETTER_KEYS: Final = ("role", "partitions", "replication", "config")
_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_MOST_PARTITIONS: Final = 10_000
_MOST_REPLICATION: Final = 32_767


class _TopicsReader:
    """Sorts a file's entries by role, then reads each with what its role allows."""

    def __init__(self, document: Mapping[object, object]) -> None:
        self._problems: list[str] = []
        self._entries: dict[Role, dict[str, Section]] = {role: {} for role in Role}
        self._letters_of: dict[str, str] = {}
        for name, values in document.items():
            self._sort(name, Section(str(name), values, self._problems))

    def read(self) -> Topics:
        requests = self._source(Role.REQUESTS)
        events = self._source(Role.EVENTS)
        answers = self._source(Role.ANSWERS)
        letters = {source.name: self._letters(source) for source in (requests, answers) if source is not None}
        for name, entry in self._entries[Role.DEAD_LETTERS].items():
            if name not in self._letters_of.values():
                entry.report("role", "no topic that is read names this one as its dead_letters")
        self._refuse_collisions([topic.name for topic in (requests, events, answers, *letters.values()) if topic])
        if self._problems or requests is None or events is None or answers is None:
            raise SettingsInvalid(self._problems)
        return Topics(requests, events, answers, MappingProxyType(letters))

    def _sort(self, name: object, entry: Section) -> None:
        if not isinstance(name, str):
            entry.report(None, "a topic's name is a text; put it in quotes")
            return
        if not _TOPIC_NAME.fullmatch(name):
            entry.report(None, "a topic's name is 1 to 249 of A-Z, a-z, 0-9, `.`, `_` and `-`, not `.` or `..`")
        role = entry.text("role")
        if role in _UNSERVED_ROLES:
            entry.report("role", f"{role} topics are not served by this version")
        elif role in tuple(Role):
            self._entries[Role(role)][name] = entry
        else:
            entry.report("role", f"is {role or 'missing'}; there are {', '.join(Role)}")

    def _source(self, role: Role) -> Topic | None:
        entries = self._entries[role]
        if len(entries) != 1:
            found = " and ".join(entries) or "none"
            self._problems.append(f"role {role}: exactly one topic must have it; here it is {found}")
            return None
        [(name, entry)] = entries.items()
        if (key := entry.text("key", JOB_ID_KEY)) != JOB_ID_KEY:
            entry.report("key", f"is {key}; records are keyed by {JOB_ID_KEY}")
        value = entry.section("value")
        formats = tuple(map(Format, value.choices("format", _FORMATS[role])))
        subject = value.text("subject", f"{name}-value")
        value.end(("format", "subject"))
        partitions = entry.whole("partitions", None, most=_MOST_PARTITIONS)
        replication = entry.whole("replication", DEFAULT_REPLICATION, most=_MOST_REPLICATION)
        config = {CLEANUP_POLICY: "delete", **_config(entry)}
        tenant = tenant_header = None
        if role in _READ_ROLES:
            tenant, tenant_header = _tenant(entry)
            self._letters_of[name] = entry.text("dead_letters", f"{name}{DEAD_LETTERS_SUFFIX}") or ""
        entry.end(_READ_KEYS if role in _READ_ROLES else _SOURCE_KEYS)
        settled = MappingProxyType(config)
        return Topic(name, role, formats, subject, partitions, replication, settled, tenant, tenant_header)

    def _letters(self, source: Topic) -> Topic:
        name = self._letters_of[source.name]
        if list(self._letters_of.values()).count(name) > 1:
            self._problems.append(f"{source.name}.dead_letters: {name} is another topic's too; each has its own")
        if not _TOPIC_NAME.fullmatch(name) or any(
            name in self._entries[role] for role in Role if role is not Role.DEAD_LETTERS
        ):
            self._problems.append(f"{source.name}.dead_letters: {name} cannot be a dead-letter topic")
        entry = self._entries[Role.DEAD_LETTERS].get(name) or Section(name, {}, self._problems)
        partitions = entry.whole("partitions", source.partitions, most=_MOST_PARTITIONS)
        replication = entry.whole("replication", source.replication, most=_MOST_REPLICATION)
        room = source.max_message_bytes + limits.DEAD_LETTER_ROOM_BYTES
        config = {**source.config, MAX_MESSAGE_BYTES: str(room), **_config(entry)}
        if int(config[MAX_MESSAGE_BYTES]) < room:
            entry.report(f"config.{MAX_MESSAGE_BYTES}", f"is under {room}: the source's and 64 kB for the headers")
        entry.end(_DEAD_LETTER_KEYS)
        return Topic(name, Role.DEAD_LETTERS, (), None, partitions, replication, MappingProxyType(config), None)

    def _refuse_collisions(self, names: Sequence[str]) -> None:
        """Kafka refuses a second topic that differs only in `.` and `_`: its metrics would have one name."""
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(name.replace(".", "_"), name)
            if other != name:
                self._problems.append(f"{name}: Kafka takes no topic of this name beside {other}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka takes *name* as that of a topic."""
    return _TOPIC_NAME.fullmatch(name) is not None


def is_tenant(value: object) -> bool:
    """Whether *value* can name a tenant: a text of 1 to 200 characters that can be stored, not blank at its ends."""
    return (
        isinstance(value, str)
        and 1 <= len(value) <= limits.NAME
        and value == value.strip()
        and unstorable(value) is None
    )


def _tenant(entry: Section) -> tuple[str | None, str | None]:
    """Return the tenant of every record, or the name of the header that says which."""
    value = entry.take("tenant", DEFAULT_TENANT)
    if isinstance(value, Mapping):
        header = value.get("header")
        if set(value) == {"header"} and isinstance(header, str) and header:
            return None, header
        entry.report("tenant", "from a header is written {header: name}, and nothing else")
    elif isinstance(value, str) and is_tenant(value):
        return value, None
    else:
        entry.report("tenant", f"is not a text of 1 to {limits.NAME} characters without blanks around it")
    return DEFAULT_TENANT, None


def _config(entry: Section) -> dict[str, str]:
    section = entry.section("config")
    config = section.rest()
    if config.get(CLEANUP_POLICY, "delete") != "delete":
        section.report(CLEANUP_POLICY, "must be delete: compaction would drop records that count")
    for name in (MAX_MESSAGE_BYTES, MIN_INSYNC_REPLICAS):
        if name in config and not re.fullmatch(r"[1-9][0-9]{0,8}", config[name]):
            section.report(name, f"is {config[name]}, not a whole number above 0")
            del config[name]
    return config
