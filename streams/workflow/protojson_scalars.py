"""Single values of Protobuf fields from JSON and to JSON (proto3 JSON mapping)."""

import base64
import math
import re
import struct
from collections.abc import Callable
from typing import Final, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from streams.workflow.json_values import fault_in_text, shown
from streams.workflow.protojson_types import INTEGER_RANGES, NULL_VALUE, JsonRefused, Kind, kind_of

Scalar = bool | int | float | str | bytes

_INTEGER: Final = re.compile(r"-?0*[0-9]{1,20}")
_MAP_KEY_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,19}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_MAX_INTEGER_TEXT: Final = 64


def scalar_reader(field: FieldDescriptor) -> Callable[[object], Scalar]:
    """A function from a JSON value to the value of *field*; it raises JsonRefused."""
    kind = kind_of(field)
    if kind is Kind.ENUM:
        assert field.enum_type is not None
        return _enum_reader(field.enum_type)
    if kind in INTEGER_RANGES:
        return _integer_reader(kind)
    return _READERS[kind]


def map_key_reader(field: FieldDescriptor) -> Callable[[str], Scalar]:
    """A function from the text of a JSON key to the key of a map; it raises JsonRefused."""
    kind = kind_of(field)
    if kind is Kind.STRING:
        return read_text
    if kind is Kind.BOOL:
        return _read_bool_key
    integers = INTEGER_RANGES[kind]

    def read(text: str) -> int:
        if not _MAP_KEY_INTEGER.fullmatch(text) or int(text) not in integers:
            raise JsonRefused(f"has the key {shown(text)} where the map takes {kind.value} keys")
        return int(text)

    return read


def _read_bool_key(text: str) -> bool:
    if text not in ("true", "false"):
        raise JsonRefused(f"has the key {shown(text)} where the map takes true and false")
    return text == "true"


def _integer_reader(kind: Kind) -> Callable[[object], int]:
    integers = INTEGER_RANGES[kind]

    def read(value: object) -> int:
        number = _whole_number(value)
        if number is None:
            raise JsonRefused(f"takes an integer ({kind.value}), not {shown(value)}")
        if number not in integers:
            raise JsonRefused(f"takes {integers.start} to {integers.stop - 1} ({kind.value}), not {shown(value)}")
        return number

    return read


def _whole_number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and len(value) <= _MAX_INTEGER_TEXT and _INTEGER.fullmatch(value):
        return int(value)
    return None


def _read_double(value: object) -> float:
    if isinstance(value, str):
        if value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if not _NUMBER.fullmatch(value):
            raise JsonRefused(f"takes a number, not {shown(value)}")
        number = float(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise JsonRefused(f"takes a number, not {shown(value)}")
    if not math.isfinite(number):
        raise JsonRefused(f"takes a finite number, or the text NaN, Infinity or -Infinity, not {shown(value)}")
    return number


def _read_float(value: object) -> float:
    number = _read_double(value)
    if not fits_float(number):
        raise JsonRefused(f"takes a number in the range of a float, not {shown(value)}")
    return number


def fits_float(number: float) -> bool:
    """Whether a double does not overflow a 32-bit float; NaN and the infinities fit."""
    try:
        struct.pack("<f", number)
    except OverflowError:
        return False
    return True


def _read_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise JsonRefused(f"takes true or false, not {shown(value)}")
    return value


def read_text(value: object) -> str:
    """Text as it stands; refuses what cannot be stored."""
    if not isinstance(value, str):
        raise JsonRefused(f"takes text, not {shown(value)}")
    if fault := fault_in_text(value):
        raise JsonRefused(fault)
    return value


def _read_bytes(value: object) -> bytes:
    if not isinstance(value, str) or not _BASE64.fullmatch(value):
        raise JsonRefused(f"takes base64 text, not {shown(value)}")
    digits = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        raise JsonRefused(f"takes base64 text, not {shown(value)}") from None


def _enum_reader(enum: EnumDescriptor) -> Callable[[object], int]:
    numbers = {value.name: value.number for value in enum.values}
    known = frozenset(numbers.values())
    read_number = _integer_reader(Kind.INT32)

    def read(value: object) -> int:
        if isinstance(value, str) and value in numbers:
            return numbers[value]
        if value is None and enum.full_name == NULL_VALUE:
            return 0
        if isinstance(value, str | bool) or not isinstance(value, int | float):
            raise JsonRefused(f"takes a value of {enum.full_name}, not {shown(value)}")
        number = read_number(value)
        if enum.is_closed and number not in known:
            raise JsonRefused(f"takes a value of {enum.full_name}, not {shown(value)}")
        return number

    return read


_READERS: Final[dict[Kind, Callable[[object], Scalar]]] = {
    Kind.DOUBLE: _read_double,
    Kind.FLOAT: _read_float,
    Kind.BOOL: _read_bool,
    Kind.STRING: read_text,
    Kind.BYTES: _read_bytes,
}


def scalar_writer(field: FieldDescriptor) -> Callable[[Scalar], object]:
    """A function from the value of *field* to its JSON form; it raises JsonRefused."""
    kind = kind_of(field)
    if kind is Kind.ENUM:
        assert field.enum_type is not None
        return _enum_writer(field.enum_type)
    return _WRITERS.get(kind, _as_it_is)


def _as_it_is(value: object) -> object:
    return value


def _write_double(value: object) -> float | str:
    number = cast("float", value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _write_float(value: object) -> float | str:
    number = cast("float", value)
    return shortest_float(number) if math.isfinite(number) else _write_double(number)


def shortest_float(number: float) -> float:
    """The double with the fewest digits that is still this 32-bit float."""
    for digits in (6, 7, 8):
        short = float(f"{number:.{digits}g}")
        if fits_float(short) and struct.unpack("<f", struct.pack("<f", short))[0] == number:
            return short
    return float(f"{number:.9g}")


def write_text(value: object) -> str:
    """Text as it stands; refuses U+0000, which Protobuf allows and Postgres does not, and bytes that are no text."""
    if not isinstance(value, str):
        raise JsonRefused("is not UTF-8")  # what a proto2 string field then gives is bytes
    if "\0" in value:
        raise JsonRefused("holds the character U+0000, which cannot be stored")
    return value


def _write_bytes(value: object) -> str:
    return base64.b64encode(cast("bytes", value)).decode()


def _enum_writer(enum: EnumDescriptor) -> Callable[[object], object]:
    if enum.full_name == NULL_VALUE:
        return lambda _: None
    names: dict[object, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)  # of aliases the first declared stands
    return lambda number: names.get(number, number)


_WRITERS: Final[dict[Kind, Callable[[object], object]]] = {
    Kind.INT64: str,
    Kind.UINT64: str,
    Kind.DOUBLE: _write_double,
    Kind.FLOAT: _write_float,
    Kind.STRING: write_text,
    Kind.BYTES: _write_bytes,
}
