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


def pointer_to(parts: Iterable[str | int]) -> str:
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
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        part, path = waiting.pop()
        fault = _fault(part, depth=len(path) + 1)
        if fault is not None:
            raise InputInvalid(f"{pointer_to(path) or 'the document'} {fault}", pointer=pointer_to(path))
        if isinstance(part, dict):
            waiting.extend((member, (*path, key)) for key, member in part.items())
        elif isinstance(part, list):
            waiting.extend((item, (*path, index)) for index, item in enumerate(part))


def _fault(part: object, depth: int) -> str | None:
    if isinstance(part, dict | list):
        return _container_fault(part, depth)
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
