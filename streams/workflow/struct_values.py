"""The free-form messages Struct, Value and ListValue: from plain JSON values and to them.

A Struct holds doubles only. An integer that a double cannot hold exactly is refused, never rounded; NaN and the
infinities have no JSON form and are refused as well.
"""

import math
from typing import Any

from google.protobuf.message import Message

from streams.workflow.json_values import shown
from streams.workflow.protojson_scalars import read_text, write_text
from streams.workflow.protojson_types import JsonRefused, check_depth

# Messages of a private pool have no static type: `struct`, `value` and `values` below are Struct, Value and ListValue
# by their descriptors.


def fill_struct(struct: Any, members: object, depth: int) -> None:
    """Put the members of a JSON object into an empty Struct."""
    if not isinstance(members, dict):
        raise JsonRefused(f"takes an object, not {shown(members)}")
    if members:
        check_depth(depth)
    for key, member in members.items():
        try:
            fill_value(struct.fields[read_text(key)], member, depth + 1)
        except JsonRefused as refused:
            raise refused.inside(str(key)) from None


def fill_list(values: Any, items: object, depth: int) -> None:
    """Put the items of a JSON array into an empty ListValue."""
    if not isinstance(items, list):
        raise JsonRefused(f"takes an array, not {shown(items)}")
    if items:
        check_depth(depth)
    for index, item in enumerate(items):
        try:
            fill_value(values.values.add(), item, depth + 1)
        except JsonRefused as refused:
            raise refused.inside(index) from None


def fill_value(value: Any, plain: object, depth: int) -> None:
    """Put any JSON value into a Value, whose other contents it replaces. *depth* counts where it is a container."""
    if plain is None:
        value.null_value = 0
    elif isinstance(plain, bool):
        value.bool_value = plain
    elif isinstance(plain, int | float):
        value.number_value = exact_double(plain)
    elif isinstance(plain, str):
        value.string_value = read_text(plain)
    elif isinstance(plain, dict):
        value.struct_value.Clear()
        value.struct_value.SetInParent()
        fill_struct(value.struct_value, plain, depth)
    else:
        value.list_value.Clear()
        value.list_value.SetInParent()
        fill_list(value.list_value, plain, depth)


def exact_double(number: int | float) -> float:
    """The number as a Struct holds it, every digit kept."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise JsonRefused("is NaN or infinite, which a Struct cannot hold")
        return number
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    if double != number:
        raise JsonRefused(f"is {shown(number)}, which a Struct cannot hold exactly; send it as text")
    return double


def plain_struct(struct: Any, depth: int) -> dict[str, object]:
    """The JSON object of a Struct, keys sorted."""
    fields = struct.fields
    if fields:
        check_depth(depth)
    members: dict[str, object] = {}
    for key in sorted(fields):
        try:
            members[write_text(key)] = plain_value(fields[key], depth + 1)
        except JsonRefused as refused:
            raise refused.inside(key) from None
    return members


def plain_list(values: Any, depth: int) -> list[object]:
    """The JSON array of a ListValue."""
    if values.values:
        check_depth(depth)
    items: list[object] = []
    for index, item in enumerate(values.values):
        try:
            items.append(plain_value(item, depth + 1))
        except JsonRefused as refused:
            raise refused.inside(index) from None
    return items


def plain_value(value: Any, depth: int) -> object:
    """The JSON value of a Value; one that holds nothing is null. *depth* counts where it is a container."""
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "struct_value":
        return plain_struct(value.struct_value, depth)
    if kind == "list_value":
        return plain_list(value.list_value, depth)
    if kind == "string_value":
        return write_text(value.string_value)
    if kind == "bool_value":
        return bool(value.bool_value)
    return _plain_number(exact_double(value.number_value))


def _plain_number(number: float) -> int | float:
    # -0.0 is integral too, and would lose its sign.
    exact = number.is_integer() and abs(number) <= 2**53 and not (number == 0 and math.copysign(1, number) < 0)
    return int(number) if exact else number


def content_of(value: Any) -> Message | str | float | bool | None:
    """What a Value holds: a Struct, a ListValue, text, a number or a truth; None for null and for nothing."""
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    held: Message | str | float | bool = getattr(value, kind)
    return held
