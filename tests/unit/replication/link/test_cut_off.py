"""Records that a seizure has cut off are not copied, wherever in an answer they begin; nor records that a ship may not
write.
"""

from __future__ import annotations

import pytest

from fairlead.custody.superseded import overtaken
from fairlead.custody.view import Seizure
from fairlead.kafka.convention import PRODUCER_ID, filler_batch, term_batch
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition
from replication.batch.prepared import Gap
from replication.batch.rebuild import fillers
from replication.catalog import EVERYTHING, SourceReach
from replication.link.cut_off import before_seizure, within_reach
from tests.support.batches import foreign_batch

EARLY, LATE = Seizure(18, 10, "tokyo"), Seizure(40, 20, "sydney")


def batch(at: int, count: int, term: int, marker: int = 0) -> bytes:
    records = [NewRecord(b"%d" % n, timestamp_ms=1) for n in range(count)]
    return at.to_bytes(8, "big") + bytes(term_batch(records, term=term, offset=at, marker=marker))[8:]


def part(*batches: bytes) -> FetchedPartition:
    return FetchedPartition(0, 99, 99, 0, (), memoryview(bytearray(b"".join(batches))))


def test_what_lies_before_the_seizure_is_taken() -> None:
    """Records before the seizure are copied."""
    first, second = batch(5, 5, 2), batch(10, 1, 2)
    taken, seizure = before_seizure(part(first, second), [EARLY])
    assert (bytes(taken.records), seizure) == (first, EARLY)


def test_the_seizing_term_and_all_later_ones_are_taken() -> None:
    """The term of the seizure and all later ones are copied."""
    whole = part(batch(5, 5, 2), batch(10, 3, 18, 10), batch(13, 4, 19, 13))
    assert before_seizure(whole, [EARLY]) == (whole, None)


def test_a_batch_across_the_seizure_is_refused_as_a_whole() -> None:
    """A batch that spans the seizure is refused as a whole."""
    taken, seizure = before_seizure(part(batch(8, 3, 2)), [EARLY])
    assert (len(taken.records), seizure) == (0, EARLY)


def test_a_later_seizure_cuts_off_the_terms_of_an_earlier_one() -> None:
    """A later seizure also cuts off the terms of an earlier one."""
    kept = batch(13, 7, 19, 13)
    taken, seizure = before_seizure(part(kept, batch(20, 1, 19, 13)), [EARLY, LATE])
    assert (bytes(taken.records), seizure) == (kept, LATE)


def test_an_earlier_offset_of_a_later_seizure_counts_too() -> None:
    """A later seizure at an earlier offset counts, too."""
    deeper = Seizure(40, 7, "sydney")
    assert overtaken([EARLY, deeper], parse_header(batch(8, 1, 2))) == deeper
    assert overtaken([EARLY, deeper], parse_header(batch(11, 1, 18, 10))) == deeper
    assert overtaken([EARLY, deeper], parse_header(batch(6, 1, 2))) is None


def test_what_positions_a_log_is_of_no_term() -> None:
    """Fillers before a log's first record, and records of other clients, belong to no term."""
    position = bytes(filler_batch(30, term=0, offset=0, marker=0, timestamp_ms=1))
    foreign = bytes(foreign_batch([NewRecord(b"x", timestamp_ms=1)], offset=30))
    assert overtaken([EARLY], parse_header(position)) is None
    assert overtaken([EARLY], parse_header((30).to_bytes(8, "big") + foreign[8:])) is None


HELD = SourceReach(4)  # the ship holds the log, in term 4
GIVEN = SourceReach(5, 21)  # it granted the log away by the marker of term 5 at offset 20
FOREIGN = (10).to_bytes(8, "big") + bytes(foreign_batch([NewRecord(b"x", timestamp_ms=1)], offset=10))[8:]


def test_a_holder_extends_the_log_in_its_term_and_ends_it_by_the_next_marker() -> None:
    """A holder may write records of its term, and the next term's marker, and nothing after it."""
    past, own, marker = batch(5, 5, 3), batch(10, 10, 4, 10), batch(20, 1, 5, 20)
    [positioning] = fillers(Gap(0, 5, PRODUCER_ID, 3, 5, 1))
    whole = part(bytes(positioning.data), past, own, marker)
    assert within_reach(whole, HELD) == (whole, "")
    for forged in (batch(21, 1, 5, 20), batch(21, 1, 6, 21), batch(21, 2, 5, 21), batch(21, 3, 32767, 0)):
        taken, problem = within_reach(part(own, marker, forged), HELD)
        assert (bytes(taken.records), "its right to write ends with term 4" in problem) == (own + marker, True)


def test_who_gave_the_log_away_extends_it_up_to_that_marker() -> None:
    """A former holder may write up to the marker by which it granted the log away."""
    own, marker = batch(10, 10, 4, 10), batch(20, 1, 5, 20)
    assert within_reach(part(own, marker), GIVEN) == (part(own, marker), "")
    for forged in (batch(21, 1, 5, 20), batch(21, 1, 6, 21)):
        taken, problem = within_reach(part(own, marker, forged), GIVEN)
        assert (bytes(taken.records), "is after offset 21" in problem) == (own + marker, True)
    assert bytes(within_reach(part(batch(15, 9, 4, 10)), GIVEN)[0].records) == b""
    assert bytes(within_reach(part(own, batch(20, 1, 6, 20)), GIVEN)[0].records) == own


def test_in_the_log_of_a_box_only_fairlead_writes() -> None:
    """In the log of a box, only records written under Fairlead's convention are accepted."""
    own = batch(5, 5, 3)
    taken, problem = within_reach(part(own, FOREIGN), HELD)
    assert (bytes(taken.records), "not by Fairlead" in problem) == (own, True)


def test_any_other_source_may_give_everything() -> None:
    """Of any other source, every record is accepted."""
    whole = part(FOREIGN, batch(11, 1, 32767, 11))
    assert within_reach(whole, EVERYTHING) == (whole, "")


PRODUCER_AT, TERM_AT = 43, 52  # in a batch's header
BEFORE = batch(13, 7, 19, 13)


def changed(at: int) -> bytes:
    """Return a batch behind ``BEFORE`` one byte of whose header was changed on a disk."""
    made = bytearray(batch(20, 4, 19, 13))
    made[at] ^= 1
    return bytes(made)


def test_a_damaged_header_is_no_proof_of_a_history_that_was_cut_off() -> None:
    """What comes before such a batch is copied; where it comes first, it is told apart from what a seizure cut off."""
    damaged, seizure = changed(TERM_AT), Seizure(19, 10, "tokyo")
    assert overtaken([seizure], parse_header(damaged)) == seizure
    assert before_seizure(part(BEFORE, damaged), [seizure]) == (part(BEFORE), None)
    with pytest.raises(CorruptBatch, match="offset 20"):
        before_seizure(part(damaged), [seizure])


@pytest.mark.parametrize("at", [TERM_AT - 1, PRODUCER_AT], ids=["term", "producer"])
def test_a_damaged_header_is_no_proof_that_a_ship_exceeds_its_right(at: int) -> None:
    """As for a seizure."""
    own = SourceReach(19)
    assert within_reach(part(BEFORE, changed(at)), own) == (part(BEFORE), "")
    with pytest.raises(CorruptBatch, match="offset 20"):
        within_reach(part(changed(at)), own)
