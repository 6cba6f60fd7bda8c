"""From a value of one type to a value of another, or a refusal. Nothing is lost on the way.

Whether two types can meet at all is decided once, when a rule is compiled; whether a value fits, when it runs.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from schemas.errors import InputInvalid
from streams.workflow.descriptors import SchemaSet
from streams.workflow.json_values import shown
from streams.workflow.mapping_shapes import ElementType, ValueRefused
from streams.workflow.protojson_scalars import fits_float, shortest_float
from streams.workflow.protojson_types import (
    ANY,
    INTEGER_RANGES,
    LIST_VALUE,
    NOT_AN_OBJECT,
    STRUCT,
    VALUE,
    JsonRefused,
    Kind,
)
from streams.workflow.rule_text import RuleInvalid
from streams.workflow.struct_values import fill_value

Convert = Callable[[Any], Any]
"""From a value of the source type to one of the target type. Raises ValueRefused."""

_INTEGER_TEXT: Final = re.compile(r"-?[0-9]{1,40}")
_NUMBER_TEXT: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_FLOATS: Final = frozenset({Kind.FLOAT, Kind.DOUBLE})
_NUMBERS: Final = _FLOATS | INTEGER_RANGES.keys()


def converter(source: ElementType, target: ElementType, schemas: SchemaSet) -> Convert:
    """The function that brings values of *source* to *target*.

    Raises:
        RuleInvalid: no value of the one type can become the other.
    """
    if target.kind is Kind.MESSAGE:
        convert = _to_message(source, target, schemas)
    elif source.kind is Kind.MESSAGE:
        raise RuleInvalid(f"a message ({source}) cannot become a single value ({target})")
    else:
        convert = _to_scalar(source, target)
    if convert is None:
        raise RuleInvalid(f"a value of type {source} cannot become {target}")
    return convert


def _unchanged(value: Any) -> Any:
    return value


def _to_scalar(source: ElementType, target: ElementType) -> Convert | None:
    if target.kind in INTEGER_RANGES:
        return _to_integer(source.kind, target.kind)
    if target.kind in _FLOATS:
        return _to_float(source.kind, target.kind)
    if target.kind is Kind.BOOL:
        return {Kind.BOOL: _unchanged, Kind.STRING: _bool_from_text}.get(source.kind)
    if target.kind is Kind.STRING:
        return _to_text(source)
    if target.kind is Kind.ENUM:
        return _to_enum(source, target)
    return _unchanged if source.kind is Kind.BYTES else None


def _to_integer(source: Kind, target: Kind) -> Convert | None:
    integers = INTEGER_RANGES[target]

    def in_range(number: int) -> int:
        if number not in integers:
            raise ValueRefused(f"{shown(number)} is out of the range of {target.value}")
        return number

    def from_float(number: float) -> int:
        if not number.is_integer():
            raise ValueRefused(f"{number} is not an integer ({target.value})")
        return in_range(int(number))

    def from_text(text: str) -> int:
        if not _INTEGER_TEXT.fullmatch(text):
            raise ValueRefused(f"{shown(text)} is not an integer ({target.value})")
        return in_range(int(text))

    if source in INTEGER_RANGES:
        held = INTEGER_RANGES[source]
        return _unchanged if held[0] in integers and held[-1] in integers else in_range
    if source in _FLOATS:
        return from_float
    return from_text if source is Kind.STRING else None


def _to_float(source: Kind, target: Kind) -> Convert | None:
    def checked(number: float) -> float:
        if target is Kind.FLOAT and not fits_float(number):
            raise ValueRefused(f"{number} is out of the range of float")
        return number

    def from_text(text: str) -> float:
        number = float(text) if _NUMBER_TEXT.fullmatch(text) else math.nan
        if not math.isfinite(number):
            raise ValueRefused(f"{shown(text)} is not a number in the range of {target.value}")
        return checked(number)

    if source in _NUMBERS:
        return _unchanged if target is Kind.DOUBLE or source is not Kind.DOUBLE else checked
    return from_text if source is Kind.STRING else None


def _bool_from_text(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueRefused(f"{shown(text)} is neither true nor false")
    return lowered == "true"


def _to_text(source: ElementType) -> Convert | None:
    if source.kind is Kind.STRING:
        return _unchanged
    if source.kind in INTEGER_RANGES:
        return str
    if source.kind is Kind.BOOL:
        return lambda value: "true" if value else "false"
    if source.kind is Kind.FLOAT:
        return lambda number: _decimal_text(shortest_float(number) if math.isfinite(number) else number)
    if source.kind is Kind.DOUBLE:
        return _decimal_text
    return _enum_name(source) if source.kind is Kind.ENUM else None


def _decimal_text(number: float) -> str:
    """Digits without an exponent: `42`, `1.5`."""
    if not math.isfinite(number):
        raise ValueRefused(f"{number} has no decimal form")
    text = format(Decimal(repr(number)), "f")
    return text.removesuffix(".0")


def _enum_name(source: ElementType) -> Convert:
    names: dict[int, str] = {}
    for value in _enum_of(source).values:
        names.setdefault(value.number, value.name)  # of aliases the first declared stands

    def name(number: int) -> str:
        if number not in names:
            raise ValueRefused(f"{number} has no name in {source}")
        return names[number]

    return name


def _to_enum(source: ElementType, target: ElementType) -> Convert | None:
    numbers = {value.name: value.number for value in _enum_of(target).values}
    known = frozenset(numbers.values())

    def from_text(text: str) -> int:
        if text not in numbers:
            raise ValueRefused(f"{shown(text)} is no value of {target}")
        return numbers[text]

    def from_number(number: int | float) -> int:
        if number not in known:
            raise ValueRefused(f"{shown(number)} is no value of {target}")
        return int(number)

    if source.kind is Kind.ENUM:
        return _unchanged if source == target else None
    if source.kind in _NUMBERS:
        return from_number
    return from_text if source.kind is Kind.STRING else None


def _enum_of(element: ElementType) -> EnumDescriptor:
    assert element.enum is not None, "asked of enum types only"
    return element.enum


def _to_message(source: ElementType, target: ElementType, schemas: SchemaSet) -> Convert | None:
    if source == target:
        return _unchanged
    if target.name == VALUE:
        return _to_value(source, schemas)
    if source.kind is not Kind.MESSAGE:
        raise RuleInvalid(f"a single value ({source}) cannot become a message ({target})")
    if target.name == ANY:
        return lambda message: _packed(message, schemas)
    if target.name == STRUCT and source.name not in NOT_AN_OBJECT:
        return lambda message: _through_json(message, STRUCT, schemas)
    if source.name == STRUCT and target.name not in NOT_AN_OBJECT:
        return lambda message: _through_json(message, target.name, schemas)
    return None


def _packed(message: Message, schemas: SchemaSet) -> Message:
    packed: Any = schemas.new(ANY)
    packed.type_url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    packed.value = message.SerializePartialToString(deterministic=True)
    held: Message = packed
    return held


def _through_json(message: Message, full_name: str, schemas: SchemaSet) -> Message:
    """A Struct as a message by field names, unknown keys dropped; or a message as the Struct of its JSON."""
    try:
        return schemas.parse_json(full_name, schemas.to_json(message), drop_unknown=True)
    except InputInvalid as error:
        raise ValueRefused(f"{message.DESCRIPTOR.full_name} cannot become {full_name}: {error}") from None


def _to_value(source: ElementType, schemas: SchemaSet) -> Convert | None:
    if source.kind is Kind.BYTES:
        return None
    if source.kind is Kind.ENUM:
        name = _enum_name(source)
        return lambda number: _value_of(name(number), schemas)
    if source.kind is not Kind.MESSAGE:
        return lambda scalar: _value_of(scalar, schemas)
    if source.name == STRUCT:
        return lambda struct: _wrapped(struct, "struct_value", schemas)
    if source.name == LIST_VALUE:
        return lambda values: _wrapped(values, "list_value", schemas)
    return lambda message: _value_of_message(message, schemas)


def _wrapped(message: Message, member: str, schemas: SchemaSet) -> Message:
    value = schemas.new(VALUE)
    held = getattr(value, member)
    held.CopyFrom(message)
    held.SetInParent()
    return value


def _value_of_message(message: Message, schemas: SchemaSet) -> Message:
    try:
        return _value_of(schemas.to_json(message), schemas)
    except InputInvalid as error:
        raise ValueRefused(f"{message.DESCRIPTOR.full_name} has no JSON form: {error}") from None


def _value_of(plain: object, schemas: SchemaSet) -> Message:
    value = schemas.new(VALUE)
    try:
        fill_value(value, plain, depth=1)
    except JsonRefused as refused:
        raise ValueRefused(f"the value {refused.reason}") from None
    return value
