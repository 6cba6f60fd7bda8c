"""Protobuf schemas: the text of a .proto file, or a file descriptor in base64 as clients register it."""

import base64
import binascii
import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from streams.dev.protoc import CompileFailed, compile_protos
from streams.dev.registry.model import Imported, InvalidSchema, Schema

_ROOT: Final = "default"
_TYPE: Final = FieldDescriptorProto
# Types within one set can be read as each other without loss of the field.
_INTERCHANGEABLE: Final = (
    {_TYPE.TYPE_INT32, _TYPE.TYPE_INT64, _TYPE.TYPE_UINT32, _TYPE.TYPE_UINT64, _TYPE.TYPE_BOOL, _TYPE.TYPE_ENUM},
    {_TYPE.TYPE_SINT32, _TYPE.TYPE_SINT64},
    {_TYPE.TYPE_FIXED32, _TYPE.TYPE_SFIXED32},
    {_TYPE.TYPE_FIXED64, _TYPE.TYPE_SFIXED64},
    {_TYPE.TYPE_STRING, _TYPE.TYPE_BYTES},
)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """One file, linked against what it imports."""

    file: FileDescriptorProto

    @property
    def canonical(self) -> str:
        """The file without its name and comments: the text and the descriptor of one file have the same."""
        return self.serialized

    @property
    def serialized(self) -> str:
        """The file descriptor in base64, as deserializers ask for it."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def unreadable(self, writer: "ProtobufSchema") -> list[str]:
        """Return the messages that are gone and the fields whose type changed, and a changed package."""
        package = [] if self.file.package == writer.file.package else [f"package {writer.file.package} is gone"]
        return package + list(_changes(self.file.message_type, writer.file.message_type, prefix=""))


def parse(schema: Schema, imports: Mapping[str, Imported]) -> ProtobufSchema:
    """Read and link a Protobuf schema. Raises InvalidSchema."""
    files = _files(imports)
    file = _own_file(schema, files)
    _link(file, files.values())
    _normalize(file)
    return ProtobufSchema(file)


def _own_file(schema: Schema, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    try:
        serialized = base64.b64decode(schema.text, validate=True)
    except (binascii.Error, ValueError):
        return _compile(schema.text, imported.values())
    try:
        return FileDescriptorProto.FromString(serialized)
    except DecodeError:
        raise InvalidSchema("neither the text of a .proto file nor a file descriptor") from None


def _files(imports: Mapping[str, Imported]) -> dict[str, FileDescriptorProto]:
    """Return every imported file under the name it is imported by, each after those it needs."""
    files: dict[str, FileDescriptorProto] = {}
    for name, imported in imports.items():
        files |= _files(imported.imports)
        file = _own_file(imported.schema, files)
        file.name = name
        files[name] = file
    return files


def _compile(text: str, imported: Iterable[FileDescriptorProto]) -> FileDescriptorProto:
    try:
        [file] = compile_protos({f"{_ROOT}.proto": text}, imported)
    except CompileFailed as error:
        raise InvalidSchema(str(error)) from error
    return file


def _link(file: FileDescriptorProto, imported: Iterable[FileDescriptorProto]) -> None:
    pool = descriptor_pool.DescriptorPool()
    root = FileDescriptorProto()
    root.CopyFrom(file)
    root.name = _ROOT
    try:
        for dependency in [*imported, root]:
            for name in dependency.dependency:
                _add_well_known(pool, name)
            pool.Add(dependency)
    except TypeError as error:
        raise InvalidSchema(str(error)) from error


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    if not name.startswith("google/protobuf/"):
        return
    try:
        # Whatever was imported stands in the default pool; nothing else of this process may have needed it.
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise InvalidSchema(f"{name} is not known here") from None
    known = descriptor_pool.Default().FindFileByName(name)
    for dependency in known.dependencies:
        _add_well_known(pool, dependency.name)
    pool.AddSerializedFile(known.serialized_pb)


def _normalize(file: FileDescriptorProto) -> None:
    file.ClearField("name")
    file.ClearField("source_code_info")
    for field in [*file.extension, *(field for message in _messages(file.message_type) for field in message.field)]:
        head, *rest = field.name.split("_")
        if field.json_name == head + "".join(part[:1].upper() + part[1:] for part in rest):
            field.ClearField("json_name")


def _messages(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


def _changes(reader: Iterable[DescriptorProto], writer: Iterable[DescriptorProto], *, prefix: str) -> Iterator[str]:
    known = {message.name: message for message in reader}
    for written in writer:
        path = f"{prefix}{written.name}"
        if (read := known.get(written.name)) is None:
            yield f"message {path} is gone"
            continue
        fields = {field.number: field for field in read.field}
        for field in written.field:
            if field.number in fields and not _same_kind(fields[field.number], field):
                yield f"field {field.number} ({field.name}) of {path} has another type"
        yield from _changes(read.nested_type, written.nested_type, prefix=f"{path}.")


def _same_kind(one: FieldDescriptorProto, other: FieldDescriptorProto) -> bool:
    if one.type == other.type:
        return one.type not in (_TYPE.TYPE_MESSAGE, _TYPE.TYPE_GROUP) or one.type_name == other.type_name
    return any(one.type in kinds and other.type in kinds for kinds in _INTERCHANGEABLE)
