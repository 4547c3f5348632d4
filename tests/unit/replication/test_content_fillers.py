"""Fillers: cheap to make, known again, and found where a crash has left them."""

from __future__ import annotations

import struct
import time

import pytest

from fairlead.wire import convention
from fairlead.wire.batch import parse_header
from fairlead.wire.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID, filler_batch
from fairlead.wire.record import Record, decode_batch
from replication.content import HOLE_KEY, MAX_FILLER, POSITION_KEY, Hole, Item, fillers
from replication.leftover import left_over
from tests.unit.replication.source_logs import NOW, Made, body, stored


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 128, 8191, 8192, 8193, 8256, MAX_FILLER])
@pytest.mark.parametrize("key", [None, b"", HOLE_KEY])
def test_every_count_gives_that_many_records(count: int, key: bytes | None) -> None:
    """Offset deltas take one, two or three bytes; 64 of them differ in one byte only."""
    batch = filler_batch(count, term=1, offset=0, marker=0, timestamp_ms=NOW, key=key)
    filler = Record(0, NOW, key, None, (("fairlead", b"filler"),))
    assert decode_batch(batch) == [filler._replace(offset=offset) for offset in range(count)]


def test_a_large_hole_does_not_hold_up_everything_else() -> None:
    """Nothing else runs while a filler batch is made: milliseconds when its size is new, next to nothing after that."""
    hole = Hole(0, 30 * MAX_FILLER, FOREIGN_PRODUCER_ID, 0, 0, NOW, b"a key that no other test has")
    began = time.process_time()
    assert sum(1 for _ in fillers(hole)) == 30
    assert time.process_time() - began < 0.2


def test_the_same_size_is_compressed_once() -> None:
    before = convention._filler_payload.cache_info().misses  # noqa: SLF001 - the cache is what is tested
    for n in range(5):
        filler_batch(777, term=1, offset=n * 777, marker=0, timestamp_ms=NOW + n, key=b"once")
    assert convention._filler_payload.cache_info().misses - before <= 1  # noqa: SLF001


def placed(item: Item) -> bytes:
    out = bytearray(item.data)
    struct.pack_into(">q", out, 0, item.base)
    return bytes(out)


def positioning(stop: int, *, key: bytes = POSITION_KEY, pid: int = PRODUCER_ID) -> bytes:
    return b"".join(placed(each) for each in fillers(Hole(0, stop, pid, 3, 2, NOW, key)))


def test_fillers_that_position_are_told_from_data_and_from_other_fillers() -> None:
    data = stored(120_000, 120_001, [Made(120_000 + n, NOW, body(b"k", b"v")) for n in range(2)])
    found = positioning(120_000)
    assert [parse_header(found).next_offset] == [2]  # those before the term's marker are a batch of their own
    assert left_over(found + data) == (120_000, True)
    assert left_over(found) == (120_000, False)  # nothing else is there: the log must not be emptied
    assert left_over(data) == (None, True)
    assert left_over(b"") == (None, False)
    assert left_over(positioning(10, key=HOLE_KEY, pid=FOREIGN_PRODUCER_ID)) == (None, True)
    assert left_over(stored(0, 3, []) + data) == (None, True)  # emptied by the cleaner
