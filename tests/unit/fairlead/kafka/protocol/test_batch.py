"""Batches from outside: headers, boundaries, CRC."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header, split, verify_crc, zero_base_offset
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from tests.support.kafka.strategies import codecs, offsets, record_lists


def batch(
    count: int = 1, *, base: int = 0, value: bytes = b"value", codec: Codec = Codec.NONE, sequence: int = 0
) -> bytes:
    """A stored batch at ``base``."""
    records = [NewRecord(value, timestamp_ms=1000 + index) for index in range(count)]
    out = bytearray(encode_batch(records, producer_id=7, epoch=3, sequence=sequence, codec=codec))
    struct.pack_into(">q", out, 0, base)
    return bytes(out)


@given(record_lists, codecs, offsets, st.integers(0, 2**62), st.integers(0, 32767), st.integers(0, 2**31 - 1))
def test_header_is_what_kafka_python_reads(
    records: list[NewRecord], codec: Codec, base: int, producer: int, epoch: int, sequence: int
) -> None:
    data = bytearray(encode_batch(records, producer_id=producer, epoch=epoch, sequence=sequence, codec=codec))
    struct.pack_into(">q", data, 0, base)
    header, oracle = parse_header(data), DefaultRecordBatch(bytes(data))
    assert oracle.validate_crc() and verify_crc(data)
    assert (header.base_offset, header.crc, header.attributes) == (oracle.base_offset, oracle.crc, oracle.attributes)
    assert (header.last_offset, header.next_offset) == (oracle.last_offset, oracle.next_offset)
    assert (header.producer_id, header.producer_epoch) == (oracle.producer_id, oracle.producer_epoch)
    assert (header.base_sequence, header.count) == (oracle.base_sequence, oracle.records_count)
    assert (header.max_timestamp, header.size) == (oracle.max_timestamp, len(data))
    assert header.codec is codec and not header.has_holes and not header.is_control and not header.is_transactional


@given(st.lists(st.tuples(st.integers(1, 5), codecs), max_size=6), st.integers(0, 5), st.integers(0, 200))
def test_split_gives_every_complete_batch_and_drops_a_cut_tail(
    shapes: list[tuple[int, Codec]], before: int, cut: int
) -> None:
    base, parts = 100, []
    for count, codec in shapes:
        parts.append(batch(count, base=base, codec=codec))
        base += count
    whole = bytes(before) + b"".join(parts)
    buffer = whole[: len(whole) - cut] if cut else whole
    views = list(split(memoryview(buffer), before))
    complete, position = [], before
    for part in parts:
        position += len(part)
        if position <= len(buffer):
            complete.append(part)
    assert [buffer[view.start : view.stop] for view in views] == complete
    for earlier, later in itertools.pairwise(views):
        assert earlier.header.next_offset == later.header.base_offset


@given(st.data())
def test_any_changed_byte_under_the_crc_is_noticed(data: st.DataObject) -> None:
    stored = bytearray(batch(3, base=55))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    outside = at < 17  # base offset, length, leader epoch and magic
    assert verify_crc(stored) == outside


def test_crc_of_a_batch_inside_a_larger_buffer() -> None:
    one, two = batch(2, base=0), batch(3, base=2)
    assert verify_crc(one + two, len(one), len(one) + len(two))
    assert not verify_crc(one + two, 0, len(one) + len(two))
    assert not verify_crc(one[: HEADER_BYTES - 1])


def test_zeroing_the_base_offset_changes_nothing_else() -> None:
    stored = bytearray(b"head" + batch(2, base=77))
    zero_base_offset(stored, 4)
    assert bytes(stored[4:]) == batch(2, base=0) and verify_crc(stored, 4)


def test_old_format_is_named() -> None:
    old = bytearray(batch())
    old[16] = 1
    with pytest.raises(CorruptBatch, match="format 1"):
        list(split(old))
    with pytest.raises(CorruptBatch, match="format 1"):
        parse_header(old)


def test_impossible_length_is_noticed() -> None:
    stored = bytearray(batch())
    struct.pack_into(">i", stored, 8, 10)
    with pytest.raises(CorruptBatch, match="10 bytes"):
        list(split(stored))


def test_too_few_bytes_for_a_header() -> None:
    with pytest.raises(CorruptBatch, match="60 bytes"):
        parse_header(bytes(60))


def test_holes_control_and_transactions_show_in_the_header() -> None:
    stored = bytearray(batch(2))
    struct.pack_into(">i", stored, 23, 4)
    assert parse_header(stored).has_holes
    struct.pack_into(">h", stored, 21, 0x30)
    header = parse_header(stored)
    assert header.is_control and header.is_transactional
