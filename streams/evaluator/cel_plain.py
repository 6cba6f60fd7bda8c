"""Values of the engine as plain data, of exactly their type (`streams.workflow.evaluation.Plain` is the form)."""

import base64
import re
from datetime import UTC, datetime
from typing import Any, Final

from cel_expr_python import cel

_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_DURATION: Final = re.compile(r"(-?)(\d{1,15})(?:\.(\d{1,9}))?s")
_TYPE: Final = cel.Type


class ValueHasNoForm(Exception):
    """A value that no field could hold: a type, or an error inside a list."""


def plain(value: cel.Value) -> Any:
    """The value as plain data. Raises ValueHasNoForm."""
    kind = value.type()
    if kind == _TYPE.NULL:
        return None  # never ask for its value: on Python 3.11 each time takes a reference that is not given
    if kind in (_TYPE.BOOL, _TYPE.INT, _TYPE.DOUBLE, _TYPE.STRING):
        return value.value()
    if kind == _TYPE.UINT:
        return {"uint": value.value()}
    if kind == _TYPE.BYTES:
        return {"bytes": base64.b64encode(value.value()).decode()}
    if kind == _TYPE.TIMESTAMP:
        return {"timestamp": _timestamp(repr(value))}
    if kind == _TYPE.DURATION:
        return {"duration": _duration(repr(value))}
    if kind.is_message():
        message = value.value()
        data = message.SerializePartialToString(deterministic=True)
        return {"message": [message.DESCRIPTOR.full_name, base64.b64encode(data).decode()]}
    name = kind.name()
    if name.startswith("LIST"):
        return [plain(item) for item in value.value()]
    if name.startswith("MAP"):
        return {"map": [[_key(key), plain(item)] for key, item in value.value().items()]}
    raise ValueHasNoForm(f"it gives a {name.lower()}, which is no value of a message")


def _key(key: object) -> object:
    return key


# The time of a Python object ends at microseconds; the engine's own text has every digit.
def _timestamp(text: str) -> list[int]:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueHasNoForm(f"the timestamp {text} cannot be read")
    seconds = datetime.fromisoformat(match[1]).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return [seconds.days * 86_400 + seconds.seconds, _nanos(match[2])]


def _duration(text: str) -> list[int]:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueHasNoForm(f"the duration {text} cannot be read")
    sign = -1 if match[1] else 1
    return [sign * int(match[2]), sign * _nanos(match[3])]


def _nanos(digits: str | None) -> int:
    return int((digits or "").ljust(9, "0"))
