"""Frames between a worker and the process of a handler: a JSON header and a blob, each after its length. No pickle."""

import json
import struct
from asyncio import StreamReader
from typing import Any, BinaryIO, Final

HEADER: Final = struct.Struct(">II")
"""Lengths of header and blob."""

MOST_BYTES: Final = 1 << 30

Frame = tuple[dict[str, Any], bytes]


def packed(header: dict[str, Any], blob: bytes = b"") -> bytes:
    """The bytes of one frame."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return HEADER.pack(len(text), len(blob)) + text + blob


async def read_frame(reader: StreamReader) -> Frame:
    """Read one frame.

    Raises:
        asyncio.IncompleteReadError: the other side has ended.
        ValueError: what came is no frame.
    """
    header, blob = _lengths(await reader.readexactly(HEADER.size))
    text = await reader.readexactly(header)
    return _header(text), await reader.readexactly(blob)


def read_frame_from(file: BinaryIO) -> Frame | None:
    """Read one frame, waiting for it; None when the other side has ended."""
    lengths = file.read(HEADER.size)
    if len(lengths) < HEADER.size:
        return None
    header, blob = _lengths(lengths)
    text, data = file.read(header), file.read(blob)
    return (_header(text), data) if len(data) == blob else None


def _lengths(data: bytes) -> tuple[int, int]:
    header, blob = HEADER.unpack(data)
    if header > MOST_BYTES or blob > MOST_BYTES:
        raise ValueError("what came is no frame")
    return header, blob


def _header(text: bytes) -> dict[str, Any]:
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError("the header of a frame is no object")
    return header
