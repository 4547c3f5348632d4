"""Records inside a batch against kafka-python's reader and writer, and an independent decompression."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from fairlead.errors import FairleadError
from fairlead.kafka.protocol.batch import HEADER_BYTES
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.coding import encode_signed
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, Record, build_batch, decode_batch, encode_batch
from tests.support.batches import seal
from tests.support.kafka.oracle import independent
from tests.support.kafka.strategies import codecs, offsets, record_lists


def stored(records: list[NewRecord], base: int, codec: Codec = Codec.NONE) -> bytearray:
    data = bytearray(encode_batch(records, producer_id=1, epoch=0, sequence=0, codec=codec))
    struct.pack_into(">q", data, 0, base)
    return data


def expected(records: list[NewRecord], base: int) -> list[Record]:
    return [
        Record(base + index, record.timestamp_ms, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]


@given(record_lists, codecs, offsets)
def test_records_come_back_with_absolute_offsets(records: list[NewRecord], codec: Codec, base: int) -> None:
    assert decode_batch(stored(records, base, codec)) == expected(records, base)


def test_many_records_need_longer_numbers() -> None:
    records = [NewRecord(b"v" * index, timestamp_ms=10**12 + 977 * index) for index in range(300)]
    assert decode_batch(stored(records, 2**40)) == expected(records, 2**40)


@given(record_lists, codecs, offsets)
def test_kafka_python_reads_the_same_records(records: list[NewRecord], codec: Codec, base: int) -> None:
    data = stored(records, base, codec)
    # kafka-python wants optional packages for three of the codecs: they are undone by another library first.
    plain = uncompressed(records)
    payload = independent(codec, bytes(data[HEADER_BYTES:]), len(plain) - HEADER_BYTES)
    assert payload == plain[HEADER_BYTES:]
    rebuilt = data[:HEADER_BYTES] + payload
    struct.pack_into(">h", rebuilt, 21, 0)
    seal(rebuilt)
    found = [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in DefaultRecordBatch(bytes(rebuilt))
    ]
    assert found == expected(records, base)


def uncompressed(records: list[NewRecord]) -> bytes:
    return encode_batch(records, producer_id=1, epoch=0, sequence=0)


@given(record_lists)
def test_bytes_are_those_that_kafka_python_writes(records: list[NewRecord]) -> None:
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=4,
        producer_epoch=5,
        base_sequence=6,
        batch_size=1 << 24,
    )
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    oracle = bytearray(builder.build())
    ours = bytearray(encode_batch(records, producer_id=4, epoch=5, sequence=6))
    oracle[12:16] = ours[12:16]  # partitionLeaderEpoch: the broker's business, outside the CRC
    assert ours == oracle


@given(record_lists)
def test_size_bound_holds(records: list[NewRecord]) -> None:
    payload = len(uncompressed(records)) - HEADER_BYTES
    assert payload <= sum(record.size_bound() for record in records)


def test_log_append_time_replaces_the_records_times() -> None:
    data = stored([NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=9)], 0)
    struct.pack_into(">h", data, 21, 0x08)
    seal(data)
    assert [record.timestamp_ms for record in decode_batch(data)] == [9, 9]


def test_control_batch_has_no_records() -> None:
    data = stored([NewRecord(b"\0\0\0\1", timestamp_ms=5)], 0)
    struct.pack_into(">h", data, 21, 0x20)
    seal(data)
    assert decode_batch(data) == []


def test_wrong_crc_is_an_error_that_names_the_offset() -> None:
    data = stored([NewRecord(b"abc", timestamp_ms=5)], 4711)
    data[-3] ^= 1
    with pytest.raises(CorruptBatch, match="4711") as caught:
        decode_batch(data)
    assert caught.value.fields["offset"] == 4711


def test_batch_that_is_cut_short_is_an_error() -> None:
    data = stored([NewRecord(b"abc", timestamp_ms=5)], 0)
    with pytest.raises(CorruptBatch, match="cut short"):
        decode_batch(data[:-1])
    with pytest.raises(CorruptBatch, match="cut short"):
        decode_batch(data, 0, len(data) - 1)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_count_that_does_not_match_the_bytes_is_an_error(count: int) -> None:
    data = stored([NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=5)], 0)
    struct.pack_into(">i", data, 57, count)
    seal(data)
    with pytest.raises(CorruptBatch):
        decode_batch(data)


def test_unknown_compression_is_an_error() -> None:
    data = stored([NewRecord(b"a", timestamp_ms=5)], 0)
    struct.pack_into(">h", data, 21, 6)
    seal(data)
    with pytest.raises(CorruptBatch, match="unknown compression 6"):
        decode_batch(data)


def test_no_records_and_negative_times_are_refused() -> None:
    with pytest.raises(FairleadError, match="at least one"):
        encode_batch([], producer_id=1, epoch=0, sequence=0)
    with pytest.raises(FairleadError, match="-1"):
        encode_batch([NewRecord(b"a", timestamp_ms=-1)], producer_id=1, epoch=0, sequence=0)


def batch_of(body: bytes) -> bytes:
    """A batch that claims to have one record, and has a good CRC."""
    return build_batch(body, count=1, base_timestamp=1, max_timestamp=1, producer_id=1, epoch=1, sequence=0)


def test_a_header_whose_name_has_a_negative_length_is_corrupt_and_not_read_for_ever() -> None:
    """Found by fuzzing: the reader went back by one byte with each of so many headers as the batch claimed to have."""
    count = b"\xfe\xff\xff\xff\x01"  # and its last byte is read again and again as a value that is null
    body = b"\0\0\0\1\1" + count + b"\x03"
    with pytest.raises(CorruptBatch, match="cannot be read"):
        decode_batch(batch_of(encode_signed(len(body)) + body))


def test_a_number_without_an_end_is_corrupt_and_does_not_grow_with_it() -> None:
    with pytest.raises(CorruptBatch, match="cannot be read"):
        decode_batch(batch_of(b"\xff" * 900_000))
