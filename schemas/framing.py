"""The frame that Schema Registry clients put around a value.

One zero byte, the schema's id as four bytes (big-endian, unsigned), then for Protobuf the path of message indexes from
the top of the schema, then the payload. The path is its length and its indexes as zigzag varints, with a short form:
the path `[0]`, the first message, is one zero byte. An Avro or JSON Schema frame has no path, which only the schema's
id tells: ask `schema_id_of` first, and `unframe` a value whose schema is Protobuf.

Codes of the errors: `not-framed` (too short), `bad-magic` (another first byte), `bad-index`, `bad-schema-id`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from schemas import limits
from schemas.errors import ContractError

MAGIC: Final = b"\x00"
HEADER_BYTES: Final = 5
MAX_INDEXES: Final = 32
"""Messages inside one another that a path may name."""

_VARINT_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """A framed Protobuf value, taken apart. `indexes` names the message within its schema."""

    schema_id: int
    indexes: tuple[int, ...]
    payload: bytes


def frame(schema_id: int, payload: bytes, indexes: Sequence[int] = (0,)) -> bytes:
    """Frame one serialized Protobuf message.

    Args:
        schema_id: The registry's id of the schema, 1 to 4294967295; 0 would name no schema.
        payload: The message's bytes, which may be empty.
        indexes: The message's path within the schema, 1 to 32 indexes.

    Raises:
        ContractError: code `bad-schema-id` or `bad-index`; the caller is wrong, nothing was framed.
    """
    if not 1 <= schema_id <= limits.UINT32_MAX:
        raise ContractError(f"schema id {schema_id} is not 1 to {limits.UINT32_MAX}", code="bad-schema-id")
    if not 1 <= len(indexes) <= MAX_INDEXES or not all(0 <= index <= limits.INT32_MAX for index in indexes):
        raise ContractError(f"message indexes {list(indexes)} name no message", code="bad-index")
    path = b"\x00" if tuple(indexes) == (0,) else b"".join(map(_varint, (len(indexes), *indexes)))
    return b"".join((MAGIC, schema_id.to_bytes(4), path, payload))


def is_framed(value: bytes | None) -> bool:
    """Say whether *value* begins as a frame does. No JSON text does; a null or empty value is not framed."""
    return value is not None and value.startswith(MAGIC)


def schema_id_of(value: bytes) -> int:
    """Return the schema id of a framed value of any format, 0 to 4294967295.

    Raises:
        ContractError: code `bad-magic` or `not-framed`.
    """
    if value and not value.startswith(MAGIC):
        raise ContractError(f"the first byte is {value[0]:#04x}, not 0x00", code="bad-magic")
    if len(value) < HEADER_BYTES:
        raise ContractError(f"{len(value)} bytes are too few for a frame's header", code="not-framed")
    return int.from_bytes(value[1:HEADER_BYTES])


def unframe(value: bytes) -> Frame:
    """Take a framed Protobuf value apart. The payload is not looked at.

    Raises:
        ContractError: code `bad-magic`, `not-framed` or `bad-index`; no other error, whatever the bytes.
    """
    schema_id = schema_id_of(value)
    count, at = _read_varint(value, HEADER_BYTES)
    if count == 0:
        return Frame(schema_id, (0,), value[at:])
    if not 0 < count <= MAX_INDEXES:
        raise ContractError(f"{count} message indexes, 1 to {MAX_INDEXES} are allowed", code="bad-index")
    indexes: list[int] = []
    for _ in range(count):
        index, at = _read_varint(value, at)
        if index < 0:
            raise ContractError(f"message index {index} is negative", code="bad-index")
        indexes.append(index)
    return Frame(schema_id, tuple(indexes), value[at:])


def _varint(number: int) -> bytes:
    rest = number << 1
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def _read_varint(value: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint of 32 bits: the number, and where the next byte stands."""
    zigzag = 0
    for position, byte in enumerate(value[at : at + _VARINT_BYTES]):
        zigzag |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            if zigzag > limits.UINT32_MAX:
                break
            return zigzag >> 1 ^ -(zigzag & 1), at + position + 1
    raise ContractError(f"no message index can be read at byte {at}", code="bad-index")
