"""What the registry keeps, and how it refuses."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self

FAULTS_PATH: Final = "/faults"
REQUESTS_PATH: Final = "/requests"


class Refused(Exception):
    """A call that the registry refuses; `code` is the API's own, whose first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def http_status(self) -> int:
        """The status of the answer."""
        return int(str(self.code)[:3])


class InvalidSchema(Refused):
    """The text is no schema of its type, or a reference leads nowhere."""

    def __init__(self, message: str) -> None:
        super().__init__(42201, f"Invalid schema: {message}")


class SchemaType(StrEnum):
    """The API's names of the three formats."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Compatibility(StrEnum):
    """Who must be able to read whose data: BACKWARD = new schema, old data; TRANSITIVE = all earlier versions."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a schema imports under `name`: a version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as its author wrote it."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


class Parsed(Protocol):
    """A schema that its format has understood."""

    @property
    def canonical(self) -> str:
        """The same for two texts that say the same."""
        ...

    def unreadable(self, writer: Self) -> list[str]:
        """Return why readers with this schema cannot read what `writer` wrote; empty when they can."""
        ...


@dataclass(frozen=True, slots=True)
class Imported:
    """A referenced schema with what it refers to in turn, by reference name."""

    schema: Schema
    imports: Mapping[str, "Imported"]


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One distinct schema; it has one id in every subject."""

    id: int
    guid: str
    schema: Schema
    parsed: Parsed


@dataclass(slots=True)
class SubjectVersion:
    """A schema as a numbered version of a subject; a deleted one is out of sight and keeps its number."""

    subject: str
    number: int
    stored: StoredSchema
    deleted: bool = False
