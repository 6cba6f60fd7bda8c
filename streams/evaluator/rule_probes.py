"""Finding out which field's rule is broken: the engine says of a type only that one is, and not always which.

A probe is a copy of the type in which one field alone has its rules, or the type itself.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

from streams.evaluator.operations import LoadedSchema

_FILE: Final = "workflow_runs_probes.proto"
_NAME: Final = "WorkflowRunsProbe"


class Probes:
    """Probes for one type of a schema, in a file of their own that is added to the schema's pool."""

    def __init__(self, schema: LoadedSchema, full_name: str) -> None:
        self._schema = schema
        self._type = schema.pool.FindMessageTypeByName(full_name)

    def messages(self) -> Iterator[tuple[str, Message]]:
        """An empty message for each place that can have rules, with its name: a field, a oneof, empty for the type."""
        whole = DescriptorProto()
        self._type.CopyToProto(whole)
        places = _ruled(whole)
        digest = self._type.full_name.replace(".", "_")
        file = self._file(f"{digest}/{_FILE}")
        for number, place in enumerate(places):
            probe = file.message_type.add(name=f"{_NAME}_{digest}_{number}")
            self._copy(whole, probe)
            _keep_only(probe, place)
        self._schema.pool.AddSerializedFile(file.SerializeToString(deterministic=True))
        for place, probe in zip(places, file.message_type, strict=True):
            yield place, self._schema.new(f"{file.package}.{probe.name}".removeprefix("."))

    def _file(self, name: str) -> FileDescriptorProto:
        """A file that sees what the type's own file sees, and reads it in the same way."""
        source = FileDescriptorProto()
        self._type.file.CopyToProto(source)
        file = FileDescriptorProto(name=name, package=source.package, syntax=source.syntax)
        file.dependency.extend([source.name, *source.dependency])
        if source.HasField("edition"):
            file.edition = source.edition
        if source.HasField("options"):
            file.options.CopyFrom(source.options)
        return file

    def _copy(self, whole: DescriptorProto, probe: DescriptorProto) -> None:
        """Copy the type without what is nested in it, save for the entries of its maps: those must be its own."""
        name = probe.name
        probe.CopyFrom(whole)
        probe.name = name
        entries = [nested for nested in whole.nested_type if nested.options.map_entry]
        for nested in (probe.nested_type, probe.enum_type, probe.extension):
            del nested[:]
        probe.nested_type.extend(entries)
        package = self._type.file.package
        theirs, ours = f".{self._type.full_name}.", f".{package}.{name}." if package else f".{name}."
        renamed = {theirs + entry.name: ours + entry.name for entry in entries}
        for field in probe.field:
            if field.type_name in renamed:
                field.type_name = renamed[field.type_name]


def _ruled(message: DescriptorProto) -> list[str]:
    parts: list[tuple[str, Any]] = [
        ("", message),
        *((field.name, field) for field in message.field),
        *((oneof.name, oneof) for oneof in message.oneof_decl),
    ]
    return [name for name, part in parts if part.HasField("options")]


def _keep_only(probe: DescriptorProto, place: str) -> None:
    if place:
        probe.ClearField("options")
    parts: list[Any] = [*probe.field, *probe.oneof_decl]
    for part in parts:
        if part.name != place:
            part.ClearField("options")
