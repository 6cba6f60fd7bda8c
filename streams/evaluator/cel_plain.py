"""Values of the engine as plain data, of exactly their type (`streams.workflow.evaluation.Plain` is the form)."""

import base64
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from cel_expr_python import cel

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000_000
_UNITS: Final = {"h": 3_600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1}
_TIMESTAMP: Final = re.compile(r"(\d{1,4})(-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_DURATION: Final = re.compile(r"0|-?(?:\d+(?:\.\d+)?(?:h|m|s|ms|us|ns))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|ns|m|s)")
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
        return {"timestamp": _timestamp(value)}
    if kind == _TYPE.DURATION:
        return {"duration": _duration(value)}
    if kind.is_message():
        message = value.value()
        data = message.SerializePartialToString(deterministic=True)
        return {"message": [message.DESCRIPTOR.full_name, base64.b64encode(data).decode()]}
    name = kind.name()
    if name.startswith("LIST"):
        return [plain(item) for item in value.value()]
    if name.startswith("MAP"):
        entries = sorted(value.value().items(), key=lambda entry: (type(entry[0]).__name__, entry[0]))
        return {"map": [[key, plain(item)] for key, item in entries]}
    raise ValueHasNoForm(f"it gives a {name.lower()}, which is no value of a message")


# The time of a Python object ends at microseconds. The engine's own text has every digit; that it is read as it was
# meant is seen from the object.
def _timestamp(value: cel.Value) -> list[int]:
    text, rough = repr(value), value.value()
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueHasNoForm(f"the timestamp {text} cannot be read")
    whole = datetime.fromisoformat(f"{match[1]:0>4}{match[2]}").replace(tzinfo=UTC)
    since = whole - _EPOCH
    seconds, nanos = since.days * 86_400 + since.seconds, int((match[3] or "").ljust(9, "0"))
    _check(text, seconds * _SECOND + nanos, rough - _EPOCH)
    return [seconds, nanos]


def _duration(value: cel.Value) -> list[int]:
    text, rough = repr(value), value.value()
    if not _DURATION.fullmatch(text):
        raise ValueHasNoForm(f"the duration {text} cannot be read")
    exact = sum(Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    sign = -1 if text.startswith("-") else 1
    seconds, nanos = divmod(int(exact), _SECOND)
    _check(text, sign * int(exact), rough)
    return [sign * seconds, sign * nanos]


def _check(text: str, nanos: int, rough: timedelta) -> None:
    rough_micros = (rough.days * 86_400 + rough.seconds) * 1_000_000 + rough.microseconds
    if abs(nanos - rough_micros * 1_000) > 1_000:
        raise ValueHasNoForm(f"the time {text} cannot be read")
