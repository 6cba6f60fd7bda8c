"""Plain JSON values as the engine takes them: storable text, finite numbers, bounded depth. How errors show them."""

import json
import math
from collections.abc import Iterable
from typing import Final

from schemas import strict_json
from schemas.errors import ContractError, InputInvalid
from schemas.text import unstorable
from streams.workflow.limits import MAX_DEPTH, MAX_VALUE_BYTES

_SHOWN: Final = 40  # characters of an offending value quoted in an error
_LONGEST_KEY: Final = 200  # characters of a key in a pointer


def pointer_to(parts: Iterable[object]) -> str:
    """The JSON pointer (RFC 6901) of the value reached through *parts*; empty for the whole document.

    A key of over 200 characters is cut, so that nobody's key makes an error of any length.
    """
    return "".join("/" + _cut(str(part)).replace("~", "~0").replace("/", "~1") for part in parts)


def _cut(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."


def parse_text(text: str | bytes) -> object:
    """Parse JSON text into plain values; integers keep every digit.

    Raises:
        InputInvalid: over `MAX_VALUE_BYTES`, not UTF-8, or refused by `schemas.strict_json`.
    """
    try:
        whole = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise InputInvalid(f"the JSON text is not UTF-8 (byte {error.start})") from None
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_VALUE_BYTES:
        raise InputInvalid(f"the JSON text has {size:,} bytes, over the limit of {MAX_VALUE_BYTES:,}")
    try:
        return strict_json.parse(whole)
    except ContractError as error:
        raise InputInvalid(f"the JSON text {error}") from None


def check_json(value: object) -> None:
    """Refuse what is not plain JSON, cannot be stored, or nests too deep. Walks without recursion.

    Raises:
        InputInvalid: with the pointer of the part at fault.
    """
    if not isinstance(value, dict | list):
        _refuse(_scalar_fault(value), ())
        return
    waiting: list[tuple[dict[object, object] | list[object], _Path]] = [(value, ())]
    while waiting:
        container, path = waiting.pop()
        _refuse(_container_fault(container, depth=len(path) + 1), path)
        for key, part in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(part, dict | list):
                waiting.append((part, (*path, key)))
            elif fault := _scalar_fault(part):
                _refuse(fault, (*path, key))


_Path = tuple[object, ...]


def _refuse(fault: str | None, path: _Path) -> None:
    if fault is not None:
        pointer = pointer_to(path)
        raise InputInvalid(f"{pointer or 'the document'} {fault}", pointer=pointer)


def _scalar_fault(part: object) -> str | None:
    if isinstance(part, str):
        return fault_in_text(part)
    if isinstance(part, float):
        return None if math.isfinite(part) else "is not a finite number"
    if part is None or isinstance(part, bool | int):
        return None
    return f"is a {type(part).__name__}, which JSON does not have"


def _container_fault(part: dict[object, object] | list[object], depth: int) -> str | None:
    if part and depth > MAX_DEPTH:
        return f"is nested deeper than {MAX_DEPTH} levels"
    if isinstance(part, dict):
        for key in part:
            if not isinstance(key, str):
                return f"has the key {shown(key)}, which is not text"
            if fault := fault_in_text(key):
                return f"has a key that {fault}"
    return None


def fault_in_text(text: str) -> str | None:
    """Why *text* cannot be stored, or None: Postgres takes no U+0000, and UTF-8 has no lone surrogates."""
    found = unstorable(text)
    return None if found is None else f"holds the character {found}, which cannot be stored"


def shown(value: object) -> str:
    """A value as an error quotes it: short, on one line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    quoted = json.dumps(text[:_SHOWN])
    return quoted if len(text) <= _SHOWN else f"{quoted}... ({len(text)} characters)"
