"""What the replicator appends for fetched batches: every offset of the source keeps its offset at the target.

A filler is a marked record without data that stands for an offset with no record to copy.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID, is_filler
from fairlead.kafka.protocol.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, parse_header, verify_crc
from fairlead.kafka.protocol.codecs import Codec, compress
from fairlead.kafka.protocol.coding import encode_signed
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch, encode_batch
from replication.batch.header_rewrite import canonical_crc
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import POSITION_KEY, Gap, Prepared, PreparedBatch, RejectedBatch
from replication.batch.rebuild import MAX_FILLER, fillers, split_batch
from tests.support.batches import seal


def batch(
    offset: int,
    count: int,
    *,
    producer: int = PRODUCER_ID,
    epoch: int = 1,
    sequence: int | None = None,
    codec: Codec = Codec.NONE,
    flags: int = 0,
) -> bytearray:
    """Return a batch as stored at ``offset``."""
    new = [NewRecord(f"v{n}".encode(), b"k", timestamp_ms=1000 + n) for n in range(offset, offset + count)]
    made = bytearray(
        encode_batch(
            new, producer_id=producer, epoch=epoch, sequence=offset if sequence is None else sequence, codec=codec
        )
    )
    struct.pack_into(">q", made, 0, offset)
    made[22] |= flags
    seal(made)
    return made


def with_holes(offset: int, deltas: list[int], last: int, codec: Codec, *, producer: int) -> bytearray:
    """Return a batch of which compaction has left only some records (offset deltas), as a broker stores it."""
    full = decode_batch(batch(offset, last + 1, producer=producer))
    kept = [record for record in full if record.offset - offset in deltas]
    parts = bytearray()
    for record in kept:
        body = b"\0" + encode_signed(record.timestamp_ms - 1000 - offset) + encode_signed(record.offset - offset)
        body += encode_signed(1) + b"k" + encode_signed(len(record.value or b"")) + (record.value or b"") + b"\0"
        parts += encode_signed(len(body)) + body
    made = batch(offset, last + 1, producer=producer)[:61] + compress(codec, bytes(parts))
    made[22] |= int(codec)
    struct.pack_into(">i", made, 57, len(kept))
    seal(made)
    return made


def view(*batches: bytearray) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def appended(found: list[Prepared]) -> list[Record]:
    """Return the content of the target after the append, with fillers for gaps."""
    out: list[Record] = []
    for step in found:
        assert not isinstance(step, RejectedBatch)
        for prepared in fillers(step) if isinstance(step, Gap) else [step]:
            raw = bytearray(prepared.data)
            assert verify_crc(raw)
            header = parse_header(raw)
            assert (header.base_offset, header.count) == (0, prepared.records)
            assert not header.attributes & (TRANSACTIONAL | CONTROL | LOG_APPEND_TIME)
            assert header.crc == prepared.crc
            struct.pack_into(">q", raw, 0, prepared.base)
            out += decode_batch(raw)
    return out


def test_own_batches_go_as_they_are_but_for_the_base_offset() -> None:
    """Batches written by Fairlead are copied unchanged except for the base offset."""
    stored = batch(7, 3, epoch=4, sequence=2, codec=Codec.LZ4)
    (prepared,) = prepare_batches(view(stored), 7)
    assert isinstance(prepared, PreparedBatch)
    assert (prepared.base, prepared.stop, prepared.term, prepared.marker) == (7, 10, 4, 5)
    assert bytes(prepared.data[8:]) == bytes(stored[8:])
    assert not prepared.opens_term


def test_a_marker_opens_its_term() -> None:
    """A custody marker opens its term."""
    (prepared,) = prepare_batches(view(batch(9, 1, epoch=2, sequence=0)), 9)
    assert isinstance(prepared, PreparedBatch)
    assert prepared.opens_term


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("producer", [-1, 4711])
def test_foreign_batches_are_restamped(codec: Codec, producer: int) -> None:
    """Batches of other clients get the replicator's producer id, epoch and sequence."""
    stored = batch(7, 3, producer=producer, epoch=-1 if producer < 0 else 3, sequence=-1, codec=codec)
    before = decode_batch(stored)
    found = list(prepare_batches(view(stored), 7))
    (prepared,) = found
    assert isinstance(prepared, PreparedBatch)
    header = parse_header(prepared.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (FOREIGN_PRODUCER_ID, 0, 7)
    assert appended(found) == before
    assert canonical_crc(view(stored), parse_header(stored)) == prepared.crc


def test_restamping_a_copy_changes_nothing() -> None:
    """Doing so again to a copy changes nothing: a chain of replicas carries the same bytes."""
    (first,) = prepare_batches(view(batch(7, 3, producer=4711)), 7)
    assert isinstance(first, PreparedBatch)
    again = bytearray(first.data)
    struct.pack_into(">q", again, 0, 7)
    (second,) = prepare_batches(memoryview(again), 7)
    assert isinstance(second, PreparedBatch)
    assert bytes(first.data) == bytes(second.data)


def test_what_is_below_the_position_is_skipped() -> None:
    """Records below the target's position are skipped."""
    assert [step.base for step in prepare_batches(view(batch(0, 3), batch(3, 3), batch(6, 3)), 6)] == [6]


def test_a_target_that_ends_inside_an_own_batch_has_diverged() -> None:
    """A target that ends inside a batch written by Fairlead has diverged."""
    (rejected,) = prepare_batches(view(batch(0, 5)), 3)
    assert isinstance(rejected, RejectedBatch)
    assert rejected.diverged


def test_a_foreign_batch_is_cut_at_the_position() -> None:
    """A batch of another client is cut at the target's position."""
    found = list(prepare_batches(view(batch(0, 5, producer=-1)), 3))
    assert [record.offset for record in appended(found)] == [3, 4]


@given(
    kept=st.sets(st.integers(0, 9), min_size=1, max_size=9),
    codec=st.sampled_from(list(Codec)),
    producer=st.sampled_from([-1, PRODUCER_ID]),
)
def test_holes_inside_a_batch_are_filled(kept: set[int], codec: Codec, producer: int) -> None:
    """Missing offsets inside a batch become fillers."""
    found = list(prepare_batches(view(with_holes(20, sorted(kept), 9, codec, producer=producer)), 20))
    records = appended(found)
    assert [record.offset for record in records] == list(range(20, 30))
    assert {record.offset - 20 for record in records if not is_filler(record)} == kept
    assert all(record.value == f"v{record.offset}".encode() for record in records if not is_filler(record))


def test_holes_between_batches_control_batches_and_aborted_transactions_become_fillers() -> None:
    """Missing offsets between batches, control batches and aborted transactions become fillers."""
    log = view(
        batch(0, 2, producer=5, flags=TRANSACTIONAL),  # aborted
        batch(2, 1, producer=5, flags=TRANSACTIONAL | CONTROL),  # its abort marker
        batch(3, 2, producer=5, flags=TRANSACTIONAL),  # committed
        batch(5, 1, producer=5, flags=TRANSACTIONAL | CONTROL),
        batch(9, 2, producer=-1),  # 6 to 8 are compacted away
    )
    records = appended(list(prepare_batches(log, 0, [(5, 0)])))
    assert [record.offset for record in records] == list(range(11))
    assert [record.offset for record in records if not is_filler(record)] == [3, 4, 9, 10]


def test_log_append_time_becomes_the_records_own_time() -> None:
    """With LogAppendTime, each record gets the batch's time as its own."""
    stored = batch(3, 2, producer=-1, flags=LOG_APPEND_TIME)
    struct.pack_into(">q", stored, 35, 777_000)
    seal(stored)
    assert [record.timestamp_ms for record in appended(list(prepare_batches(view(stored), 3)))] == [777_000, 777_000]


@settings(deadline=None)  # a filler batch of each size is built once, which takes a while
@given(
    base=st.integers(0, 5),
    marker=st.integers(0, MAX_FILLER + 500),
    length=st.integers(1, MAX_FILLER + 1000),
)
def test_fillers_cover_a_hole_in_sequence(base: int, marker: int, length: int) -> None:
    """The fillers for a gap cover it without overlap."""
    gap = Gap(base, base + length, PRODUCER_ID, 3, marker, 1000, POSITION_KEY)
    at, term = base, 0
    for prepared in fillers(gap, term=2, marker=0):
        assert prepared.base == at
        assert prepared.term in (2, 3)
        assert prepared.term >= term
        assert prepared.term == (3 if at >= marker else 2)
        header = parse_header(prepared.data)
        assert header.base_sequence == prepared.base - prepared.marker
        assert prepared.records <= MAX_FILLER
        at, term = prepared.stop, prepared.term
    assert at == gap.stop


@pytest.mark.parametrize("producer", [-1, 7, FOREIGN_PRODUCER_ID, PRODUCER_ID])
@pytest.mark.parametrize("at", [22, 61])  # a control bit is set; or a record is changed
def test_no_damaged_batch_gets_a_checksum_that_is_right(producer: int, at: int) -> None:
    """A damaged batch is never given a valid checksum."""
    damaged = batch(3, 3, producer=producer, sequence=3)
    damaged[at] ^= CONTROL
    before, found, after = prepare_batches(
        view(batch(0, 3, producer=producer), damaged, batch(6, 3, producer=producer)), 0
    )
    assert isinstance(before, PreparedBatch) and isinstance(after, PreparedBatch)
    if isinstance(found, PreparedBatch):
        assert not verify_crc(found.data)  # so that the target's broker refuses it
    else:
        assert isinstance(found, RejectedBatch)
        assert "CRC of the batch at offset 3" in found.cause
        assert found.gap is not None
        assert (found.base, found.gap.base, found.gap.stop) == (3, 3, 6)
        assert found.damaged


@pytest.mark.parametrize("producer", [7, FOREIGN_PRODUCER_ID, PRODUCER_ID])
def test_a_damaged_batch_shows_no_hole_before_it(producer: int) -> None:
    """Its header may say anything; fillers would agree with the records that another source has there."""
    damaged = batch(5, 3, producer=producer, sequence=5)
    damaged[-1] ^= 0xFF
    before, found = prepare_batches(view(batch(0, 3, producer=producer), damaged), 0)
    assert isinstance(before, PreparedBatch) and isinstance(found, RejectedBatch)
    assert found.damaged and found.gap is not None
    assert (found.gap.base, found.gap.stop) == (3, 8)


@pytest.mark.parametrize("producer", [FOREIGN_PRODUCER_ID, PRODUCER_ID])
def test_a_damaged_batch_that_must_be_written_again_is_damaged_at_this_source(producer: int) -> None:
    """A damaged batch of our own that LogAppendTime would have us rebuild says that the source has damaged it."""
    stored = batch(3, 3, producer=producer, sequence=3, flags=LOG_APPEND_TIME)
    stored[-1] ^= 0xFF
    (found,) = prepare_batches(view(stored), 3)
    assert isinstance(found, RejectedBatch)
    assert found.damaged


def test_a_batch_that_claims_very_many_offsets_is_not_written_again() -> None:
    """Each offset would be a record in memory: 69 bytes of a forged batch claim two thousand million."""
    forged = batch(3, 1)
    struct.pack_into(">i", forged, 23, 2**31 - 1)
    seal(forged)
    (found,) = prepare_batches(view(forged), 3)
    assert isinstance(found, RejectedBatch)
    assert found.gap is not None
    assert (found.base, found.gap.base, found.gap.stop) == (3, 3, 3 + 2**31)


def test_a_batch_that_ends_before_it_begins_cannot_be_read() -> None:
    forged = batch(5, 1)
    struct.pack_into(">i", forged, 23, -3)
    seal(forged)
    with pytest.raises(CorruptBatch):
        list(prepare_batches(view(forged), 0))


def test_a_batch_whose_times_are_beyond_all_time_is_rejected_not_raised() -> None:
    """Written again, or split, it has the times of its records, which are the sum of two numbers."""
    new = [NewRecord(b"v", timestamp_ms=each) for each in (1, 2**62)]
    stored = bytearray(encode_batch(new, producer_id=7, epoch=0, sequence=0))
    struct.pack_into(">q", stored, 27, 2**62 + 1)
    struct.pack_into(">i", stored, 23, 2)
    seal(stored)
    (found,) = prepare_batches(view(stored), 0)
    assert isinstance(found, RejectedBatch)
    assert found.gap is not None and not found.damaged
    struct.pack_into(">i", stored, 23, 1)
    seal(stored)
    (whole,) = prepare_batches(view(stored), 0)
    assert isinstance(whole, PreparedBatch)
    assert isinstance(split_batch(whole, len(stored) - 1), RejectedBatch)
