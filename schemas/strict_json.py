"""JSON read strictly and written in one way only.

Python's reader takes duplicate keys, NaN and lone surrogates, turns 1e400 into infinity and ends deep nesting in a
RecursionError. None of that may reach a row, so all JSON text from outside is read here.

Codes of the errors: `bad-json` (syntax), `duplicate-key`, `not-finite` (NaN, infinities, numbers beyond a double),
`number-too-long` (an integer of more than 4,300 digits), `too-deep` (limits.JSON_DEPTH), `nul` (U+0000) and `surrogate`
(half of a character).
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NoReturn

from schemas import limits
from schemas.errors import ContractError
from schemas.text import cut, unstorable

# Possessive, and the closing quote optional, so that no text makes the scan go back or start over.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRING_OR_BRACKET: Final = re.compile(rf"{_STRING}|[\[{{]|[\]}}]", re.DOTALL)
_WHITESPACE: Final = re.compile(r"[ \t\n\r]*+")
_SCALAR: Final = re.compile(rf"{_STRING}|[^\s,\]}}\"]++", re.DOTALL)


def parse(text: str) -> object:
    """Read one JSON value. Integers are exact; other numbers are doubles; key order is kept.

    Raises:
        ContractError: with one of the codes of this module.
    """
    _check_depth(text)
    try:
        value = _DECODER.decode(text)
    except _NotFinite as found:
        raise ContractError(f"{found.token}{_place_of_not_finite(text)} {found.reason}", code="not-finite") from None
    except json.JSONDecodeError as error:
        raise ContractError(f"not JSON: {error}", code="bad-json") from None
    except ValueError:
        raise ContractError("an integer has more than 4300 digits", code="number-too-long") from None
    # An escape is the only way in for text that came as UTF-8: most text needs no walk.
    if "\\u" in text or unstorable(text):
        _check_characters(value)
    return value


def parse_object(text: str) -> dict[str, object]:
    """Read a JSON object, as `parse` does; anything else is a ContractError of code `not-an-object`."""
    value = parse(text)
    if not isinstance(value, dict):
        raise ContractError(f"is {kind_of(value)}, not an object", code="not-an-object")
    return value


def members(text: str) -> list[tuple[str, str]]:
    """Take a JSON object apart: its members in order, duplicates included, each value as the very text it was sent in.

    The values are delimited, not read: `parse` each that is used.

    Raises:
        ContractError: code `not-an-object` when *text* does not begin as one, `bad-json` when it does not end as one.
    """
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise ContractError("is not a JSON object", code="not-an-object")
    found: list[tuple[str, str]] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key_end = _end_of(text, at)
        key = parse(text[at:key_end])
        colon = _skip(text, key_end)
        if not isinstance(key, str) or text[colon : colon + 1] != ":":
            raise _syntax_error(at)
        start = _skip(text, colon + 1)
        end = _end_of(text, start)
        found.append((key, text[start:end]))
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "}":
                raise _syntax_error(at)
        elif text[at : at + 1] != "}":
            raise _syntax_error(at)
    if _skip(text, at + 1) != len(text):
        raise _syntax_error(at + 1)
    return found


def canonical(value: object) -> str:
    """Write a value read by `parse` in the one form that all texts of the same meaning share.

    RFC 8785 (keys in UTF-16 order, no spaces, the shortest escapes, doubles as ECMAScript prints them), except that a
    number that was written as an integer keeps all its digits. So 1.0, 1e0 and 1 are the same, "1" is another, and
    9007199254740992 and 9007199254740993 differ.

    Raises:
        ContractError: code `too-deep` or `not-finite`, for values that `parse` does not return.
    """
    written: list[str] = []
    _write(value, limits.JSON_DEPTH, written.append)
    return "".join(written)


def kind_of(value: object) -> str:
    """Name the JSON kind of a parsed value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "an array"
        case _:
            return "an object"


class _NotFinite(Exception):
    """A token that stands for no finite number. Its place is not known where it is met."""

    def __init__(self, token: str, reason: str) -> None:
        super().__init__(reason)
        self.token = token if len(token) <= 40 else f"{token[:40]}…"
        self.reason = reason


def _refuse_constant(token: str) -> NoReturn:
    raise _NotFinite(token, "is not a JSON number")


def _finite(token: str) -> float:
    number = float(token)
    if not math.isfinite(number):
        raise _NotFinite(token, "is beyond the range of a double")
    return number


def _place_of_not_finite(text: str) -> str:
    """Where the first of them stands; nothing where that is the whole text, or what follows is not JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    for pointer, number in _scalars(value, ""):
        if isinstance(number, float) and not math.isfinite(number):
            return f" at {cut(pointer, 200)}" if pointer else ""
    return ""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ContractError(f"the key {cut(twice, 200)!r} occurs twice in one object", code="duplicate-key")
    return found


_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
_WORDS: Final = {None: "null", True: "true", False: "false"}
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= limits.JSON_DEPTH:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > limits.JSON_DEPTH:
                raise ContractError(f"is nested more than {limits.JSON_DEPTH} deep", code="too-deep")
        elif token[0] in "]}":
            depth -= 1


def _check_characters(value: object) -> None:
    for pointer, text in _scalars(value, ""):
        if isinstance(text, str) and (bad := unstorable(text)):
            where = f" at {cut(pointer, 200)}" if pointer else ""
            code = "nul" if bad == "U+0000" else "surrogate"
            raise ContractError(f"{bad}{where} cannot be stored", code=code)


def _scalars(value: object, pointer: str) -> Iterator[tuple[str, object]]:
    """Every key, and every value that holds no others, with its JSON pointer."""
    if isinstance(value, dict):
        for key, member in value.items():
            here = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            yield here, key
            yield from _scalars(member, here)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _scalars(element, f"{pointer}/{index}")
    else:
        yield pointer, value


def _skip(text: str, at: int) -> int:
    found = _WHITESPACE.match(text, at)
    return found.end() if found else at


def _end_of(text: str, at: int) -> int:
    """Return where the value that begins at *at* ends; it is not checked beyond that."""
    if text[at : at + 1] not in ("[", "{"):
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            raise _syntax_error(at)
        return scalar.end()
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text, at):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if depth == 0:
                return token.end()
    raise _syntax_error(len(text))


def _syntax_error(at: int) -> ContractError:
    return ContractError(f"not JSON: unexpected text at character {at}", code="bad-json")


def _write(value: object, room: int, write: Callable[[str], None]) -> None:
    match value:
        case str():
            write(_quoted(value))
        case bool() | None:
            write(_WORDS[value])
        case int():
            write(str(value))
        case float():
            write(_ecmascript(value))
        case Mapping() | Sequence() if room == 0:
            raise ContractError(f"is nested more than {limits.JSON_DEPTH} deep", code="too-deep")
        case Mapping():
            before = "{"
            for key in sorted(value, key=_utf16):
                write(f"{before}{_quoted(key)}:")
                _write(value[key], room - 1, write)
                before = ","
            write("}" if value else "{}")
        case Sequence():
            before = "["
            for element in value:
                write(before)
                _write(element, room - 1, write)
                before = ","
            write("]" if value else "[]")
        case _:
            raise TypeError(f"{type(value).__name__} is not a JSON value")


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _ecmascript(number: float) -> str:
    """Print a double as ECMAScript's Number::toString does; Python's repr has the same digits in another layout."""
    if not math.isfinite(number):
        raise ContractError(f"{number} is not a JSON number", code="not-finite")
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        text = digits.ljust(point, "0") if len(digits) <= point else f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{tail}e{point - 1:+d}"
    return sign + text
