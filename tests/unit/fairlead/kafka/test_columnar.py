"""Batches as columns say the same as ``decode_batch``, which is the oracle, whatever anybody stored."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka import columnar
from fairlead.kafka.columnar import NONE, ByteSlices, Columns, Stretch
from fairlead.kafka.convention import PRODUCER_ID, filler_batch, is_ours, marker_record, term_batch
from fairlead.kafka.protocol.batch import CONTROL, HEADER_BYTES, LOG_APPEND_TIME, split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.coding import encode_signed
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, Record, build_batch, decode_batch, encode_batch
from tests.support.batches import foreign_batch, seal
from tests.support.kafka.strategies import codecs, new_records, terms

EVERYTHING = 2**62


def at(batch: bytes, offset: int, *, attributes: int = 0) -> bytes:
    """The batch as it is stored at an offset, with some attributes more."""
    stored = bytearray(batch)
    (before,) = struct.unpack_from(">h", stored, 21)
    struct.pack_into(">h", stored, 21, before | attributes)
    seal(stored)
    struct.pack_into(">q", stored, 0, offset)
    return bytes(stored)


class Stored(NamedTuple):
    """A log's batches one after the other, and the offset after them."""

    data: bytes
    end: int


@st.composite
def logs(draw: st.DrawFn) -> Stored:
    """A log with batches of Fairlead and of others, with holes between them."""
    offset = draw(st.integers(0, 2**40))
    parts: list[bytes] = []
    for _ in range(draw(st.integers(0, 5))):
        offset += draw(st.sampled_from((0, 0, 3)))
        records = draw(st.lists(new_records(), min_size=1, max_size=6))
        codec = draw(codecs)
        term = draw(terms)
        attributes = 0
        kind = draw(
            st.sampled_from(("ours", "ours", "foreign", "other", "filler", "marker", "control", "broker's time"))
        )
        match kind:
            case "ours":
                batch = term_batch(records, term=term, offset=offset, marker=0, codec=codec)
            case "foreign":
                batch = foreign_batch(records, offset=offset, codec=codec)
            case "filler":
                batch = filler_batch(7, term=term, offset=offset, marker=0, timestamp_ms=5)
                records = records[:1] * 7
            case "marker":
                records = [marker_record(b"m", timestamp_ms=9)]
                batch = term_batch(records, term=term, offset=offset, marker=offset)
            case _:
                batch = encode_batch(records, producer_id=-1, epoch=-1, sequence=-1, codec=codec)
                attributes = {"control": CONTROL, "broker's time": LOG_APPEND_TIME}.get(kind, 0)
        parts.append(at(batch, offset, attributes=attributes))
        offset += len(records)
    return Stored(b"".join(parts), offset)


def oracle(stored: Stored, first: int, stop: int) -> list[tuple[int, Record]]:
    """(term, record) of a log's range."""
    return [
        (view.header.producer_epoch if is_ours(view.header) else 0, record)
        for view in split(stored.data)
        for record in decode_batch(stored.data, view.start, view.stop)
        if first <= record.offset < stop
    ]


def piece(columns: Columns, slices: ByteSlices, row: int) -> bytes | None:
    start, size = int(slices.start[row]), int(slices.size[row])
    return columns.data[start : start + size] if size >= 0 else None


def rows(columns: Columns) -> list[list[tuple[int, Record]]]:
    """(term, record) of each stretch."""
    headers: dict[int, list[tuple[str, bytes | None]]] = {}
    for number, row in enumerate(columns.headers.row.tolist()):
        name = piece(columns, columns.headers.name, number)
        assert name is not None
        value = piece(columns, columns.headers.value, number)
        headers.setdefault(row, []).append((name.decode(errors="replace"), value))
    found: list[list[tuple[int, Record]]] = []
    for row in range(len(columns)):
        found += [[] for _ in range(int(columns.stretch[row]) + 1 - len(found))]
        record = Record(
            int(columns.offset[row]),
            int(columns.time_ms[row]),
            piece(columns, columns.key, row),
            piece(columns, columns.value, row),
            tuple(headers.get(row, ())),
        )
        found[int(columns.stretch[row])].append((int(columns.term[row]), record))
    return found


def whole(stored: Sequence[Stored]) -> list[Stretch]:
    return [columnar.stretch(each.data, 0, EVERYTHING) for each in stored]


@settings(deadline=None)
@given(st.lists(logs(), max_size=4), st.data())
def test_many_logs_say_the_same_as_their_batches_one_by_one(stored: list[Stored], data: st.DataObject) -> None:
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, each.end + 2)] * 2))) for each in stored]
    stretches = [columnar.stretch(each.data, *bound) for each, bound in zip(stored, bounds, strict=True)]
    found = rows(columnar.decode(stretches))
    expected = [oracle(each, *bound) for each, bound in zip(stored, bounds, strict=True)]
    assert found + [[] for _ in range(len(stored) - len(found))] == expected


def test_very_many_batches_at_once_and_a_long_one_between_them() -> None:
    one = [NewRecord(b"v" * 300, b"k", (("received", b"1"),), timestamp_ms=5)]
    long = [NewRecord(bytes(index), timestamp_ms=10**12 + 977 * index) for index in range(500)]
    logs = [b"".join(at(encode_batch(one * n, producer_id=1, epoch=0, sequence=0), 10 * n) for n in range(1, 8))] * 70
    logs.insert(30, at(encode_batch(long, producer_id=PRODUCER_ID, epoch=2, sequence=0, codec=Codec.LZ4), 2**50))
    stored = [Stored(data, 2**51) for data in logs]
    assert rows(columnar.decode(whole(stored))) == [oracle(each, 0, EVERYTHING) for each in stored]


