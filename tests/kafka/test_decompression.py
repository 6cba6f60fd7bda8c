"""Decompressing batches: every codec as its own library has it, and nothing beyond the bound."""

import gzip
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.batches import Unreadable
from streams.kafka.decompression import MOST_BYTES, TooLarge, decompressed
from tests.kafka.raw_batches import raw_batch
from tests.kafka.test_batches import read


def in_blocks(data: bytes) -> bytes:
    """Snappy as the Java clients frame it."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 1000])) for at in range(0, len(data), 1000)]
    return b"\x82SNAPPY\x00" + bytes(8) + b"".join(struct.pack("!i", len(block)) + block for block in blocks)


COMPRESS: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "gzip": (1, gzip.compress),
    "gzip in members": (1, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    "snappy": (2, cramjam.snappy.compress_raw),
    "snappy in blocks": (2, in_blocks),
    "lz4": (3, cramjam.lz4.compress),
    "zstd": (4, cramjam.zstd.compress),
}


@pytest.mark.parametrize("codec", COMPRESS)
@given(data=st.binary(min_size=1, max_size=5_000), times=st.sampled_from([1, 100]))
def test_data_comes_back_as_it_was_up_to_the_bound_and_no_further(codec: str, data: bytes, times: int) -> None:
    number, compress = COMPRESS[codec]
    data *= times
    packed = memoryview(bytes(compress(data)))
    assert decompressed(number, packed, most=len(data)) == data
    with pytest.raises(TooLarge, match=f"over {len(data) - 1:,} bytes"):
        decompressed(number, packed, most=len(data) - 1)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_batch_that_would_fill_the_memory_cannot_be_read(codec: str) -> None:
    batch = raw_batch(bytes(MOST_BYTES), codec=codec)
    assert len(batch) < 1_000_000
    [standing] = read(batch)
    assert standing.value == Unreadable(f"it has over {MOST_BYTES:,} bytes once it is decompressed", 1)
