"""Descriptor sets as people make them, brought into the one form that is pinned.

Files may come in any order, the same file twice (identically), and without the well-known files. What comes out has
every file once, imports before their importers, the well-known files in this library's own edition. The file of options
for rules counts as well known where it is missing; an edition that comes along is kept as it is.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from schemas.errors import InputInvalid
from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_DESCRIPTOR_SET_BYTES, MAX_SCHEMA_FILES
from streams.workflow.validation_file import VALIDATION_FILE, validation_file

WELL_KNOWN_BYTES: Final[Mapping[str, bytes]] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}

# Fields are read and written as Python attributes, so they may not hide what every message has.
_MESSAGE_ATTRIBUTES: Final = frozenset(dir(empty_pb2.Empty()))


def _private_classes() -> tuple[type[Any], type[Any]]:
    """FileDescriptorSet and FileDescriptorProto from a pool of their own.

    The process's own classes would read custom options differently once a module that declares them is imported, and
    one set must have one pinned form in every process.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(WELL_KNOWN_BYTES["google/protobuf/descriptor.proto"])
    file_set = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorSet"))
    file = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    return file_set, file


_FileSet, _File = _private_classes()
_WELL_KNOWN: Final[Mapping[str, Any]] = {name: _File.FromString(data) for name, data in WELL_KNOWN_BYTES.items()}


def ordered_files(descriptor_set: bytes) -> dict[str, Any]:
    """The files of a serialized FileDescriptorSet by name, imports first, well-known ones supplied where missing.

    Equal sets give equal answers, whatever order their files came in.

    Raises:
        InputInvalid: the bytes are no such set, exceed a limit, lack an import, import in a circle, hold two editions
            of one file, or alter a well-known file.
    """
    files = _without_repeats(_parsed(descriptor_set))
    for name in sorted(files.keys() & _WELL_KNOWN.keys()):
        _check_unaltered(files[name], _WELL_KNOWN[name])
        files[name] = _WELL_KNOWN[name]
    for file in files.values():
        _check_field_names(file.name, file.message_type)
    return _imports_first(files)


def parsed_files(pinned: bytes) -> list[Any]:
    """The files of a set that `serialized` made. Options that Protobuf does not know by itself are unknown fields."""
    return list(_FileSet.FromString(pinned).file)


def serialized(files: Iterable[Any]) -> bytes:
    """The files as one FileDescriptorSet, byte for byte the same for the same files."""
    data: bytes = _FileSet(file=files).SerializeToString(deterministic=True)
    return data


def _parsed(descriptor_set: bytes) -> list[Any]:
    if len(descriptor_set) > MAX_DESCRIPTOR_SET_BYTES:
        size = f"{len(descriptor_set):,} bytes"
        raise InputInvalid(f"the descriptor set has {size}, over the limit of {MAX_DESCRIPTOR_SET_BYTES:,}")
    try:
        files = list(_FileSet.FromString(descriptor_set).file)
    except DecodeError:
        hint = "; it looks gzip-compressed: send it unpacked" if descriptor_set.startswith(b"\x1f\x8b") else ""
        raise InputInvalid(f"the bytes are not a serialized FileDescriptorSet{hint}") from None
    if not files:
        raise InputInvalid("the descriptor set has no files")
    if len(files) > MAX_SCHEMA_FILES:
        raise InputInvalid(f"the descriptor set has {len(files):,} files, over the limit of {MAX_SCHEMA_FILES:,}")
    for file in files:
        # Descriptors are proto2 messages: text that is not UTF-8 comes out of them as bytes.
        if not all(isinstance(name, str) and name for name in (file.name, *file.dependency)):
            raise InputInvalid("the descriptor set has a file without a name, or with one that is not UTF-8")
    return files


def _without_repeats(files: list[Any]) -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    for file in files:
        file.ClearField("source_code_info")  # comments and positions; no meaning, and most of the bytes
        known = by_name.setdefault(file.name, file)
        if known is not file and known != file:
            raise InputInvalid(f"the descriptor set has two different editions of {shown(file.name)}")
    return by_name


def _check_unaltered(theirs: Any, ours: Any) -> None:
    """The shape of a well-known file must be the one that reading and writing JSON relies on.

    descriptor.proto grows with every release of the compiler, and only options are read with it: there, what both
    editions have must agree.
    """
    their_shape, our_shape = _shape(theirs), _shape(ours)
    if ours.name == "google/protobuf/descriptor.proto":
        common = their_shape.keys() & our_shape.keys()
        same = all(their_shape[path] == our_shape[path] for path in common)
    else:
        same = their_shape == our_shape
    if not same:
        raise InputInvalid(
            f"the descriptor set has an altered {ours.name}: leave that file out, or use the one Protobuf ships"
        )


def _shape(file: Any) -> dict[str, tuple[object, ...]]:
    """Every field by its full path, with what decides how its bytes and its JSON look."""
    shape: dict[str, tuple[object, ...]] = {"": (file.package,)}
    waiting = [(message, message.name) for message in file.message_type]
    while waiting:
        message, path = waiting.pop()
        shape[path] = ()
        for field in message.field:
            shape[f"{path}.{field.name}"] = (field.number, field.type, field.label, field.type_name)
        waiting.extend((nested, f"{path}.{nested.name}") for nested in message.nested_type)
    return shape


def _check_field_names(file_name: str, messages: Iterable[Any]) -> None:
    waiting = list(messages)
    while waiting:
        message = waiting.pop()
        for field in message.field:
            if field.name in _MESSAGE_ATTRIBUTES:
                raise InputInvalid(
                    f"{shown(file_name)}: the field {shown(field.name)} of {shown(message.name)} has a name that every "
                    "message reserves: rename it (numbers, not names, are what goes over the wire)"
                )
        waiting.extend(message.nested_type)


def _imports_first(files: Mapping[str, Any]) -> dict[str, Any]:
    """All files and the well-known ones they import, each after its imports, in an order that the names decide."""
    needed = dict(files)
    waiting = sorted(files)
    for name in waiting:  # grows while it is walked
        for dependency in needed[name].dependency:
            if dependency not in needed:
                needed[dependency] = _supplied(dependency, importer=name)
                waiting.append(dependency)
    try:
        names = TopologicalSorter({name: needed[name].dependency for name in sorted(needed)}).static_order()
        return {name: needed[name] for name in names}
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise InputInvalid(f"files import each other in a circle: {circle}") from None


def _supplied(name: str, importer: str) -> Any:
    file = _File.FromString(validation_file()) if name == VALIDATION_FILE else _WELL_KNOWN.get(name)
    if file is None:
        raise InputInvalid(f"{shown(importer)} imports {shown(name)}, which is not in the descriptor set")
    return file
