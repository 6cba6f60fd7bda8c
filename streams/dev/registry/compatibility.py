"""Reads schemas of any format, and tells whether a new version may follow the earlier ones."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from streams.dev.registry import avro, protobuf
from streams.dev.registry.model import Compatibility, Imported, InvalidSchema, Parsed, Schema, SchemaType


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A JSON Schema; its changes are not judged."""

    canonical: str

    def unreadable(self, writer: Self) -> list[str]:
        """Return nothing: every change passes."""
        return []


def parse(schema: Schema, imports: Mapping[str, Imported]) -> Parsed:
    """Read a schema, given what it imports. Raises InvalidSchema."""
    match schema.type:
        case SchemaType.PROTOBUF:
            return protobuf.parse(schema, imports)
        case SchemaType.AVRO:
            return avro.parse(schema, imports)
        case SchemaType.JSON:
            try:
                return JsonSchema(json.dumps(json.loads(schema.text), separators=(",", ":")))
            except ValueError as error:
                raise InvalidSchema(str(error)) from error


def incompatibilities(new: Parsed, earlier: Sequence[Parsed], level: Compatibility) -> list[str]:
    """Return why `new` may not follow `earlier` (oldest first) at this level; empty when it may."""
    base, _, transitive = level.partition("_")
    considered = earlier if transitive else earlier[-1:]
    faults: list[str] = []
    for old in considered:
        if level is Compatibility.NONE:
            continue
        if type(old) is not type(new):
            faults.append("the type of the schema changed")
            continue
        if base in ("BACKWARD", "FULL"):
            faults += [f"the new schema cannot read old data: {fault}" for fault in new.unreadable(old)]
        if base in ("FORWARD", "FULL"):
            faults += [f"the old schema cannot read new data: {fault}" for fault in old.unreadable(new)]
    return faults
