"""The schema of a subject in a Schema Registry, with all that it refers to, as .proto sources."""

import re
from dataclasses import dataclass
from typing import Final

from schemas.errors import ContractError, InputInvalid
from streams.kafka.registry import PROTOBUF, SchemaRegistry
from streams.workflow.limits import MAX_DOCUMENT_BYTES

_MOST_FILES: Final = 1_000
_NO_PATH: Final = re.compile(r"[^A-Za-z0-9_.+-]")


@dataclass(frozen=True, slots=True)
class SubjectSources:
    """The texts by path, the root's among them, and the version that they are."""

    sources: dict[str, str]
    root: str
    version: int


async def subject_sources(registry: SchemaRegistry, subject: str, version: int | None = None) -> SubjectSources:
    """The sources of one version of *subject*, by default the newest now. References keep the versions they name.

    Raises:
        UnknownSchema: the registry has no such subject or version, or lacks one that is referred to.
        ContractError: code `not-protobuf`: the schema is of another format.
        InputInvalid: the sources are over a limit.
        RegistryUnavailable: no answer; ask again.
    """
    root = f"{_NO_PATH.sub('_', subject.lstrip('.-+') or 'subject')}.proto"
    newest = await registry.version(subject, version)
    found: dict[str, str] = {}
    waiting = [(root, newest)]
    for path, registered in waiting:  # grows while it is walked
        schema = registered.schema
        if schema.schema_type != PROTOBUF:
            text = f"the schema of {registered.subject} is {schema.schema_type or 'AVRO'}, not {PROTOBUF}"
            raise ContractError(text, code="not-protobuf")
        found[path] = schema.schema_str or ""
        if len(found) > _MOST_FILES or sum(map(len, found.values())) > MAX_DOCUMENT_BYTES:
            limit = f"{MAX_DOCUMENT_BYTES:,} bytes or {_MOST_FILES:,} files"
            raise InputInvalid(f"the schema of {subject} is over the limit of {limit}")
        for reference in schema.references or ():
            if reference.name is not None and reference.subject is not None and reference.name not in found:
                found[reference.name] = ""
                waiting.append((reference.name, await registry.version(reference.subject, reference.version)))
    return SubjectSources(found, root, newest.version or 0)
