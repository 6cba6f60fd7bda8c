"""Messages from JSON, strictly: unknown fields and lossy values are refused with the path to them.

Names may be camelCase or snake_case. Each message type is compiled once into a table of functions, so that reading
walks no descriptors.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from streams.workflow.json_values import shown
from streams.workflow.protojson_scalars import map_key_reader, read_text, scalar_reader
from streams.workflow.protojson_types import (
    ANY,
    DURATION,
    FIELD_MASK,
    LIST_VALUE,
    NOT_AN_OBJECT,
    NULL_VALUE,
    STRUCT,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    JsonRefused,
    check_depth,
    is_map,
    map_types,
    message_type_of,
)
from streams.workflow.struct_values import fill_list, fill_struct, fill_value

Read = Callable[[Any, object, int], None]
"""Reads a JSON value into an empty message; the number is the nesting level of the value."""

_Store = Callable[[Any, object, int], None]
"""Reads a JSON value into one field of a message; the number is the nesting level of the value."""

_TEXT_FORMS: Final = {
    TIMESTAMP: re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII),
    DURATION: re.compile(r"-?\d{1,12}(\.\d{1,9})?s", re.ASCII),
    FIELD_MASK: re.compile(r"([A-Za-z0-9.]+(,[A-Za-z0-9.]+)*)?"),
}


class MessageReader:
    """Reads JSON into messages of one pool.

    With *lenient*, members that the message does not have are passed over: for a Struct that becomes a message.
    """

    def __init__(self, pool: DescriptorPool, *, lenient: bool = False) -> None:
        self._pool = pool
        self._lenient = lenient
        self._readers: dict[str, Read] = {}

    def read(self, descriptor: Descriptor, value: object, depth: int = 1) -> Message:
        """A new message of that type from a JSON value.

        Raises:
            JsonRefused: the value has no place in such a message.
        """
        message = message_factory.GetMessageClass(descriptor)()
        self.reader_of(descriptor)(message, value, depth)
        return message

    def reader_of(self, descriptor: Descriptor) -> Read:
        reader = self._readers.get(descriptor.full_name)
        if reader is None:
            reader = self._readers[descriptor.full_name] = self._compile(descriptor)
        return reader

    def _compile(self, descriptor: Descriptor) -> Read:
        name = descriptor.full_name
        if name in _TEXT_FORMS:
            return _text_form_reader(name)
        if name in WRAPPERS:
            read_scalar = scalar_reader(descriptor.fields_by_name["value"])
            return lambda message, value, _: setattr(message, "value", read_scalar(value))
        if name == ANY:
            return self._read_any
        return {STRUCT: fill_struct, LIST_VALUE: fill_list, VALUE: fill_value}.get(name) or self._fields_reader(
            descriptor
        )

    def _fields_reader(self, descriptor: Descriptor) -> Read:
        fields = {field.name: self._field(field) for field in descriptor.fields}
        # Where one field's JSON name is another's own name, the JSON name has precedence.
        fields |= {field.json_name: fields[field.name] for field in descriptor.fields}
        lenient, full_name = self._lenient, descriptor.full_name

        def read(message: Any, value: object, depth: int) -> None:
            if not isinstance(value, dict):
                raise JsonRefused(f"takes an object ({full_name}), not {shown(value)}")
            check_depth(depth)
            set_before: dict[str, object] = {}
            for name, member in value.items():
                field = fields.get(name)
                if field is None:
                    if lenient:
                        continue
                    raise JsonRefused(f"is no field of {full_name}").inside(str(name))
                if member is None and not field.takes_null:
                    continue
                if field.slot in set_before:
                    raise JsonRefused(f"and {shown(set_before[field.slot])} exclude each other").inside(name)
                set_before[field.slot] = name
                try:
                    field.store(message, member, depth + 1)
                except JsonRefused as refused:
                    raise refused.inside(name) from None

        return read

    def _field(self, field: FieldDescriptor) -> "_Field":
        # Two spellings of one field, or two members of one oneof, share a slot.
        slot = field.containing_oneof.full_name if field.containing_oneof else field.full_name
        if is_map(field):
            return _Field(slot, self._map_store(field))
        if field.message_type is not None:
            takes_null = field.message_type.full_name == VALUE and not field.is_repeated
            store = self._messages_store(field) if field.is_repeated else self._message_store(field)
            return _Field(slot, store, takes_null)
        takes_null = field.enum_type is not None and field.enum_type.full_name == NULL_VALUE and not field.is_repeated
        return _Field(slot, _scalars_store(field) if field.is_repeated else _scalar_store(field), takes_null)

    def _message_store(self, field: FieldDescriptor) -> _Store:
        name, descriptor = field.name, message_type_of(field)

        def store(message: Any, value: object, depth: int) -> None:
            part = getattr(message, name)
            part.SetInParent()
            self.reader_of(descriptor)(part, value, depth)

        return store

    def _messages_store(self, field: FieldDescriptor) -> _Store:
        name, descriptor = field.name, message_type_of(field)
        null_is_a_value = descriptor.full_name == VALUE

        def store(message: Any, value: object, depth: int) -> None:
            read, parts = self.reader_of(descriptor), getattr(message, name)
            for index, item in enumerate(_array(value, depth)):
                try:
                    if item is None and not null_is_a_value:
                        raise JsonRefused("is null, which no element may be")
                    read(parts.add(), item, depth + 1)
                except JsonRefused as refused:
                    raise refused.inside(index) from None

        return store

    def _map_store(self, field: FieldDescriptor) -> _Store:
        name, (key_field, value_field) = field.name, map_types(field)
        read_key = map_key_reader(key_field)
        read_value = None if value_field.message_type is not None else scalar_reader(value_field)

        def store(message: Any, value: object, depth: int) -> None:
            if not isinstance(value, dict):
                raise JsonRefused(f"takes an object (a map), not {shown(value)}")
            if value:
                check_depth(depth)
            entries = getattr(message, name)
            for key, member in value.items():
                try:
                    if read_value is not None:
                        entries[read_key(key)] = read_value(member)
                    else:
                        self._read_map_message(value_field, entries[read_key(key)], member, depth + 1)
                except JsonRefused as refused:
                    raise refused.inside(str(key)) from None

        return store

    def _read_map_message(self, field: FieldDescriptor, entry: Any, member: object, depth: int) -> None:
        descriptor = message_type_of(field)
        if member is None and descriptor.full_name != VALUE:
            raise JsonRefused("is null, which no value of a map may be")
        self.reader_of(descriptor)(entry, member, depth)

    def _read_any(self, message: Any, value: object, depth: int) -> None:
        if not isinstance(value, dict):
            raise JsonRefused(f"takes an object with @type, not {shown(value)}")
        check_depth(depth)
        if not value:
            return
        url = value.get("@type")
        if not isinstance(url, str) or "/" not in url:
            raise JsonRefused("takes an object whose @type is type.googleapis.com/ and a full message name")
        descriptor = self._content_type(url)
        content: object = {name: member for name, member in value.items() if name != "@type"}
        if descriptor.full_name in NOT_AN_OBJECT or descriptor.full_name in (STRUCT, ANY):
            content = self._wrapped_content(value)
        message.value = self.read(descriptor, content, depth + 1).SerializePartialToString(deterministic=True)
        message.type_url = url

    def _content_type(self, url: str) -> Descriptor:
        try:
            return self._pool.FindMessageTypeByName(read_text(url).rpartition("/")[2])
        except KeyError:
            refused = JsonRefused(f"names the type {shown(url)}, which this workflow does not know")
            raise refused.inside("@type") from None

    @staticmethod
    def _wrapped_content(value: dict[str, object]) -> object:
        if value.keys() != {"@type", "value"}:
            raise JsonRefused("takes, for this @type, exactly one more member: value")
        return value["value"]


class _Field:
    __slots__ = ("slot", "store", "takes_null")

    def __init__(self, slot: str, store: _Store, takes_null: bool = False) -> None:
        self.slot = slot
        self.store = store
        self.takes_null = takes_null


def _scalar_store(field: FieldDescriptor) -> _Store:
    name, read = field.name, scalar_reader(field)
    return lambda message, value, _: setattr(message, name, read(value))


def _scalars_store(field: FieldDescriptor) -> _Store:
    name, read = field.name, scalar_reader(field)

    def store(message: Any, value: object, depth: int) -> None:
        items = []
        for index, item in enumerate(_array(value, depth)):
            try:
                items.append(read(item))
            except JsonRefused as refused:
                raise refused.inside(index) from None
        getattr(message, name).extend(items)

    return store


def _array(value: object, depth: int) -> list[object]:
    if not isinstance(value, list):
        raise JsonRefused(f"takes an array, not {shown(value)}")
    if value:
        check_depth(depth)
    return value


def _text_form_reader(full_name: str) -> Read:
    form = _TEXT_FORMS[full_name]

    def read(message: Any, value: object, depth: int) -> None:
        del depth
        if not isinstance(value, str) or not form.fullmatch(value):
            raise JsonRefused(f"takes the text form of {full_name}, not {shown(value)}")
        try:
            message.FromJsonString(value)
        except (ValueError, OverflowError):
            raise JsonRefused(f"takes the text form of {full_name}, not {shown(value)}") from None

    return read
