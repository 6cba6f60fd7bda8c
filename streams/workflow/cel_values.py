"""What an expression gives, brought to where a mapping rule puts it: as for text rules, nothing is lost on the way.

CEL sees wrappers as their values, Struct, Value and ListValue as maps, scalars and lists, and enums as integers. So
here a scalar may also become a wrapper, a list a ListValue, a map a Struct or the message with those fields.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message

from schemas.errors import InputInvalid
from streams.workflow.coercion import Convert, converter
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Plain
from streams.workflow.json_values import shown
from streams.workflow.mapping_shapes import ElementType, ValueRefused
from streams.workflow.protojson_types import (
    ANY,
    DURATION,
    LIST_VALUE,
    NOT_AN_OBJECT,
    STRUCT,
    TIMESTAMP,
    VALUE,
    WRAPPERS,
    JsonRefused,
    Kind,
)
from streams.workflow.rule_text import RuleInvalid
from streams.workflow.struct_values import fill_value

_SCALARS: Final[dict[type, Kind]] = {bool: Kind.BOOL, int: Kind.INT64, float: Kind.DOUBLE, str: Kind.STRING}


class CelValues:
    """Brings values of expressions to the types of one schema."""

    def __init__(self, schemas: SchemaSet) -> None:
        self._schemas = schemas
        self._converters: dict[tuple[ElementType, ElementType], Convert] = {}  # the schema bounds them

    def element(self, value: Plain, target: ElementType) -> Any:
        """*value* as one value of type *target*: a field's, a list's or a map's. Raises ValueRefused."""
        if target.name in WRAPPERS:
            return self._wrapper(value, target)
        if value is None:
            if target.name == VALUE:
                return self._free_form(value, target)
            raise ValueRefused("it is null inside a list or a map")
        if isinstance(value, list):
            if target.name not in (VALUE, LIST_VALUE):
                raise ValueRefused(f"a list cannot become a {target}")
            return self._free_form(value, target)
        if isinstance(value, dict) and "map" in value:
            return self._of_map(value, target)
        source, native = self._native(value)
        return self._converter(source, target)(native)

    def _converter(self, source: ElementType, target: ElementType) -> Convert:
        convert = self._converters.get((source, target))
        if convert is None:
            try:
                convert = self._converters[source, target] = converter(source, target, self._schemas)
            except RuleInvalid as error:
                raise ValueRefused(str(error)) from None
        return convert

    def _wrapper(self, value: Plain, target: ElementType) -> Message:
        wrapper: Any = self._schemas.new(target.name)
        declared = wrapper.DESCRIPTOR.fields_by_name["value"]
        wrapper.value = self.element(value, ElementType.of_field(declared))
        held: Message = wrapper
        return held

    def _of_map(self, value: Plain, target: ElementType) -> Any:
        if target.name in (VALUE, STRUCT):
            return self._free_form(value, target)
        struct_type = ElementType.of_message(self._schemas.message(STRUCT))
        if target.name == ANY:
            return self._converter(struct_type, target)(self._free_form(value, struct_type))
        if target.kind is not Kind.MESSAGE or target.name in NOT_AN_OBJECT:
            raise ValueRefused(f"a map cannot become a {target}")
        try:
            return self._schemas.parse_json(target.name, self._json(value), drop_unknown=True)
        except InputInvalid as error:
            raise ValueRefused(f"the map cannot become a {target}: {error}") from None

    def _free_form(self, value: Plain, target: ElementType) -> Message:
        held: Any = self._schemas.new(VALUE)
        try:
            fill_value(held, self._json(value), depth=1)
        except JsonRefused as refused:
            raise ValueRefused(f"{refused.pointer or 'the value'} {refused.reason}") from None
        inner: Message = {VALUE: held, STRUCT: held.struct_value, LIST_VALUE: held.list_value}[target.name]
        return inner

    def _json(self, value: Plain) -> object:
        if isinstance(value, list):
            return [self._json(item) for item in value]
        if not isinstance(value, dict):
            return value
        [(kind, content)] = value.items()
        if kind == "map" and isinstance(content, list):
            return {_json_key(key): self._json(item) for key, item in content}  # type: ignore[misc, str-unpack]
        if kind in ("uint", "bytes"):
            return content  # bytes are base64 in JSON as well
        _, message = self._native(value)
        try:
            return self._schemas.to_json(message)
        except InputInvalid as error:
            raise ValueRefused(f"it holds a {message.DESCRIPTOR.full_name} without a JSON form: {error}") from None

    def _native(self, value: Plain) -> tuple[ElementType, Any]:
        """A value that is neither null, list nor map, with its type."""
        if not isinstance(value, dict):
            return ElementType(_SCALARS[type(value)]), value
        [(kind, content)] = value.items()
        return _NATIVE[kind](content, self._schemas)


def type_named(name: str, schemas: SchemaSet) -> ElementType:
    """The type of one value that CEL calls *name*: a scalar, a time or a message. Raises RuleInvalid."""
    if name in _NAMED:
        return _NAMED[name]
    try:
        return ElementType.of_message(schemas.message(_MESSAGES.get(name, name)))
    except InputInvalid:
        raise RuleInvalid(f"a {name} cannot be stored") from None


def _json_key(key: Plain) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key["uint"] if isinstance(key, dict) else key)


def _uint(content: Any, schemas: SchemaSet) -> tuple[ElementType, Any]:
    return ElementType(Kind.UINT64), content


def _bytes(content: Any, schemas: SchemaSet) -> tuple[ElementType, Any]:
    return ElementType(Kind.BYTES), base64.b64decode(content)


def _time(full_name: str) -> Callable[[Any, SchemaSet], tuple[ElementType, Any]]:
    def native(content: Any, schemas: SchemaSet) -> tuple[ElementType, Any]:
        message: Any = schemas.new(full_name)
        message.seconds, message.nanos = content
        return ElementType.of_message(message.DESCRIPTOR), message

    return native


def _message(content: Any, schemas: SchemaSet) -> tuple[ElementType, Any]:
    full_name, encoded = content
    descriptor = schemas.message(full_name)
    try:
        message = message_factory.GetMessageClass(descriptor).FromString(base64.b64decode(encoded))
    except DecodeError as error:
        raise ValueRefused(f"the {shown(full_name)} cannot be read: {error}") from None
    return ElementType.of_message(descriptor), message


_NATIVE: Final[dict[str, Callable[[Any, SchemaSet], tuple[ElementType, Any]]]] = {
    "uint": _uint,
    "bytes": _bytes,
    "timestamp": _time(TIMESTAMP),
    "duration": _time(DURATION),
    "message": _message,
}
_NAMED: Final = {
    "BOOL": ElementType(Kind.BOOL),
    "INT": ElementType(Kind.INT64),
    "UINT": ElementType(Kind.UINT64),
    "DOUBLE": ElementType(Kind.DOUBLE),
    "STRING": ElementType(Kind.STRING),
    "BYTES": ElementType(Kind.BYTES),
}
_MESSAGES: Final = {"TIMESTAMP": TIMESTAMP, "DURATION": DURATION}
