"""Avro schemas, and which of them can read what another wrote (Avro's schema resolution)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from streams.dev.registry.model import Imported, InvalidSchema, Schema

_WIDENINGS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema with its names resolved; `names` has every named type that it defines or imports."""

    canonical: str
    root: Any
    names: Mapping[str, Any]

    def unreadable(self, writer: "AvroSchema") -> list[str]:
        """Return where a reader's type cannot take a writer's, each with its path."""
        return _Resolution(self.names, writer.names).faults(self.root, writer.root, path="")


def parse(schema: Schema, imports: Mapping[str, Imported]) -> AvroSchema:
    """Read an Avro schema. Raises InvalidSchema."""
    names: dict[str, Any] = {}
    try:
        _add_imports(imports, names)
        document = json.loads(schema.text)
        root = parse_schema(document, named_schemas=names, _write_hint=False)
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise InvalidSchema(f"{type(error).__name__}: {error}") from error
    return AvroSchema(json.dumps(document, separators=(",", ":")), root, names)


def _add_imports(imports: Mapping[str, Imported], names: dict[str, Any]) -> None:
    for imported in imports.values():
        _add_imports(imported.imports, names)
        parse_schema(json.loads(imported.schema.text), named_schemas=names, _write_hint=False)


class _Resolution:
    """One comparison of a reader with a writer; recursive types are compared once."""

    def __init__(self, reader_names: Mapping[str, Any], writer_names: Mapping[str, Any]) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        self._compared: set[tuple[str, str]] = set()

    def faults(self, reader: Any, writer: Any, *, path: str) -> list[str]:
        reader, writer = _resolved(reader, self._reader_names), _resolved(writer, self._writer_names)
        if isinstance(writer, list):
            return [fault for branch in writer for fault in self.faults(reader, branch, path=path)]
        if isinstance(reader, list):
            if any(not self.faults(branch, writer, path=path) for branch in reader):
                return []
            return [f"{path or '/'}: no branch of the reader takes {_kind(writer)}"]
        if _kind(reader) != _kind(writer):
            if _kind(reader) in _WIDENINGS.get(_kind(writer), ()):
                return []
            return [f"{path or '/'}: {_kind(writer)} cannot be read as {_kind(reader)}"]
        return self._faults_within(_kind(reader), reader, writer, path)

    def _faults_within(self, kind: str, reader: Any, writer: Any, path: str) -> list[str]:
        match kind:
            case "array":
                return self.faults(reader["items"], writer["items"], path=f"{path}/items")
            case "map":
                return self.faults(reader["values"], writer["values"], path=f"{path}/values")
            case "record" | "error" | "enum" | "fixed" if not _same_name(reader, writer):
                return [f"{path or '/'}: {writer['name']} is not {reader['name']}"]
            case "enum":
                missing = set(writer["symbols"]) - set(reader["symbols"])
                return [f"{path or '/'}: no symbols {sorted(missing)}"] if missing and "default" not in reader else []
            case "fixed":
                return [f"{path or '/'}: another size"] if reader["size"] != writer["size"] else []
            case "record" | "error":
                return self._faults_of_record(reader, writer, path)
        return []

    def _faults_of_record(self, reader: Any, writer: Any, path: str) -> list[str]:
        pair = (reader["name"], writer["name"])
        if pair in self._compared:
            return []
        self._compared.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        faults: list[str] = []
        for field in reader["fields"]:
            where = f"{path}/{field['name']}"
            names = [field["name"], *field.get("aliases", [])]
            source = next((written[name] for name in names if name in written), None)
            if source is not None:
                faults += self.faults(field["type"], source["type"], path=where)
            elif "default" not in field:
                faults.append(f"{where}: not written, and without a default")
        return faults


def _resolved(schema: Any, names: Mapping[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _same_name(reader: Any, writer: Any) -> bool:
    accepted = {name.rsplit(".", 1)[-1] for name in [reader["name"], *reader.get("aliases", [])]}
    return writer["name"].rsplit(".", 1)[-1] in accepted
