"""What a seizure has cut off is not taken, wherever in an answer it begins."""

from __future__ import annotations

from fairlead.custody import Seizure
from fairlead.lineage import overtaken
from fairlead.wire.batch import parse_header
from fairlead.wire.convention import filler_batch, foreign_batch, term_batch
from fairlead.wire.record import NewRecord
from fairlead.wire.types import FetchedPartition
from replication.overtaken import before, never_seized

EARLY, LATE = Seizure(18, 10, "tokyo"), Seizure(40, 20, "sydney")


def batch(at: int, count: int, term: int, marker: int = 0) -> bytes:
    records = [NewRecord(b"%d" % n, timestamp_ms=1) for n in range(count)]
    return at.to_bytes(8, "big") + bytes(term_batch(records, term=term, offset=at, marker=marker))[8:]


def part(*batches: bytes) -> FetchedPartition:
    return FetchedPartition(0, 99, 99, 0, (), memoryview(bytearray(b"".join(batches))))


def test_what_lies_before_the_seizure_is_taken() -> None:
    first, second = batch(5, 5, 2), batch(10, 1, 2)
    taken, seizure = before(part(first, second), [EARLY])
    assert (bytes(taken.records), seizure) == (first, EARLY)


def test_the_seizing_term_and_all_later_ones_are_taken() -> None:
    whole = part(batch(5, 5, 2), batch(10, 3, 18, 10), batch(13, 4, 19, 13))
    assert before(whole, [EARLY]) == (whole, None)


def test_a_batch_across_the_seizure_is_refused_as_a_whole() -> None:
    taken, seizure = before(part(batch(8, 3, 2)), [EARLY])
    assert (len(taken.records), seizure) == (0, EARLY)


def test_a_later_seizure_cuts_off_the_terms_of_an_earlier_one() -> None:
    kept = batch(13, 7, 19, 13)
    taken, seizure = before(part(kept, batch(20, 1, 19, 13)), [EARLY, LATE])
    assert (bytes(taken.records), seizure) == (kept, LATE)


def test_an_earlier_offset_of_a_later_seizure_counts_too() -> None:
    deeper = Seizure(40, 7, "sydney")
    assert overtaken([EARLY, deeper], parse_header(batch(8, 1, 2))) == deeper
    assert overtaken([EARLY, deeper], parse_header(batch(11, 1, 18, 10))) == deeper
    assert overtaken([EARLY, deeper], parse_header(batch(6, 1, 2))) is None


def test_what_positions_a_log_is_of_no_term() -> None:
    fillers = bytes(filler_batch(30, term=0, offset=0, marker=0, timestamp_ms=1))
    foreign = bytes(foreign_batch([NewRecord(b"x", timestamp_ms=1)], offset=30))
    assert overtaken([EARLY], parse_header(fillers)) is None
    assert overtaken([EARLY], parse_header((30).to_bytes(8, "big") + foreign[8:])) is None
    assert never_seized("boxes.BIGU1234560") == ()
