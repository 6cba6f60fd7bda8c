"""Frames between a process and its child: a JSON header and any number of byte strings, nothing that could be code.

A frame is its length in four bytes, the header's length in four bytes, the header, and the byte strings one after the
other. The header's member `blobs` has their lengths.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

Header = dict[str, Any]

MAX_FRAME_BYTES: Final = 64 << 20
READY: Final = "ready"
"""The request that only asks whether the child is there."""

LENGTH: Final = struct.Struct(">I")


class FrameInvalid(ValueError):
    """What came is no frame, or is too long to be one."""


def encode(header: Header, blobs: Sequence[bytes] = ()) -> bytes:
    """The frame, its length included. Raises FrameInvalid when it would be over `MAX_FRAME_BYTES`."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}, separators=(",", ":")).encode()
    body = b"".join((LENGTH.pack(len(text)), text, *blobs))
    if len(body) > MAX_FRAME_BYTES:
        raise FrameInvalid(f"it has {len(body):,} bytes, over the limit of {MAX_FRAME_BYTES:,}")
    return LENGTH.pack(len(body)) + body


def body_length(prefix: bytes) -> int:
    """The length of what follows a frame's first four bytes. Raises FrameInvalid."""
    (length,) = LENGTH.unpack(prefix)
    if not LENGTH.size <= length <= MAX_FRAME_BYTES:
        raise FrameInvalid(f"no frame has {length:,} bytes")
    return int(length)


def decode(body: bytes) -> tuple[Header, list[bytes]]:
    """The header and the byte strings of a frame without its length. Raises FrameInvalid."""
    try:
        (length,) = LENGTH.unpack_from(body)
        at = LENGTH.size + length
        header = json.loads(body[LENGTH.size : at])
        lengths = header.pop("blobs")
        blobs = []
        for size in lengths:
            blobs.append(body[at : at + size])
            at += size
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise FrameInvalid(f"the frame cannot be read: {error}") from None
    if at != len(body):
        raise FrameInvalid("the frame's parts do not add up to it")
    return header, blobs
