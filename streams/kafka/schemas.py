"""Our schema texts at the registry: who needs them there, putting them there, and looking whether they are."""

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.errors import UnknownSchema
from schemas.registered import CONTRACT_VERSION, SchemaText, schema_text
from schemas.topics import Topics
from streams.kafka.registry import SchemaRegistry


@dataclass(frozen=True, slots=True)
class Subject:
    """One version of the contract under one subject; `schema_id` None means that it is not registered there."""

    name: str
    contract_version: int
    schema_id: int | None

    def __str__(self) -> str:
        state = "not registered" if self.schema_id is None else f"schema id {self.schema_id}"
        return f"{self.name}: contract version {self.contract_version}, {state}"


async def register(registry: SchemaRegistry, topics: Topics) -> list[Subject]:
    """Register every version of the contract under every subject, the oldest first. Doing it again changes nothing.

    Raises:
        ContractError: the registry refuses a version, as incompatible say; what came before it is registered.
        RegistryUnavailable: no answer; call again.
    """
    return [
        Subject(subject, schema.contract_version, await registry.register(subject, schema))
        for subject, schema in _wanted(topics)
    ]


async def check(registry: SchemaRegistry, topics: Topics) -> list[Subject]:
    """Look every version up under every subject, and register nothing.

    Raises:
        RegistryUnavailable: no answer; call again.
    """
    return [
        Subject(subject, schema.contract_version, await _known_id(registry, subject, schema))
        for subject, schema in _wanted(topics)
    ]


def _wanted(topics: Topics) -> Iterator[tuple[str, SchemaText]]:
    for topic in topics.all():
        if topic.subject is not None:
            for version in range(1, CONTRACT_VERSION + 1):
                yield topic.subject, schema_text(version)


async def _known_id(registry: SchemaRegistry, subject: str, schema: SchemaText) -> int | None:
    try:
        return await registry.id_of(subject, schema)
    except UnknownSchema:
        return None