def test_a_batch_that_is_cut_short_is_left_for_the_next_time() -> None:
    batch = at(encode_batch([NewRecord(b"v", timestamp_ms=1)], producer_id=1, epoch=0, sequence=0), 7)
    found = columnar.stretch(batch + batch[:-1], 0, EVERYTHING)
    assert (list(found.starts), found.end, found.after, found.records) == ([0], len(batch), 8, 1)
    nothing = columnar.stretch(batch[:-1], 3, EVERYTHING)
    assert (list(nothing.starts), nothing.after) == ([], 3)


def test_a_range_that_compaction_has_emptied_is_done_when_a_later_batch_is_seen() -> None:
    later = at(encode_batch([NewRecord(b"v", timestamp_ms=1)], producer_id=1, epoch=0, sequence=0), 70)
    found = columnar.stretch(later, 3, 60)
    assert (list(found.starts), found.after) == ([], 60)


def test_a_header_is_looked_up_as_kafka_does_the_last_one_counts() -> None:
    headers = (("late", b"0"), ("latest", b"x"), ("late", b"1"), ("none", None))
    records = [NewRecord(b"", None, headers, timestamp_ms=1), NewRecord(b"", timestamp_ms=1)]
    found = columnar.decode(whole([Stored(encode_batch(records, producer_id=1, epoch=0, sequence=0), 2)]))
    assert found.equal(found.header(b"late"), b"1").tolist() == [True, False]
    assert found.equal(found.header(b"late", first=True), b"0").tolist() == [True, False]
    assert found.header(b"none").size.tolist() == [columnar.NULL, NONE]
    assert found.header(b"other").size.tolist() == [NONE, NONE]
    assert found.where(found.header(b"late").size == NONE).offset.tolist() == [1]


def batch_around(payload: bytes, count: int = 1) -> bytes:
    return build_batch(
        payload, count=count, base_timestamp=0, max_timestamp=0, producer_id=1, epoch=0, sequence=0
    )  # fmt: skip


BODY = b"\0\0\0" + encode_signed(-1) + encode_signed(3) + b"abc"


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 1),
        (b"\0", -1),
        (b"\x0e", 2**31 - 1),
        (encode_signed(len(BODY) + 1) + BODY + b"\0" + b"\0", 1),  # something after the last record
        (encode_signed(len(BODY) + 2) + BODY + b"\0", 1),  # a record longer than it says
        (encode_signed(len(BODY)) + BODY + b"\0", 1),  # a record shorter than it says
        (encode_signed(-4) + BODY + b"\0", 1),
        (encode_signed(2**60) + BODY + b"\0", 1),
        (encode_signed(len(BODY) + 3) + BODY + b"\2\1\1", 1),  # a header without a name
        (encode_signed(len(BODY) + 3) + BODY + b"\4\0\1", 1),  # two headers, one there
        (b"\xff" * 40, 1),  # a number without an end
    ],
)
@pytest.mark.parametrize("others", [0, 100])
def test_what_the_oracle_cannot_read_is_corrupt_and_told_with_its_offset(
    payload: bytes, count: int, others: int
) -> None:
    bad = at(batch_around(payload, count), 99)
    with pytest.raises(CorruptBatch):
        decode_batch(bad)
    good = at(encode_batch([NewRecord(b"v", timestamp_ms=1)], producer_id=1, epoch=0, sequence=0), 5)
    stretches = whole([Stored(good, 6)] * others)
    stretches.insert(others // 2, Stretch(bad, [0], len(bad), 0, EVERYTHING, 100, 1))
    with pytest.raises(CorruptBatch) as error:
        columnar.decode(stretches)
    assert error.value.fields["offset"] == 99


@settings(deadline=None)
@given(st.lists(new_records(), min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_damaged_records_are_read_as_the_oracle_reads_them_or_refused(
    records: list[NewRecord], damage: list[tuple[int, int]]
) -> None:
    data = bytearray(encode_batch(records, producer_id=1, epoch=0, sequence=0))
    for place, value in damage:
        data[HEADER_BYTES + place % (len(data) - HEADER_BYTES)] = value
    seal(data)
    try:
        expected = decode_batch(data)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            columnar.decode([Stretch(data, [0], len(data), -(2**63), 2**63 - 1, 0, 1)])
        return
    found = rows(columnar.decode([Stretch(data, [0], len(data), -(2**63), 2**63 - 1, 0, 1)]))
    # Offsets before the batch, numbers beyond 64 bits: no writer can make them, and Java reads them otherwise.
    if any(r.offset < 0 for _, r in found[0]) or any(
        not 0 <= r.offset < 2**31 or not -(2**63) <= r.timestamp_ms < 2**63 for r in expected
    ):
        return
    assert [record for _, record in found[0]] == expected


def test_a_wrong_crc_and_an_old_format_are_refused() -> None:
    batch = bytearray(at(encode_batch([NewRecord(b"v", timestamp_ms=1)], producer_id=1, epoch=0, sequence=0), 41))
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch) as error:
        columnar.decode(whole([Stored(bytes(batch), 42)]))
    assert error.value.fields["offset"] == 41
    assert len(columnar.decode(whole([Stored(bytes(batch), 42)]), check_crc=False)) == 1
    batch[16] = 1
    with pytest.raises(CorruptBatch, match="format 1"):
        columnar.decode(whole([Stored(bytes(batch), 42)]))
