"""The append convention as arithmetic: terms, markers, sequences, fillers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import FairleadError
from fairlead.kafka import convention as c
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch
from tests.support.batches import foreign_batch
from tests.support.kafka.strategies import offsets, record_lists, terms


def at(batch: bytes, offset: int) -> bytes:
    """As stored at ``offset``."""
    return struct.pack(">q", offset) + batch[8:]


@given(offsets, st.integers(0, 2**33))
def test_sequence_continues_over_its_wrap(marker: int, distance: int) -> None:
    here = c.sequence(marker + distance, marker)
    following = c.sequence(marker + distance + 1, marker)
    assert 0 <= here < 2**31
    assert following == (0 if here == 2**31 - 1 else here + 1)


def test_sequence_wraps_at_two_to_the_31() -> None:
    assert c.sequence(100 + 2**31 - 1, 100) == 2**31 - 1
    assert c.sequence(100 + 2**31, 100) == 0


@given(record_lists, terms, offsets, st.integers(0, 2**31 - 1), st.sampled_from(Codec))
def test_any_batch_of_a_term_tells_where_the_term_began(
    records: list[NewRecord], term: int, marker: int, distance: int, codec: Codec
) -> None:
    offset = marker + distance
    header = parse_header(at(c.term_batch(records, term=term, offset=offset, marker=marker, codec=codec), offset))
    assert c.is_ours(header)
    assert header.producer_id == 2**62 and header.producer_epoch == term
    assert c.marker_offset(header) == marker


@given(record_lists, offsets)
def test_foreign_batches_count_from_the_logs_beginning(records: list[NewRecord], offset: int) -> None:
    header = parse_header(foreign_batch(records, offset=offset))
    assert not c.is_ours(header)
    assert header.producer_id == 2**62 + 2**32 and header.producer_epoch == 0
    assert header.base_sequence == offset % 2**31


@given(st.integers(1, 300), terms, offsets, st.one_of(st.none(), st.binary(max_size=9)))
def test_fillers_stand_for_their_offsets(count: int, term: int, offset: int, key: bytes | None) -> None:
    marker = max(0, offset - 7)
    batch = c.filler_batch(count, term=term, offset=offset, marker=marker, timestamp_ms=1234, key=key)
    header = parse_header(batch)
    assert header.base_sequence == c.sequence(offset, marker) and not header.has_holes
    records = decode_batch(at(batch, offset))
    assert [record.offset for record in records] == list(range(offset, offset + count))
    assert all(c.is_filler(record) and not c.is_data(record) and not c.is_marker(record) for record in records)
    assert {(record.timestamp_ms, record.key, record.value) for record in records} == {(1234, key, None)}


def test_largest_filler_batch_fits_into_a_default_topic() -> None:
    batch = c.filler_batch(c.FILLERS_PER_BATCH, term=1, offset=0, marker=0, timestamp_ms=1)
    assert len(batch) < 1_048_588
    assert parse_header(batch).count == 100_000


def test_fillers_of_a_foreign_log() -> None:
    header = parse_header(c.filler_batch(5, term=0, offset=2**31 + 3, marker=-1, timestamp_ms=1))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (c.FOREIGN_PRODUCER_ID, 0, 3)


@pytest.mark.parametrize("count", [0, c.FILLERS_PER_BATCH + 1])
def test_number_of_fillers_is_bounded(count: int) -> None:
    with pytest.raises(FairleadError, match="100000"):
        c.filler_batch(count, term=1, offset=0, marker=0, timestamp_ms=1)


def test_fillers_are_never_dated_before_1970() -> None:
    with pytest.raises(FairleadError, match="-1"):
        c.filler_batch(1, term=1, offset=0, marker=0, timestamp_ms=-1)


@pytest.mark.parametrize("term", [0, -1, 32768])
def test_terms_that_are_no_epoch_are_refused(term: int) -> None:
    with pytest.raises(FairleadError, match="32767"):
        c.term_batch([NewRecord(b"x", timestamp_ms=1)], term=term, offset=0, marker=0)


def test_markers_are_told_from_data() -> None:
    marker = c.marker_record(b"{}", timestamp_ms=5, key=b"k")
    data = NewRecord(b"{}", headers=(("received", b"5"),), timestamp_ms=5)
    assert c.is_marker(marker) and not c.is_data(marker) and not c.is_filler(marker)
    assert c.is_data(data) and not c.is_marker(data)
    assert c.is_data(Record(0, 0, None, b"x", (("fairlead", b"something later"),)))
