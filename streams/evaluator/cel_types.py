"""The types by which expressions are checked."""

from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

_ENUM: Final = FieldDescriptorProto.TYPE_ENUM
_INTEGER: Final = FieldDescriptorProto.TYPE_INT32
_REPEATED: Final = FieldDescriptorProto.LABEL_REPEATED


def without_lists_of_enums(pool: DescriptorPool, file_names: Sequence[str]) -> DescriptorPool:
    """*pool* with lists of integers where its files have lists of enums; *pool* itself when there are none.

    In CEL an enum is an integer. But in a macro over a list of enums, or over a map with enums for values, the engine
    knows no type of an element, and so none of what the macro gives: nothing of it would be checked.
    """
    files = [FileDescriptorProto() for _ in file_names]
    for name, file in zip(file_names, files, strict=True):
        pool.FindFileByName(name).CopyToProto(file)
    found = [field for file in files for field in _lists_of_enums(file.message_type)]
    if not found:
        return pool
    for field in found:
        field.type = _INTEGER
        field.ClearField("type_name")
    changed = DescriptorPool()
    for file in files:
        changed.AddSerializedFile(file.SerializeToString(deterministic=True))
    return changed


def _lists_of_enums(messages: Sequence[DescriptorProto]) -> Iterator[FieldDescriptorProto]:
    waiting = list(messages)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        for field in message.field:
            if field.type == _ENUM and (field.label == _REPEATED or message.options.map_entry):
                yield field
