"""Batches above the target's size limit are split; their records keep offsets and sequences."""

from __future__ import annotations

import random
import struct

import pytest

from fairlead.kafka.convention import FENCE_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.batch import CONTROL, TRANSACTIONAL, parse_header
from fairlead.kafka.protocol.codecs import Codec
from replication.batch.batch_diff import conflict, prepared_conflict
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import PreparedBatch, RejectedBatch
from replication.batch.rebuild import FEW_FILLERS, raw_records, split_batch
from tests.support.replication.source_logs import NOW, Made, body, stored


def chance(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311 - content that does not compress, no secret


def prepared(codec: Codec, count: int, size: int, *, base: int = 40, producer: int = PRODUCER_ID) -> PreparedBatch:
    records = [Made(base + n, NOW + n, body(b"k", chance(size, n), [(b"\xff", None)])) for n in range(count)]
    ours = producer == PRODUCER_ID
    batch = stored(
        base, base + count - 1, records, producer=producer, epoch=3 if ours else -1, sequence=10 if ours else -1,
        codec=codec,
    )  # fmt: skip
    (made,) = prepare_batches(memoryview(bytearray(batch)), base)
    assert isinstance(made, PreparedBatch)
    return made


def at_their_offsets(items: list[PreparedBatch]) -> list[tuple[int, int, bytes]]:
    return [
        (each.base + record.offset, record.timestamp_ms, record.body)
        for each in items
        for record in raw_records(each.data)
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("producer", [PRODUCER_ID, -1])
def test_every_piece_fits_and_nothing_else_changes(codec: Codec, producer: int) -> None:
    """Every part is within the limit, and nothing else changes."""
    whole = prepared(codec, 30, 200, producer=producer)
    pieces = split_batch(whole, 1500)
    assert isinstance(pieces, list)
    assert 5 <= len(pieces) <= 10
    assert max(len(each.data) for each in pieces) <= 1500
    assert at_their_offsets(pieces) == at_their_offsets([whole])
    at, first = whole.base, parse_header(whole.data).base_sequence
    for each in pieces:
        header = parse_header(each.data)
        assert each.base == at
        assert header.base_sequence == first + at - whole.base
        assert (each.producer_id, each.term, each.marker) == (whole.producer_id, whole.term, whole.marker)
        assert (header.producer_id, header.producer_epoch, header.codec) == (each.producer_id, each.term, codec)
        assert (header.crc, header.count) == (each.crc, each.records)
        at = each.stop
    assert at == whole.stop


def test_what_fits_stays_what_it_is() -> None:
    """A batch within the limit is left as it is."""
    whole = prepared(Codec.LZ4, 3, 100)
    assert split_batch(whole, len(whole.data)) == [whole]


def test_a_record_alone_above_the_limit_is_named() -> None:
    """A single record above the limit is reported with its offset."""
    found = split_batch(prepared(Codec.NONE, 3, 900), 900)
    assert isinstance(found, RejectedBatch)
    assert not found.diverged
    assert found.base == 40
    assert "offset 40" in found.cause and "900" in found.cause


def test_records_of_very_different_sizes() -> None:
    """Records of very different sizes are split correctly."""
    records = [Made(n, NOW, body(None, chance(1000 if n == 5 else 1, n))) for n in range(300)]
    (whole,) = prepare_batches(memoryview(bytearray(stored(0, 299, records, codec=Codec.GZIP))), 0)
    assert isinstance(whole, PreparedBatch)
    pieces = split_batch(whole, 1200)
    assert isinstance(pieces, list)
    assert max(len(each.data) for each in pieces) <= 1200
    assert at_their_offsets(pieces) == at_their_offsets([whole])


def test_pieces_do_not_contradict_the_whole_and_another_batch_does() -> None:
    """The parts of a batch do not contradict the whole one, but another batch does.

    This is compared before a replica is called diverged: a next site may have the parts, and another one the whole.
    """
    whole = prepared(Codec.ZSTD, 20, 100)
    pieces = split_batch(whole, 800)
    assert isinstance(pieces, list)
    for each in pieces:
        there = bytearray(each.data)
        struct.pack_into(">q", there, 0, each.base)
        assert prepared_conflict(whole, there) == ""
        assert prepared_conflict(each, whole_at(whole)) == ""
    records = [Made(40 + n, NOW + n, body(b"k", b"other")) for n in range(20)]
    other = stored(40, 59, records, producer=PRODUCER_ID, epoch=3, sequence=10)
    assert "offset 40" in prepared_conflict(whole, other)


def whole_at(whole: PreparedBatch) -> bytes:
    out = bytearray(whole.data)
    struct.pack_into(">q", out, 0, whole.base)
    return bytes(out)


def test_contradictions_are_put_into_words() -> None:
    """Contradictions between batches are described in words."""
    one = [Made(7, NOW, body(b"k", b"v"))]

    def batch(records: list[Made], *, epoch: int = 1, sequence: int = 7, producer: int = PRODUCER_ID) -> bytes:
        return stored(7, 7, records, producer=producer, epoch=epoch, sequence=sequence)

    assert conflict(batch(one), batch(one)) == ""
    assert "time" in conflict(batch(one), batch([Made(7, NOW + 1, one[0].body)]))
    assert "different" in conflict(batch(one), batch([Made(7, NOW, body(b"k", b"w"))]))
    assert "term 2" in conflict(batch(one), batch(one, epoch=2))
    assert "began at" in conflict(batch(one), batch(one, sequence=6))
    assert "producer" in conflict(batch(one), batch(one, producer=9))
    filler = [Made(7, NOW, body(b"fairlead.hole", None, [(b"fairlead", b"filler")]))]
    assert conflict(batch(one), batch(filler, epoch=2)) == ""  # only one site lost it by compaction
    assert conflict(batch(one), stored(8, 8, [Made(8, NOW, one[0].body)])) == ""  # the batches share no offset
    fence = batch(filler, epoch=FENCE_EPOCH, sequence=0, producer=FOREIGN_PRODUCER_ID)
    ordinary = batch(one, producer=-1, epoch=-1, sequence=-1)
    assert "different" in conflict(ordinary, fence)  # the site that was promoted never had this record
    assert "different" in conflict(fence, ordinary)
    assert conflict(fence, batch(filler, producer=FOREIGN_PRODUCER_ID, epoch=0)) == ""
    assert conflict(fence, fence) == ""
    mark = stored(7, 7, [Made(7, NOW, body(bytes(4), bytes(6)))], producer=5, epoch=0, flags=TRANSACTIONAL | CONTROL)
    assert "ends a transaction" in conflict(mark, ordinary)
    assert "ends a transaction" in conflict(ordinary, mark)
    assert [conflict(mark, each) for each in (mark, fence, batch(filler))] == ["", "", ""]
    broken = bytearray(batch(one))
    broken[-1] ^= 1
    assert "cannot be compared" in conflict(bytes(broken), batch(one))


def test_an_uncompressed_batch_with_very_many_holes_is_compressed_so_that_it_does_not_grow() -> None:
    """An uncompressed batch with very many gaps is compressed, so that fillers do not make it grow."""
    last = 20_000
    batch = stored(0, last, [Made(0, NOW, body(b"k", b"v")), Made(last, NOW, body(b"k", b"w"))])
    (made,) = prepare_batches(memoryview(bytearray(batch)), 0)
    assert isinstance(made, PreparedBatch)
    assert len(made.data) < last
    few = stored(0, FEW_FILLERS, [Made(0, NOW, body(b"k", b"v"))])
    (made,) = prepare_batches(memoryview(bytearray(few)), 0)
    assert isinstance(made, PreparedBatch)
    assert parse_header(made.data).codec is Codec.NONE


def test_what_an_operator_lets_go_has_its_offsets_with_it() -> None:
    """If an operator lets a batch be skipped, its offsets become fillers."""
    broken = bytearray(stored(3, 5, [Made(3, NOW, body(b"k", b"v"))]))
    broken[-1] ^= 1
    good = stored(6, 6, [Made(6, NOW, body(b"k", b"v"))])
    rejected, item_ = prepare_batches(memoryview(broken + good), 3)
    assert isinstance(rejected, RejectedBatch) and isinstance(item_, PreparedBatch)
    assert rejected.gap is not None
    assert (rejected.gap.base, rejected.gap.stop) == (3, 6)
