"""The right side of a mapping rule: a path compiled into a function that reads it from a message.

A read gives None for *no value*: an unset message on the way, an unset field, a scalar without presence at zero, a
missing key at the end of a Struct path, a JSON null. The rule is then skipped. Lists and maps always have a value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from streams.workflow.descriptors import SchemaSet, field_hint
from streams.workflow.json_values import shown
from streams.workflow.mapping_shapes import (
    DYNAMIC,
    Dynamic,
    ElementType,
    Found,
    Many,
    One,
    Shape,
    ValueRefused,
    shape_of,
)
from streams.workflow.protojson_types import ANY, LIST_VALUE, STRUCT, VALUE, Kind, is_map, message_type_of
from streams.workflow.rule_text import RuleInvalid
from streams.workflow.struct_values import content_of

Read = Callable[[Any], Any]
"""From a message to the value at the path, or None. Raises ValueRefused."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A compiled path. Where the shape is DYNAMIC, `read` gives a `Found` (or None)."""

    shape: Shape | Dynamic
    read: Read


def compile_reading(descriptor: Descriptor, path: tuple[str, ...], schemas: SchemaSet) -> Reading:
    """Compile the path from a message of that type; an empty path is the whole message.

    Raises:
        RuleInvalid: the path does not resolve, or leads where no path can.
    """
    if not path:
        return Reading(One(ElementType.of_message(descriptor)), lambda message: message)
    hops: list[str] = []
    for index, name in enumerate(path):
        rest = path[index:]
        if descriptor.full_name == STRUCT:
            return Reading(DYNAMIC, _through(hops, _struct_read(rest)))
        if descriptor.full_name == ANY:
            return Reading(DYNAMIC, _through(hops, _any_read(rest, schemas)))
        field = field_at(descriptor, path, index)
        if len(rest) == 1:
            return Reading(shape_of(field), _through(hops, _field_read(field)))
        descriptor = message_on_the_way(field, path, index)
        hops.append(name)
    raise AssertionError("a path ends at its last name")


def field_at(descriptor: Descriptor, path: tuple[str, ...], index: int) -> FieldDescriptor:
    """The field that `path[index]` names in *descriptor*. Raises RuleInvalid."""
    if descriptor.full_name in (VALUE, LIST_VALUE):
        raise RuleInvalid(f"{'.'.join(path[:index]) or 'the message'} is a {descriptor.name}, which no path leads into")
    field = descriptor.fields_by_name.get(path[index])
    if field is None:
        hint = field_hint(path[index], descriptor)
        raise RuleInvalid(f"unknown field {shown(path[index])} in {descriptor.full_name}{hint}")
    return field


def message_on_the_way(field: FieldDescriptor, path: tuple[str, ...], index: int) -> Descriptor:
    """The message type that a path goes through at `path[index]`. Raises RuleInvalid."""
    where = ".".join(path[: index + 1])
    if is_map(field):
        raise RuleInvalid(f"{where} is a map, which no path leads into")
    if field.is_repeated:
        raise RuleInvalid(f"{where} is repeated, which no path leads into")
    if field.message_type is None:
        raise RuleInvalid(f"{where} is a single value and has no field {shown(path[index + 1])}")
    return message_type_of(field)


def _through(hops: list[str], read: Read) -> Read:
    if not hops:
        return read
    if len(hops) == 1:
        [hop] = hops
        return lambda message: read(getattr(message, hop)) if message.HasField(hop) else None
    names = tuple(hops)

    def walk(message: Any) -> Any:
        for name in names:
            if not message.HasField(name):
                return None
            message = getattr(message, name)
        return read(message)

    return walk


def _field_read(field: FieldDescriptor) -> Read:
    name = field.name
    if field.is_repeated:
        return lambda message: getattr(message, name)
    if field.has_presence:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: getattr(message, name) or None


def _struct_read(keys: tuple[str, ...]) -> Read:
    *midway, last = keys

    def read(struct: Any) -> Found | None:
        for key in midway:
            if key not in struct.fields:
                raise ValueRefused(f"the Struct has no key {shown(key)} on the way to {shown(last)}")
            value = struct.fields[key]
            if value.WhichOneof("kind") != "struct_value":
                raise ValueRefused(f"the Struct's key {shown(key)} holds no object on the way to {shown(last)}")
            struct = value.struct_value
        return found_in_value(struct.fields[last]) if last in struct.fields else None

    return read


def _any_read(rest: tuple[str, ...], schemas: SchemaSet) -> Read:
    compiled: dict[str, Reading] = {}  # by content type; the schema bounds it

    def read(message: Any) -> Found | None:
        content = unpacked(message, schemas)
        descriptor: Any = content.DESCRIPTOR
        reading = compiled.get(descriptor.full_name)
        if reading is None:
            try:
                reading = compiled[descriptor.full_name] = compile_reading(descriptor, rest, schemas)
            except RuleInvalid as error:
                raise ValueRefused(str(error)) from None
        value = reading.read(content)
        if value is None or isinstance(reading.shape, Dynamic):
            found: Found | None = value
            return found
        return Found(reading.shape, value)

    return read


def unpacked(message: Any, schemas: SchemaSet) -> Message:
    """The message inside an Any. Raises ValueRefused."""
    descriptor = schemas.find_content_type(message.type_url)
    if descriptor is None:
        raise ValueRefused(f"the Any holds the type {shown(message.type_url)}, which this workflow does not know")
    try:
        return message_factory.GetMessageClass(descriptor).FromString(message.value)
    except DecodeError as error:
        raise ValueRefused(f"the Any does not hold a {descriptor.full_name}: {error}") from None


def found_in_value(value: Any) -> Found | None:
    """What a Value holds, with its shape; None for null and for nothing."""
    content = content_of(value)
    if content is None:
        return None
    if isinstance(content, bool):
        return Found(One(ElementType(Kind.BOOL)), content)
    if isinstance(content, float):
        return Found(One(ElementType(Kind.DOUBLE)), content)
    if isinstance(content, str):
        return Found(One(ElementType(Kind.STRING)), content)
    return found_in_list(content) if content.DESCRIPTOR.full_name == LIST_VALUE else _whole(content)


def found_in_list(values: Any) -> Found:
    """The items of a ListValue: a list of Values."""
    item = values.DESCRIPTOR.fields_by_name["values"]
    return Found(Many(ElementType.of_field(item)), values.values)


def found_in_any(message: Any, schemas: SchemaSet) -> Found | None:
    """What an Any holds; a Value or ListValue inside it counts as what that holds. Raises ValueRefused."""
    content = unpacked(message, schemas)
    name = content.DESCRIPTOR.full_name
    if name == VALUE:
        return found_in_value(content)
    if name == LIST_VALUE:
        return found_in_list(content)
    return _whole(content)


def _whole(message: Message) -> Found:
    return Found(One(ElementType.of_message(message.DESCRIPTOR)), message)  # type: ignore[arg-type]
