"""Reads what a fetch brought, batch by batch, in place of aiokafka's own reader.

aiokafka raises where the name of a header is not UTF-8, misreads a record that sets a bit of its attributes which Kafka
keeps for later, and loses what it just read of other partitions when it meets bytes that nobody can read. Here every
record that a broker takes is read, and a batch that cannot be read stands as one `Unreadable` behind all that can.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

import aiokafka
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.legacy_records import _LegacyRecordBatchPy
from aiokafka.record.util import decode_varint, decode_varint_py

from streams.kafka.decompression import TooLarge, decompressed

_LENGTH_AT: Final = 8
_OVERHEAD_BYTES: Final = 12
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_VARINT_BYTES: Final = 10
# Behind every offset that is asked for: aiokafka passes over what lies before.
_OFFSET: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands as the value of a record where the rest of a batch cannot be read; that record's offset means nothing.

    `next_offset` is the one behind the batch, as far as its header can be believed; None where it cannot.
    """

    why: str
    next_offset: int | None

    def __len__(self) -> int:
        return 0  # a record's value has a size


class _Corrupt(Exception):
    """These bytes are not what they should be, in words."""


class Batches:
    """The batches of one partition in the answer to a fetch, the last of which may be cut short."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._batch: Any = None

    def size_in_bytes(self) -> int:
        return len(self._data)

    def has_next(self) -> bool:
        """Whether a whole batch is left. The first one must be whole: no broker cuts it short."""
        if self._at >= len(self._data) or (self._batch is not None and self._batch.failed):
            return False
        return self._at == 0 or self._end() <= len(self._data)

    def next_batch(self) -> Any:
        """Return the next batch; behind one that cannot be read comes none."""
        begin, end = self._at, self._end()
        try:
            if not begin + _MAGIC_AT < end <= len(self._data):
                raise _Corrupt("the batch is cut short")
            self._batch = _read_batch(self._data[begin:end])
        except Exception as error:  # noqa: BLE001  # the decoders' edge: whatever they raise, these bytes are not a batch
            self._batch = _GivenBatch([_standing_for(error, self._next_offset(begin))], _OFFSET + 1, failed=True)
        else:
            self._at = end
        return self._batch

    def _end(self) -> int:
        length = self._data[self._at + _LENGTH_AT : self._at + _OVERHEAD_BYTES]
        return self._at + _OVERHEAD_BYTES + int.from_bytes(length, signed=True)

    def _next_offset(self, begin: int) -> int | None:
        try:
            return int(_Batch(self._data[begin:]).next_offset)
        except Exception:  # noqa: BLE001  # the same edge: not even a header
            return None


def use_own_reader(client: aiokafka.AIOKafkaConsumer) -> None:
    """Have *client*, which is started, read what it fetches from now on with `Batches`.

    aiokafka names its reader as a global: the method gets a copy of its globals in which it is another one.
    """
    fetch = Fetcher._proc_fetch_request
    own = FunctionType(fetch.__code__, {**fetch.__globals__, "MemoryRecords": Batches}, fetch.__name__)
    client._fetcher._proc_fetch_request = own.__get__(client._fetcher)


def _read_batch(data: memoryview) -> Any:
    magic = data[_MAGIC_AT]
    if magic < _MAGIC:
        return _read_old_batch(_LegacyRecordBatchPy(bytes(data), magic))
    batch = _Batch(data)
    if magic != _MAGIC:
        raise _Corrupt(f"a batch of the format {magic}")
    if not batch.validate_crc():
        raise _Corrupt("the checksum is wrong")
    return batch


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]  # it is closed to subclasses for its authors' sake
    failed = False
    _buffer: bytearray
    _decompressed: bool
    _pos: int
    _lowest_delta = 0

    def __iter__(self) -> Iterator[Any]:
        try:
            self._maybe_uncompress()
            while (record := next(self, None)) is not None:
                yield record
        except Exception as error:  # noqa: BLE001  # the decoders' edge: these bytes are no records
            self.failed = True
            yield _standing_for(error, self.next_offset)

    def _maybe_uncompress(self) -> None:
        if not self._decompressed and self.compression_type != self.CODEC_NONE:
            self._buffer = decompressed(self.compression_type, memoryview(self._buffer)[self._pos :])
            self._pos = 0
        self._decompressed = True

    def _read_msg(self, decode_varint: Any = decode_varint) -> _DefaultRecordPy:
        buffer: bytearray = self._buffer
        pos = self._pos
        # aiokafka's compiled reader of numbers looks at no bounds: too near to the end it would read what is behind it.
        last_safe = len(buffer) - _VARINT_BYTES

        def number() -> int:
            nonlocal pos
            value, pos = decode_varint(buffer, pos) if pos <= last_safe else decode_varint_py(buffer, pos)
            return int(value)

        def text() -> bytes | None:
            nonlocal pos
            if (length := number()) < 0:
                return None
            pos += length
            return bytes(buffer[pos - length : pos])

        length = number()
        end = pos + length
        if end > len(buffer):
            raise _Corrupt("a record is cut short")
        pos += 1  # its attributes, of which none means anything yet
        time = self.first_timestamp + number()
        offset = self._offset(number())
        key, value = text(), text()
        headers = [(_name(text()), text()) for _ in range(number())]
        if pos != end:
            raise _Corrupt("a record is not as long as it says")
        self._pos = pos
        if self.timestamp_type == self.LOG_APPEND_TIME:
            time = self.max_timestamp
        return _DefaultRecordPy(offset, _int64(time), self.timestamp_type, key, value, headers)

    def _offset(self, delta: int) -> int:
        """Return the offset of the record that is read. No broker looks at what a producer says of it.

        Without compaction a batch has one record for each of its offsets, in order.
        """
        if self._num_records == self.last_offset_delta + 1:
            return int(self.base_offset + self._next_record_index)
        if not self._lowest_delta <= delta <= self.last_offset_delta:
            raise _Corrupt("the offsets of its records do not grow")
        self._lowest_delta = delta + 1
        return int(self.base_offset + delta)


def _int64(number: int) -> int:
    """What is left of a number in 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _name(data: bytes | None) -> str:
    """Read the name of a header; a byte that is not UTF-8 becomes four characters, as in a Python literal."""
    if data is None:
        raise _Corrupt("a header has no name")
    return data.decode("utf-8", "backslashreplace")


class _GivenBatch:
    """Records that are read already. Nothing is believed of transactions where they come from."""

    is_control_batch = False
    is_transactional = False
    producer_id = None

    def __init__(self, records: Sequence[_DefaultRecordPy], next_offset: int, *, failed: bool = False) -> None:
        self._records = records
        self.next_offset = next_offset
        self.failed = failed

    def validate_crc(self) -> bool:
        return True

    def __iter__(self) -> Iterator[_DefaultRecordPy]:
        return iter(self._records)


def _read_old_batch(batch: _LegacyRecordBatchPy) -> _GivenBatch:
    """Read a batch of a time in which records had no headers, and at first no time either."""
    if not batch.validate_crc():
        raise _Corrupt("the checksum is wrong")
    records = [
        _DefaultRecordPy(one.offset, -1 if one.timestamp is None else one.timestamp, 0, one.key, one.value, [])
        for one in batch
    ]
    return _GivenBatch(records, batch.next_offset)


def _standing_for(error: Exception, next_offset: int | None) -> _DefaultRecordPy:
    why = str(error) if isinstance(error, _Corrupt | TooLarge) else repr(error)
    return _DefaultRecordPy(_OFFSET, -1, 0, None, Unreadable(why, next_offset), [])
