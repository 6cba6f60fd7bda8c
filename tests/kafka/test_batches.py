"""Bytes of a batch, read one by one: what is a record, and what cannot be read."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.batches import Batches, Unreadable
from tests.kafka.raw_batches import CODECS, HEADER_BYTES, raw_batch, sealed

TOPIC = TopicPartition("requests", 0)


def read(data: bytes, reader: Callable[[bytes], Any] = Batches, offset: int = 0) -> list[Any]:
    """What aiokafka makes of *data*, fetched at *offset*."""
    return list(PartitionRecords(TOPIC, reader(data), [], offset, None, None, True, READ_COMMITTED))


def based(batch: bytes, offset: int) -> bytes:
    """The batch at *offset* of a log; its checksum does not cover where it stands."""
    return offset.to_bytes(8) + batch[8:]


def unreadable(records: list[Any]) -> Unreadable:
    assert isinstance(records[-1].value, Unreadable)
    return records[-1].value


@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_is_read_as_aiokafka_itself_reads_it(codec: str) -> None:
    data = raw_batch(b"one", None, b"", headers=[("a", b"1"), ("a", None), ("\0", b""), ("", b"x")], codec=codec)
    data += based(raw_batch(b"two", timestamp_ms=-5), 3)
    assert read(data) == read(data, MemoryRecords)
    assert len(read(data)) == 4
    assert [record.offset for record in read(data, offset=2)] == [2, 3]


@pytest.mark.parametrize("codec", CODECS)
def test_the_name_of_a_header_that_is_not_utf8_is_read_with_what_stands_for_its_bytes(codec: str) -> None:
    data = raw_batch(
        b"one", b"two", headers=[("XYZ", b"1")], codec=codec, patch=lambda b: b.replace(b"XYZ", b"\xffY\xc3")
    )
    assert [(one.offset, one.value, one.headers) for one in read(data)] == [
        (0, b"one", (("\\xffY\\xc3", b"1"),)),
        (1, b"two", (("\\xffY\\xc3", b"1"),)),
    ]


def test_bits_that_mean_nothing_yet_change_nothing() -> None:
    def marked(batch: bytearray) -> bytearray:
        batch[HEADER_BYTES + 1] = 0xFF  # the attributes of the first record, behind its length
        return batch

    assert read(raw_batch(b"one", timestamp_ms=1, patch=marked)) == read(raw_batch(b"one", timestamp_ms=1))


@pytest.mark.parametrize("deltas", [(1_000, 1_001, 5), (0, 0, 0), (-3, -2, -1), (2, 1, 0)])
def test_a_record_stands_where_the_batch_has_it_whatever_it_says_itself(deltas: tuple[int, ...]) -> None:
    data = based(raw_batch(b"one", b"two", b"three", deltas=deltas, last_delta=2), 7)
    assert [(one.offset, one.value) for one in read(data, offset=7)] == [(7, b"one"), (8, b"two"), (9, b"three")]


def test_a_batch_that_compaction_thinned_out_keeps_its_offsets() -> None:
    data = based(raw_batch(b"one", b"two", deltas=(1, 4), last_delta=5), 10)
    assert [one.offset for one in read(data, offset=10)] == [11, 14]
    assert "do not grow" in unreadable(read(raw_batch(b"one", b"two", deltas=(4, 1), last_delta=5))).why


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_of_old_formats_are_read(magic: Any) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1_000)
    assert builder.append(0, timestamp=1, key=b"k", value=b"v") is not None
    data = bytes(builder.build())
    [found], [theirs] = read(data), read(data, MemoryRecords)
    assert (found.offset, found.key, found.value, found.headers) == (0, b"k", b"v", ())
    assert found.timestamp == (-1 if theirs.timestamp is None else theirs.timestamp)


def test_a_batch_whose_checksum_is_wrong_cannot_be_read_and_what_stands_before_can() -> None:
    broken = bytearray(based(raw_batch(b"two", b"three"), 1))
    broken[-2] ^= 1
    first, last = read(raw_batch(b"one") + bytes(broken) + based(raw_batch(b"four"), 3))
    assert first.value == b"one"
    assert unreadable([last]) == Unreadable("the checksum is wrong", 3)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (lambda b: b.replace(b"\x02\x06XYZ", b"\x04\x06XYZ"), "out of range"),  # a header that is not there
        (lambda b: b.replace(b"\x06XYZ", b"\x05XYZ"), "a header has no name"),
        (lambda b: b.replace(b"\x06XYZ", b"\x04XYZ"), "not as long as it says"),
        (lambda b: b + b"\0", "unconsumed"),
        (lambda b: b[:-2], "cut short"),
    ],
)
def test_records_that_contradict_themselves_cannot_be_read(patch: Any, why: str) -> None:
    found = unreadable(read(raw_batch(b"one", headers=[("XYZ", b"1")], patch=patch)))
    assert found.next_offset == 1
    assert why in found.why


@pytest.mark.parametrize("size", [1, 12, 16, 17, 40, HEADER_BYTES, HEADER_BYTES + 3])
def test_a_first_batch_that_is_cut_short_cannot_be_read_and_a_later_one_is_left_for_the_next_fetch(size: int) -> None:
    batch = raw_batch(b"one")
    assert unreadable(read(batch[:size])).why == "the batch is cut short"
    assert [one.value for one in read(batch + based(batch, 1)[:size])] == [b"one"]


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_a_format_that_nobody_knows_cannot_be_read(magic: int) -> None:
    batch = bytearray(raw_batch(b"one"))
    batch[16] = magic
    assert unreadable(read(sealed(batch))).why == f"a batch of the format {magic}"


def test_a_size_that_leads_far_behind_the_end_is_not_followed() -> None:
    """Bytes there would end the process."""
    far = b"\xfe\xff\xff\xff\x1f"  # 4,294,967,295
    found = unreadable(read(raw_batch(b"one", patch=lambda b: b.replace(b"\x06key", far + b"key"))))
    assert "out of range" in found.why


@given(st.data())
def test_no_bytes_raise(data: st.DataObject) -> None:
    batch = bytearray(raw_batch(b"one", b"two", headers=[("a", b"1")], codec=data.draw(st.sampled_from(list(CODECS)))))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    read(sealed(batch))
    batch[data.draw(st.integers(8, HEADER_BYTES - 1))] = data.draw(st.integers(0, 255))
    read(bytes(batch))
    read(data.draw(st.binary(max_size=200)))
