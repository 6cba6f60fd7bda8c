"""From a record's bytes to a request, or to the reason why there is none."""

import re
from collections.abc import Sequence
from typing import Final, Protocol

from schemas.errors import ContractError
from schemas.framing import is_framed, unframe
from schemas.headers import TRACEPARENT
from schemas.messages import INDEXES, WorkflowRunRequest
from schemas.requests import Request, Unusable, decode_json, decode_protobuf
from schemas.topics import Format
from streams.kafka.records import Record

_REQUEST: Final = WorkflowRunRequest.DESCRIPTOR.full_name
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Registry(Protocol):
    """Names the message that a framed value holds; see `streams.kafka.registry`."""

    async def message_name(self, schema_id: int, indexes: Sequence[int]) -> str: ...


async def decode(record: Record, formats: Sequence[Format], registry: Registry) -> Request | Unusable:
    """Read the request that *record* holds, in one of the *formats* its topic takes.

    The job id is the one in the value; the key, which may be absent or another, says nothing here.

    Raises:
        ContractError: no run can be made of the record, ever; `code` and message say why.
        RegistryUnavailable: the registry must say what the value is, and does not answer: ask again.
    """
    value = record.value
    if value is None or not is_framed(value):
        if value is not None:
            _check_format(Format.JSON, formats)
        return decode_json(value)
    _check_format(Format.PROTOBUF, formats)
    frame = unframe(value)
    name = await registry.message_name(frame.schema_id, frame.indexes)
    if name != _REQUEST:
        raise ContractError(f"the value is a {name}, not a {_REQUEST}", code="other-message")
    # By its name the message is ours, wherever it stands in a schema text that somebody else wrote.
    return decode_protobuf(frame.payload, INDEXES[WorkflowRunRequest])


def trace_context(record: Record) -> str | None:
    """Return the W3C `traceparent` that came with the record; None where there is none, or none that is well-formed."""
    for name, value in reversed(record.headers):
        if name == TRACEPARENT:
            return value.decode() if value is not None and _TRACE.fullmatch(value) else None
    return None


def _check_format(wanted: Format, formats: Sequence[Format]) -> None:
    if wanted not in formats:
        raise ContractError(f"the topic takes {' and '.join(formats)}, not {wanted}", code="format")
