"""Messages to JSON: lowerCamelCase, fields without presence always there, 64-bit integers as text, map keys sorted.

What has no JSON form that can be kept and read back is refused with the path to it: U+0000, NaN inside a Struct, a
Timestamp out of range, an `Any` of a type that the workflow does not know, an extension. Unknown fields are dropped.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from streams.workflow.json_values import shown
from streams.workflow.protojson_scalars import scalar_writer, write_text
from streams.workflow.protojson_types import (
    ANY,
    AS_TEXT,
    FIELD_MASK,
    LIST_VALUE,
    NOT_AN_OBJECT,
    STRUCT,
    VALUE,
    WRAPPERS,
    JsonRefused,
    check_depth,
    is_map,
    map_types,
    message_type_of,
)
from streams.workflow.struct_values import plain_list, plain_struct, plain_value

Write = Callable[[Any, int], object]
"""The JSON value of a message; the number is the nesting level of that value."""

_MASK_PATH: Final = re.compile(r"[a-z0-9_.]+")

_Emit = Callable[[Any, dict[str, object], int], None]
"""Puts one field of a message into its JSON object; the number is the nesting level of the field's value."""


class MessageWriter:
    """Writes messages of one pool as JSON. Each message type is compiled once into a table of functions."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._writers: dict[str, Write] = {}

    def write(self, message: Any, depth: int = 1) -> object:
        """The message as a plain JSON value.

        Raises:
            JsonRefused: the message holds something without a JSON form.
        """
        return self.writer_of(message.DESCRIPTOR)(message, depth)

    def writer_of(self, descriptor: Descriptor) -> Write:
        writer = self._writers.get(descriptor.full_name)
        if writer is None:
            writer = self._writers[descriptor.full_name] = self._compile(descriptor)
        return writer

    def _compile(self, descriptor: Descriptor) -> Write:
        name = descriptor.full_name
        if name in AS_TEXT:
            return _text_form
        if name in WRAPPERS:
            write_scalar = scalar_writer(descriptor.fields_by_name["value"])
            return lambda message, _: write_scalar(message.value)
        if name == ANY:
            return self._write_any
        special: dict[str, Write] = {STRUCT: plain_struct, LIST_VALUE: plain_list, VALUE: plain_value}
        return special.get(name) or self._fields_writer(descriptor)

    def _fields_writer(self, descriptor: Descriptor) -> Write:
        fields = [(field.json_name, self._emitter(field)) for field in descriptor.fields]
        extendable = descriptor.is_extendable

        def write(message: Any, depth: int) -> dict[str, object]:
            check_depth(depth)
            members: dict[str, object] = {}
            if extendable:
                _refuse_extensions(message)
            for name, emit in fields:
                try:
                    emit(message, members, depth + 1)
                except JsonRefused as refused:
                    raise refused.inside(name) from None
            return members

        return write

    def _emitter(self, field: FieldDescriptor) -> _Emit:
        if is_map(field):
            return self._map_emitter(field)
        write = self._element_writer(field)
        name, json_name = field.name, field.json_name
        if field.is_repeated:
            return _list_emitter(name, json_name, write)
        if not field.has_presence:

            def emit_always(message: Any, members: dict[str, object], depth: int) -> None:
                members[json_name] = write(getattr(message, name), depth)

            return emit_always

        def emit_when_set(message: Any, members: dict[str, object], depth: int) -> None:
            if message.HasField(name):
                members[json_name] = write(getattr(message, name), depth)

        return emit_when_set

    def _map_emitter(self, field: FieldDescriptor) -> _Emit:
        name, json_name, (key_field, value_field) = field.name, field.json_name, map_types(field)
        write_key = _MAP_KEYS.get(key_field.cpp_type, str)
        write = self._element_writer(value_field)

        def emit(message: Any, members: dict[str, object], depth: int) -> None:
            entries = getattr(message, name)
            if entries:
                check_depth(depth)
            written: dict[str, object] = {}
            for key in sorted(entries, key=_orderable):
                try:
                    text = write_key(key)
                    written[text] = write(entries[key], depth + 1)
                except JsonRefused as refused:
                    raise refused.inside(str(key)) from None
            members[json_name] = written

        return emit

    def _element_writer(self, field: FieldDescriptor) -> Write:
        if field.message_type is None:
            write_scalar = scalar_writer(field)
            return lambda value, _: write_scalar(value)
        descriptor = message_type_of(field)
        return lambda value, depth: self.writer_of(descriptor)(value, depth)

    def _write_any(self, message: Any, depth: int) -> dict[str, object]:
        check_depth(depth)
        url = message.type_url
        if not url and not message.value:
            return {}
        try:
            descriptor = self._pool.FindMessageTypeByName(url.rpartition("/")[2])
        except KeyError:
            raise JsonRefused(f"holds the type {shown(url)}, which this workflow does not know") from None
        try:
            content = message_factory.GetMessageClass(descriptor).FromString(message.value)
        except DecodeError as error:
            raise JsonRefused(f"does not hold a {descriptor.full_name}: {error}") from None
        written = self.write(content, depth + 1)
        if descriptor.full_name in NOT_AN_OBJECT or descriptor.full_name in (STRUCT, ANY):
            return {"@type": write_text(url), "value": written}
        assert isinstance(written, dict)
        return {"@type": write_text(url), **written}


def _list_emitter(name: str, json_name: str, write: Write) -> _Emit:
    def emit(message: Any, members: dict[str, object], depth: int) -> None:
        elements = getattr(message, name)
        if elements:
            check_depth(depth)
        items: list[object] = []
        members[json_name] = items
        for index, item in enumerate(elements):
            try:
                items.append(write(item, depth + 1))
            except JsonRefused as refused:
                raise refused.inside(index) from None

    return emit


_MAP_KEYS: dict[int, Callable[[Any], str]] = {
    FieldDescriptor.CPPTYPE_BOOL: lambda key: "true" if key else "false",
    FieldDescriptor.CPPTYPE_STRING: write_text,
}


def _orderable(key: Any) -> Any:
    return "" if isinstance(key, bytes) else key  # bytes are text that is not UTF-8, refused when written


def _refuse_extensions(message: Any) -> None:
    for field, _ in message.ListFields():
        if field.is_extension:
            raise JsonRefused("is an extension, which cannot be kept").inside(f"[{field.full_name}]")


def _text_form(message: Any, depth: int) -> str:
    del depth
    if message.DESCRIPTOR.full_name == FIELD_MASK and not all(_MASK_PATH.fullmatch(path) for path in message.paths):
        raise JsonRefused("has a path without a text form")
    try:
        text: str = message.ToJsonString()
    except (ValueError, OverflowError) as error:
        raise JsonRefused(f"has no text form: {error}") from None
    return write_text(text)
