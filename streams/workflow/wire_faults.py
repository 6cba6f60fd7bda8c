"""Which part of a message's bytes cannot be read: Protobuf's own parser says that one cannot, and not which."""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from streams.workflow.json_values import pointer_to
from streams.workflow.limits import MAX_DEPTH

_VARINT, _FIXED64, _LENGTH, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES: Final = 10


def fault_in_wire(descriptor: Descriptor, data: bytes) -> str | None:
    """The first part at fault by its JSON pointer, and what is wrong with it; None when nothing of that is found."""
    try:
        _check(descriptor, memoryview(data), ())
    except _Fault as fault:
        return str(fault)
    return None


class _Fault(Exception):
    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"{pointer_to(path)} {reason}" if path else f"the message {reason}")


def _check(descriptor: Descriptor, data: memoryview, path: tuple[str, ...]) -> None:
    for number, content in _contents(descriptor, data, path):
        field = descriptor.fields_by_number.get(number)
        if field is None:
            continue
        inner = (*path, field.json_name)
        if field.type == FieldDescriptor.TYPE_STRING:
            try:
                str(content, "utf-8")
            except UnicodeDecodeError:
                raise _Fault(inner, "is not UTF-8") from None
        elif field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
            if len(inner) > MAX_DEPTH:
                raise _Fault(path, f"is nested deeper than {MAX_DEPTH} levels")
            _check(field.message_type, content, inner)


def _contents(descriptor: Descriptor, data: memoryview, path: tuple[str, ...]) -> Iterator[tuple[int, memoryview]]:
    """Number and content of every part with a length; the others are passed over, with all that is in groups."""
    at = groups = 0
    while at < len(data):
        tag, at = _varint(data, at, path)
        number, wire_type = tag >> 3, tag & 7
        field = descriptor.fields_by_number.get(number)
        place = (*path, field.json_name) if field is not None else path
        if wire_type == _VARINT:
            _, at = _varint(data, at, place)
        elif wire_type in (_LENGTH, *_FIXED):
            size = _FIXED.get(wire_type)
            if size is None:
                size, at = _varint(data, at, place)
            if size > len(data) - at:
                raise _Fault(place, "is cut short")
            if wire_type == _LENGTH and not groups:
                yield number, data[at : at + size]
            at += size
        elif wire_type in (_START_GROUP, _END_GROUP):
            groups += 1 if wire_type == _START_GROUP else -1
        else:
            raise _Fault(place, f"has the wire type {wire_type}, which there is not")


def _varint(data: memoryview, at: int, path: tuple[str, ...]) -> tuple[int, int]:
    value = 0
    for count in range(_VARINT_BYTES):
        if at + count >= len(data):
            raise _Fault(path, "is cut short")
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise _Fault(path, "has a number that does not end")
