"""Any log, fetched in any pieces and with any interruptions and splits, has the same records at the same offsets at the
target.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.convention import PRODUCER_ID, marker_offset
from fairlead.kafka.protocol.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, parse_header, verify_crc
from fairlead.kafka.protocol.types import ProduceResult
from replication.batch.batch_diff import conflict
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import Gap, PreparedBatch, RejectedBatch, same_marker
from replication.batch.rebuild import fillers, raw_records, split_batch
from tests.support.examples import examples
from tests.support.replication.broker import Log
from tests.support.replication.source_logs import NOW, Made, SourceLog, body, foreign_logs, own_logs, stored


class StrictLog(Log):
    """A target's log with the broker's rules for batches; sequences wrap around."""

    def append(self, batch: bytes) -> ProduceResult:
        header = parse_header(batch)
        assert verify_crc(batch)
        assert header.base_offset == 0
        assert 0 <= header.base_sequence < 2**31
        assert header.count == header.last_offset_delta + 1 > 0
        assert not header.attributes & (TRANSACTIONAL | CONTROL | LOG_APPEND_TIME)
        records = raw_records(batch)
        assert [each.offset for each in records] == list(range(header.count))
        assert header.max_timestamp == max(each.timestamp_ms for each in records)
        result = super().append(batch)
        assert self.state is not None
        self.state = (*self.state[:2], self.state[2] % 2**31)
        return result


def copy(log: SourceLog, data: st.DataObject) -> StrictLog:
    """Replicate as the fetcher and the appender do, with a restart before every fetch."""
    target = StrictLog()
    while target.end < log.end:
        tail = parse_header(target.at(target.end - 1)) if target.end else None
        records, aborted = log.answer(target.end, data.draw(st.integers(1, 3), "batches"))
        if not records:
            break  # only offsets without any batch remain
        inside = False
        first = parse_header(records)
        if tail is not None and first.base_offset < target.end:
            assert conflict(records[: first.size], target.at(target.end - 1)) == ""
            inside = True
        sent = data.draw(st.integers(1, 4), "sent before the interruption")
        for step in prepare_batches(records, target.end, aborted, inside=inside):
            assert not isinstance(step, RejectedBatch)
            items: list[PreparedBatch]
            if isinstance(step, Gap):
                own = (tail.producer_id, tail.producer_epoch, marker_offset(tail)) if tail else (None, 0, 0)
                items = list(fillers(step, producer_id=own[0], term=own[1], marker=own[2]))
            else:
                cut = split_batch(step, max(len(step.data) * data.draw(st.integers(3, 10), "tenths") // 10, 1))
                items = cut if isinstance(cut, list) else [step]
            for prepared in items:
                if tail is not None and tail.producer_id == PRODUCER_ID == prepared.producer_id:
                    assert prepared.term > tail.producer_epoch or same_marker(prepared.marker, marker_offset(tail))
                result = target.append(bytes(prepared.data))
                assert result == ProduceResult(0, prepared.base, -1), (result, prepared)
                assert target.end == prepared.stop
                tail = parse_header(target.at(prepared.base))
                sent -= 1
                if sent == 0:
                    break
            if sent == 0:
                break
    return target


def check(log: SourceLog, target: StrictLog) -> None:
    here = {each.offset: each for batch in target.batches for each in raw_records(batch)}
    assert sorted(here) == list(range(target.end))
    for offset, (time, content) in log.seen.items():
        assert (here[offset].timestamp_ms, here[offset].body) == (time, content)
    assert all(here[offset].is_filler for offset in here.keys() - log.seen.keys())
    for batch in log.batches:
        for other in target.batches:
            assert conflict(batch, other) == ""


@settings(max_examples=examples(200), deadline=None)
@given(foreign_logs(), st.data())
def test_logs_of_ordinary_clients(log: SourceLog, data: st.DataObject) -> None:
    """The copy of a log written by ordinary clients is equal."""
    check(log, copy(log, data))


@settings(max_examples=examples(200), deadline=None)
@given(own_logs(), st.data())
def test_logs_under_the_convention(log: SourceLog, data: st.DataObject) -> None:
    """The copy of a log written under the append convention is equal."""
    check(log, copy(log, data))


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(2**31 - 12, 2**31 - 1).flatmap(lambda begin: own_logs(begin)), st.data())
def test_sequences_that_begin_again(log: SourceLog, data: st.DataObject) -> None:
    """The copy stays equal when sequences wrap around to 0.

    The log begins in the middle of a term and has every record from there on.
    """
    check(log, copy(log, data))


def test_a_filler_is_known_by_its_header_not_by_bytes_that_look_like_it() -> None:
    """A filler is recognised by its header, not by bytes in a value that look like one."""
    filler = body(b"fairlead.hole", None, [(b"fairlead", b"filler")])
    lookalike = body(None, b"x", [(b"h", filler)])
    records = raw_records(stored(0, 1, [Made(0, NOW, filler), Made(1, NOW, lookalike)]))
    assert [each.is_filler for each in records] == [True, False]


def test_the_marker_of_a_long_term_is_the_same_one() -> None:
    """In a term of more than 2^31 records, the marker is still recognised as the same."""
    assert same_marker(5, 5 + 2**31)
    assert not same_marker(5, 6)
