"""Decompressing batches, within a bound: a few kilobytes can stand for more than a process can hold."""

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

MOST_BYTES: Final = 128 << 20
"""Bytes of one batch once it is decompressed. Producers bound what they send long before, most at 1 MB."""

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_FIRST_GUESS: Final = 16  # times the compressed size
_AS_GZIP: Final = 31


class TooLarge(Exception):
    """The batch would have more bytes than the bound; the text names it."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has over {most:,} bytes once it is decompressed")


def decompressed(codec: int, data: memoryview, *, most: int = MOST_BYTES) -> bytearray:
    """Return what *data* stands for in Kafka's codec of that number: 1 gzip, 2 Snappy, 3 LZ4, 4 Zstandard.

    Raises:
        TooLarge: it would have over *most* bytes.
        Exception: it is nothing of that codec.
    """
    match codec:
        case 1:
            return _gunzipped(data, most)
        case 2:
            return _unsnapped(data, most)
        case 3:
            return _into(cramjam.lz4.decompress_into, data, most)
        case 4:
            return _into(cramjam.zstd.decompress_into, data, most)
        case _:
            raise ValueError(f"no codec has the number {codec}")


def _gunzipped(data: memoryview, most: int) -> bytearray:
    whole = bytearray()
    rest: bytes | memoryview = data
    while rest:
        member = zlib.decompressobj(_AS_GZIP)
        whole += member.decompress(rest, most - len(whole) + 1)
        if len(whole) > most:
            raise TooLarge(most)
        if not member.eof:
            raise EOFError("the compressed data ends too soon")
        rest = member.unused_data
    return whole


def _unsnapped(data: memoryview, most: int) -> bytearray:
    """Snappy as it is, or in the blocks of the Java clients' format, each behind its size."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _unsnapped_block(data, most)
    whole = bytearray()
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        [size] = struct.unpack_from("!i", data, at)
        at += 4
        whole += _unsnapped_block(data[at : at + size], most, begun=len(whole))
        at += size
    return whole


def _unsnapped_block(block: memoryview, most: int, *, begun: int = 0) -> bytearray:
    if begun + cramjam.snappy.decompress_raw_len(block) > most:
        raise TooLarge(most)
    return bytearray(cramjam.snappy.decompress_raw(block))


def _into(decompress_into: Callable[[memoryview, bytearray], int], data: memoryview, most: int) -> bytearray:
    """Try with more and more room: the codec has no bound of its own, and fails where the room does not suffice."""
    room = min(most, max(1 << 16, _FIRST_GUESS * len(data)))
    while True:
        whole = bytearray(room)
        try:
            size = decompress_into(data, whole)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if room == most:
                raise TooLarge(most) from None
            room = min(most, 4 * room)
        else:
            del whole[size:]
            return whole
