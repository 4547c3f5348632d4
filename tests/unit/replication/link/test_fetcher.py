"""The fetcher against a source with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from fairlead.custody.view import Seizure
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, marker_record, term_batch
from fairlead.kafka.protocol.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, parse_header
from fairlead.kafka.protocol.errors import (
    LEADER_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    CorruptBatch,
    WireError,
    broker_error,
)
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.prepared import GAP_KEY, POSITION_KEY, Gap, PreparedBatch
from replication.catalog import EVERYTHING, SourceReach
from replication.link import fetch_state
from replication.link.fetcher import Fetcher
from replication.states import LogState
from replication.target.mirror import LastBatch, MirrorPartition
from tests.support.batches import seal
from tests.support.replication.scripted import LOG, NOTHING, FakeLinkLogs, Sink, Source
from tests.support.replication.source_logs import NOW, Made, body
from tests.support.replication.source_logs import stored as kept
from topologies.model import Priority

OTHER = TopicPartition("custody.star")


def stored(offset: int, *values: bytes) -> bytes:
    """Return a batch of term 1 as a broker stores it, with its base offset."""
    records = [NewRecord(value, timestamp_ms=1000) for value in values]
    if offset == 0:
        records = [marker_record(values[0], timestamp_ms=1000)]
    return offset.to_bytes(8, "big") + bytes(term_batch(records, term=1, offset=offset, marker=0))[8:]


class Storing(Sink):
    """A target that stores what is submitted at once; ``batch`` is the last of it."""

    def __init__(self, batch: bytes) -> None:
        super().__init__()
        self._last = parse_header(batch)

    def submit_steps(self, replica: MirrorPartition, steps: list[PreparedBatch | Gap], feed: Fetcher) -> bool:
        last = self._last
        replica.set_end(last.next_offset, LastBatch(last.producer_id, 1, 0, last.base_offset, last.crc), 0)
        return super().submit_steps(replica, steps, feed)


async def test_a_source_that_grows_while_it_is_asked_is_no_divergence() -> None:
    """A source that grows between two requests is not reported as diverged.

    The target already has a batch of four (1..4) from another source; this source gets it between two requests.
    """
    batch, following = stored(1, b"a", b"b", b"c", b"d"), stored(5, b"e")
    header = parse_header(batch)
    source = Source(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),  # it still ends at 1
        FetchedPartition(0, 6, 6, 0, (), memoryview(bytearray(batch + following))),
        end=5,
    )
    sink, link = Sink(), FakeLinkLogs()
    fetcher = Fetcher(link, Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(5, LastBatch(header.producer_id, 1, 0, 1, header.crc), 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert (sink.stopped, link.troubles) == ([], [])
    assert [(step.base, step.stop) for step in sink.steps] == [(5, 6)]


async def test_a_log_that_is_given_up_while_the_source_is_asked_about_another_is_not_looked_at() -> None:
    """A log that is given up during a request about another one is not checked.

    Its topic was recreated there: the link does not follow it any more, although the source's answer has just shown a
    mismatch.
    """
    batch = stored(1, b"another")

    class Two(Source):
        async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
            if self.answers:
                return {LOG: self.answers.pop(), OTHER: self.answers.pop()}
            return await super().poll()

        async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            fetcher.unfollow(LOG)
            return await super().end_offsets(logs)

    source = Two(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(batch))),
        end=1,
    )
    fetcher = Fetcher(FakeLinkLogs(), Priority.CONTROL, source, Sink())  # type: ignore[arg-type]
    for log in (LOG, OTHER):
        replica = MirrorPartition(log, Priority.CONTROL)
        replica.set_end(2, LastBatch(parse_header(batch).producer_id, 1, 0, 1, 0), 0)
        fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert len(fetcher) == 1


@pytest.mark.parametrize("cause", ["seizure", "right"])
async def test_a_source_is_given_up_only_when_all_that_counts_of_it_is_stored(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source is given up only when all its valid records are stored.

    Records before a seizure, or before those that the source may not write, belong to the log. Appending them fails at
    first, after the fetcher has reached the invalid ones.
    """
    monkeypatch.setattr(fetch_state, "PAUSE_SECONDS", 0.0)
    taken, left = stored(0, b"marker"), stored(1, b"a", b"b")
    found = asyncio.Event()

    class Growing(Source):
        async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
            await asyncio.sleep(0)
            if LOG not in self.followed:
                return {}
            part = taken + left if self.followed[LOG] == 0 else left
            return {LOG: FetchedPartition(0, 3, 3, 0, (), memoryview(bytearray(part)))}

    class Failing(Sink):
        def submit_steps(self, replica: MirrorPartition, steps: list[PreparedBatch | Gap], feed: Fetcher) -> bool:
            super().submit_steps(replica, steps, feed)
            if len(self.steps) > 1:
                assert not (link.cut_off or link.beyond)
                header = parse_header(taken)
                replica.set_end(1, LastBatch(header.producer_id, 1, 0, 0, header.crc), 0)
            return True

    class Told(FakeLinkLogs):
        def mark_cut_off(self, tp: TopicPartition, seizure: Seizure) -> None:
            super().mark_cut_off(tp, seizure)
            found.set()

        def refuse_log(self, tp: TopicPartition, reach: SourceReach, problem: str) -> None:
            super().refuse_log(tp, reach, problem)
            found.set()

    if cause == "seizure":
        link = Told(seizures=[Seizure(18, 1, "singapore")])
    else:
        link = Told(reach=SourceReach(1, 1))
    sink = Failing()
    fetcher = Fetcher(link, Priority.CONTROL, Growing(end=3), sink)  # type: ignore[arg-type]
    fetcher.follow(MirrorPartition(LOG, Priority.CONTROL))
    running = asyncio.create_task(fetcher.run())
    async with asyncio.timeout(10):
        await found.wait()
    running.cancel()
    assert [(step.base, step.stop) for step in sink.steps] == [(0, 1), (0, 1)]
    assert (len(link.cut_off) > 0, len(link.beyond) > 0) == (cause == "seizure", cause == "right")


def fetcher_of(
    source: Source,
    sink: Sink,
    troubles: list[LogState],
    *,
    is_origin: bool = False,
    start: str = "earliest",
    priority: Priority = Priority.CONTROL,
) -> Fetcher:
    class Told(FakeLinkLogs):
        def stop_log(self, tp: TopicPartition, state: LogState, cause: str, hint: str = "") -> None:
            troubles.append(state)

    return Fetcher(Told(start=start, is_origin=is_origin), priority, source, sink)  # type: ignore[arg-type]


@pytest.mark.parametrize("changed", [{16: 1}, {8: 0, 11: 1}], ids=["of an old format", "of an impossible length"])
@pytest.mark.parametrize("reach", [SourceReach(1), EVERYTHING], ids=["from a ship", "from ashore"])
async def test_a_batch_that_cannot_be_read_stops_its_own_log_only(changed: dict[int, int], reach: SourceReach) -> None:
    """A batch without a readable header stops its log, not the link with all others. What comes before it in the same
    answer is stored."""
    sound, unreadable = stored(0, b"m"), bytearray(stored(1, b"a"))
    for at, value in changed.items():
        unreadable[at] = value
    source = Source(
        FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(sound) + unreadable)),
        FetchedPartition(0, 2, 2, 0, (), memoryview(unreadable)),
        end=2,
    )
    sink, link = Storing(sound), FakeLinkLogs(reach=reach)
    await follow_behind(None, source, sink, link)
    assert [(step.base, step.stop) for step in sink.steps] == [(0, 1)]
    assert [(tp, state) for tp, state, _ in link.troubles] == [(LOG, LogState.QUARANTINED)]


@pytest.mark.parametrize(
    ("changed", "reach"),
    [({16: 1}, EVERYTHING), ({8: 0, 11: 1}, EVERYTHING), ({23: 0x80}, EVERYTHING), ({52: 9}, SourceReach(1))],
    ids=["old format", "impossible length", "ends before it begins", "beyond the right of a ship"],
)
async def test_a_batch_with_a_damaged_header_is_passed_where_an_operator_skips_it(
    changed: dict[int, int], reach: SourceReach
) -> None:
    sound, unreadable, following = stored(0, b"m"), bytearray(stored(1, b"a", b"b")), stored(3, b"c")
    for at, value in changed.items():
        unreadable[at] = value
    source = Source(
        FetchedPartition(0, 4, 4, 0, (), memoryview(bytearray(sound + unreadable + following))),
        FetchedPartition(0, 4, 4, 0, (), memoryview(bytearray(unreadable + following))),
        FetchedPartition(0, 4, 4, 0, (), memoryview(bytearray(following))),
        end=4,
    )
    sink, link = Storing(sound), FakeLinkLogs(reach=reach, skipped=(1, 3))
    await follow_behind(None, source, sink, link)
    assert [(step.base, step.stop) for step in sink.steps] == [(0, 1), (1, 3), (3, 4)]
    assert link.troubles == [] and source.positions[-2] == 3


@pytest.mark.parametrize("other", [{}, {16: 3}], ids=["its CRC", "its format"])
async def test_a_skipped_batch_that_claims_more_offsets_than_it_has_is_passed(other: dict[int, int]) -> None:
    """Kafka 3.9 returns it for all of them, before the batch that has them."""
    far = bytearray(stored(1, b"a", b"b"))
    for at, value in ({25: 1} | other).items():
        far[at] = value
    third, fourth = stored(3, b"c"), stored(4, b"d")
    source = Source(
        FetchedPartition(0, 4, 4, 0, (), memoryview(far + third)),
        FetchedPartition(0, 4, 4, 0, (), memoryview(far + third)),
        FetchedPartition(0, 5, 5, 0, (), memoryview(far + third + fourth)),
        end=5,
    )
    sink, link = Sink(), FakeLinkLogs(skipped=(1, 3))
    await follow_behind(stored(0, b"m"), source, sink, link)
    assert link.troubles == []
    assert [(step.base, step.stop) for step in sink.steps] == [(1, 3), (3, 4), (4, 5)]


async def test_a_skipped_batch_that_claims_more_offsets_than_it_has_is_passed_after_a_restart() -> None:
    """The fillers for it are here, and it is what the source shows before this site's end."""
    far, third = bytearray(stored(1, b"a", b"b")), stored(3, b"c")
    far[25] = 1
    source = Source(
        FetchedPartition(0, 4, 4, 0, (), memoryview(far + third)),
        FetchedPartition(0, 4, 4, 0, (), memoryview(far + third)),
        end=4,
    )
    sink, link = Sink(), FakeLinkLogs(skipped=(1, 3))
    fillers = stored(1, b"f", b"g")
    sink.batch = fillers
    await follow_behind(fillers, source, sink, link)
    assert (link.troubles, sink.stopped) == ([], [])
    assert [(step.base, step.stop) for step in sink.steps] == [(3, 4)]


async def test_a_skip_passes_only_the_batches_that_it_names() -> None:
    """The batch behind the skipped one is damaged too: its log stops there, and is not fetched for ever."""
    unreadable = bytearray(stored(1, b"a", b"b"))
    unreadable[16] = 1
    other = bytearray(stored(3, b"c"))
    other[16] = 1
    source = Source(
        FetchedPartition(0, 4, 4, 0, (), memoryview(unreadable + other)),
        FetchedPartition(0, 4, 4, 0, (), memoryview(other)),
        end=4,
    )
    sink, link = Sink(), FakeLinkLogs(skipped=(1, 3))
    await follow_behind(stored(0, b"m"), source, sink, link)
    assert sink.steps == []
    assert [(tp, state) for tp, state, _ in link.troubles] == [(LOG, LogState.QUARANTINED)]


async def test_a_log_that_begins_with_a_batch_that_cannot_be_read_is_told() -> None:
    """The source deleted what was before that batch, so it is the first to copy, behind fillers."""
    unreadable = bytearray(stored(5, b"a"))
    unreadable[8:12] = bytes(4)  # its length
    source = Source(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        FetchedPartition(0, 6, 6, 5, (), memoryview(unreadable)),
        end=6,
        begins=5,
    )
    sink, link = Sink(), FakeLinkLogs()
    sink.only_fillers = True
    await follow_behind(None, source, sink, link)
    assert [(tp, state) for tp, state, _ in link.troubles] == [(LOG, LogState.QUARANTINED)]


async def test_a_damaged_batch_with_which_a_log_begins_is_passed_where_an_operator_skips_it() -> None:
    """The fillers before the next batch are those of a log that begins there."""
    unreadable = bytearray(stored(5, b"a"))
    unreadable[16] = 1
    source = Source(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        FetchedPartition(0, 7, 7, 5, (), memoryview(unreadable + stored(6, b"b"))),
        FetchedPartition(0, 7, 7, 5, (), memoryview(bytearray(stored(6, b"b")))),
        end=7,
        begins=5,
    )
    sink, link = Sink(), FakeLinkLogs(skipped=(5, 6))
    sink.only_fillers = True
    await follow_behind(None, source, sink, link)
    assert link.troubles == []
    assert [(step.base, step.stop) for step in sink.steps] == [(0, 6), (6, 7)]
    assert isinstance(sink.steps[0], Gap) and sink.steps[0].key == POSITION_KEY


async def test_old_confirmations_that_the_source_has_deleted_are_not_missed() -> None:
    """A ship comes back from a voyage that was longer than its port keeps what it confirms."""
    log, last, newer = TopicPartition("ends.tokyo"), stored(1, b"a"), stored(5, b"b")
    source = Source(
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        FetchedPartition(0, 6, 6, 5, (), memoryview(bytearray(newer))),
        end=6,
        begins=5,
        log=log,
    )
    sink, link = Sink(), FakeLinkLogs()
    fetcher = Fetcher(link, Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica, header = MirrorPartition(log, Priority.CONTROL), parse_header(last)
    replica.set_end(2, LastBatch(header.producer_id, 1, 0, 1, header.crc), 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert [(step.base, step.stop) for step in sink.steps] == [(2, 5), (5, 6)]
    assert link.troubles == []


@pytest.mark.parametrize("begins", [0, 1 << 50])
@pytest.mark.parametrize("start", ["earliest", "end"])
async def test_an_offset_that_no_log_of_a_ship_reaches_makes_no_fillers(begins: int, start: str) -> None:
    """Fillers up to a forged offset would fill this site's disk."""
    log = TopicPartition("events.duck-star")

    class Far(Source):
        async def fetch(self, positions: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, Any]:
            return {log: FetchedPartition(0, self.end, self.end, begins, (), memoryview(bytearray(forged)))}

    forged = stored(1 << 50, b"a")
    answer = FetchedPartition(0, 2**50 + 1, 2**50 + 1, begins, (), memoryview(bytearray(forged)))
    if begins:
        answer = FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING)
    source, sink, link = Far(answer, end=2**50 + 1, begins=begins, log=log), Sink(), FakeLinkLogs(start=start)
    sink.only_fillers = True
    fetcher = Fetcher(link, Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica = MirrorPartition(log, Priority.CONTROL)
    replica.set_end(0, None, 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert sink.steps == []
    is_start = start == "end" or begins
    state = LogState.BEHIND_RETENTION if is_start else LogState.QUARANTINED
    assert link.troubles[0][1] is state


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_batch_that_cannot_be_written_again_stops_its_log_once_what_is_before_it_is_stored(
    is_stored: bool,
) -> None:
    """If the log stopped earlier, the appender would drop what still waits."""
    sound, unwritable = stored(0, b"m"), bytearray(stored(1, b"a"))
    unwritable[22] |= LOG_APPEND_TIME
    unwritable[61] = 0x7F  # the length of its first record
    seal(unwritable)
    source = Source(
        FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(sound) + unwritable)),
        FetchedPartition(0, 2, 2, 0, (), memoryview(unwritable)),
        end=2,
    )
    sink = Storing(sound) if is_stored else Sink()
    fetcher = Fetcher(FakeLinkLogs(), Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(0, None, 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert [(step.base, step.stop) for step in sink.steps] == [(0, 1)]
    assert [state for state, _ in sink.stopped] == [LogState.QUARANTINED] * is_stored


async def follow_behind(last: bytes | None, source: Source, sink: Sink, link: FakeLinkLogs) -> None:
    """Follow a log whose last batch here is ``last``, or that is empty here, until the script has ended."""
    fetcher = Fetcher(link, Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica = MirrorPartition(LOG, Priority.CONTROL)
    if last is None:
        replica.set_end(0, None, 0)
    else:
        header = parse_header(last)
        tail = LastBatch(header.producer_id, 1, 0, header.base_offset, header.crc)
        replica.set_end(header.next_offset, tail, 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)


async def run_to_the_end(fetcher: Fetcher, source: Source) -> None:
    """Let the fetcher process all answers of the script."""
    running = asyncio.create_task(fetcher.run())
    exhausted = asyncio.create_task(source.exhausted.wait())
    await asyncio.wait({running, exhausted}, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    assert exhausted.done() and not running.done()
    running.cancel()


async def test_an_append_that_was_under_way_proves_nothing_while_a_comparison_is_due() -> None:
    """The source may have lost that record since: what is before the mark of a transaction is still compared."""
    mark = Made(1, NOW, body(bytes(4), bytes(6)))
    control = kept(1, 1, [mark], producer=5, epoch=0, flags=TRANSACTIONAL | CONTROL)
    source, sink = Source(FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(control))), end=2), Sink()
    sink.batch = kept(1, 1, [Made(1, NOW, body(GAP_KEY, None, [(b"fairlead", b"filler")]))])
    fetcher = Fetcher(FakeLinkLogs(), Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(2, LastBatch(FOREIGN_PRODUCER_ID, 0, 0, 1, 0), 0)
    fetcher.follow(replica)
    fetcher.on_appended(LOG, PreparedBatch(1, 2, NOTHING, 0, FOREIGN_PRODUCER_ID, 0, 0, 0))
    await run_to_the_end(fetcher, source)
    assert (sink.stopped, source.positions) == ([], [1, 0])


async def test_a_log_that_no_broker_of_the_source_serves_is_shown_until_one_does() -> None:
    """The link is up and serves other logs, and the log stays followed."""

    class Late(Source):
        async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
            seen.append(dict(link.unserved))
            self.late = {LOG: LEADER_NOT_AVAILABLE} if len(seen) == 1 else {}
            return {} if len(seen) < 3 else await super().poll()

    seen: list[dict[TopicPartition, int]] = []
    source, link = Late(end=0), FakeLinkLogs()
    await follow_behind(None, source, Sink(), link)
    assert seen == [{}, {LOG: LEADER_NOT_AVAILABLE}, {}]
    assert (link.troubles, source.followed) == ([], {LOG: 0})


@pytest.mark.parametrize("is_origin", [True, False])
@pytest.mark.parametrize("end", [1, 2], ids=["it ends there", "its answer was behind"])
async def test_a_source_that_answers_with_nothing_is_asked_where_it_ends(end: int, *, is_origin: bool) -> None:
    """A follower, or a new leader, may not know yet that the record before the target's end is committed: the
    comparison is still due then."""
    last, following = stored(1, b"a"), stored(2, b"b")
    source = Source(FetchedPartition(0, 1, 1, 0, (), NOTHING), end=end)
    if end == 2:
        source.answers.append(FetchedPartition(0, 3, 3, 0, (), memoryview(bytearray(last + following))))
    sink, link = Sink(), FakeLinkLogs(is_origin=is_origin)
    await follow_behind(last, source, sink, link)
    assert [state for _, state, _ in link.troubles] == [LogState.SOURCE_TRUNCATED] * (end == 1 and is_origin)
    assert sink.stopped == []
    assert [(step.base, step.stop) for step in sink.steps] == [(2, 3)] * (end == 2)


async def test_an_end_that_was_asked_for_before_the_log_was_rewound_says_nothing() -> None:
    """While the writer is asked where it ends, it writes on, another link brings that, and this one is rewound."""
    last = stored(1, b"a")
    header = parse_header(last)
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(2, LastBatch(header.producer_id, 1, 0, 1, header.crc), 0)

    class Growing(Source):
        async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            replica.set_end(5, LastBatch(header.producer_id, 1, 0, 4, 0), 0)
            fetcher.rewind(LOG, 5)
            return dict.fromkeys(logs, 2)

    source, sink, troubles = Growing(FetchedPartition(0, 1, 1, 0, (), NOTHING), end=2), Sink(), list[LogState]()
    fetcher = fetcher_of(source, sink, troubles, is_origin=True)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert (troubles, source.positions) == ([], [1, 4])


async def test_a_writer_that_ends_before_the_target_after_an_election_is_reported() -> None:
    """Its new leader has lost records that another link has brought, and what it answers is from before the target's
    end."""
    last, other = bytearray(stored(1, b"a")), bytearray(stored(2, b"x"))
    last[12:16], other[12:16] = bytes((0, 0, 0, 3)), bytes((0, 0, 0, 5))  # the leaders' epochs
    header = parse_header(last)
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(2, LastBatch(header.producer_id, 1, 0, 1, header.crc), 0)

    class Elected(Source):
        async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
            if len(self.answers) == 2:
                replica.set_end(9, LastBatch(header.producer_id, 1, 0, 8, 0), 0)
            return await super().poll()

    source = Elected(
        FetchedPartition(0, 2, 2, 0, (), memoryview(last)),
        FetchedPartition(0, 3, 3, 0, (), memoryview(other)),
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        end=3,
    )
    sink, troubles = Sink(), list[LogState]()
    fetcher = fetcher_of(source, sink, troubles, is_origin=True)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert source.positions == [1, 2, 8]
    assert troubles == [LogState.SOURCE_TRUNCATED]


@pytest.mark.parametrize(("code", "state"), [(UNKNOWN_TOPIC_ID, LogState.SOURCE_RECREATED), (29, LogState.UNAVAILABLE)])
async def test_a_log_that_the_source_refuses_is_in_trouble_and_not_searched_for(code: int, state: LogState) -> None:
    """A log that the source refuses is in trouble; the fetcher does not ask for its start and end.

    Only a position outside the source's log is a reason to ask for these.
    """
    source, sink, troubles = Source(FetchedPartition(code, -1, -1, -1, (), NOTHING), end=5), Sink(), list[LogState]()
    fetcher = fetcher_of(source, sink, troubles)
    fetcher.follow(MirrorPartition(LOG, Priority.CONTROL))
    await run_to_the_end(fetcher, source)
    assert (troubles, source.asked) == ([state], [])


async def test_a_topic_that_its_source_rebuilds_after_a_seizure_is_listed_again_and_not_in_trouble() -> None:
    """The link follows the new topic once it has listed it."""
    source, sink = Source(FetchedPartition(UNKNOWN_TOPIC_ID, -1, -1, -1, (), NOTHING), end=5), Sink()
    logs = FakeLinkLogs(seizures=[Seizure(18, 1, "singapore")])
    fetcher = Fetcher(logs, Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    fetcher.follow(MirrorPartition(LOG, Priority.CONTROL))
    await run_to_the_end(fetcher, source)
    assert (logs.troubles, source.followed, logs.relist.is_set()) == ([], {}, True)


@pytest.mark.parametrize(
    ("starts", "end", "when"),
    [
        pytest.param(0, 1, "the source is asked", id="it is shorter"),
        pytest.param(0, 9, "the source is asked", id="it has grown"),
        pytest.param(3, 9, "the source is asked", id="it begins later"),
        pytest.param(3, 9, "the target is asked", id="it begins later, and the target is asked"),
    ],
)
async def test_a_log_that_is_followed_no_more_is_not_subscribed_again(starts: int, end: int, when: str) -> None:
    """A log that is not followed any more is not subscribed again.

    Its data would be ignored, and sent again at every poll until the link drops.
    """

    class Asked(Source):
        async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            if when == "the source is asked":
                fetcher.unfollow(LOG)
            return await super().start_offsets(logs)

    source = Asked(FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING), end=end, begins=starts)
    sink, troubles = Sink(), list[LogState]()
    fetcher = fetcher_of(source, sink, troubles, is_origin=True)
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(2, LastBatch(0, 1, 0, 1, 0), 0)
    sink.meanwhile = lambda: fetcher.unfollow(LOG)
    fetcher.follow(replica)
    fetcher.follow(MirrorPartition(OTHER, Priority.CONTROL))
    await run_to_the_end(fetcher, source)
    assert source.asked == [LOG]
    assert (source.followed, troubles, sink.stopped) == ({OTHER: 0}, [], [])


async def test_a_log_that_is_given_up_while_its_beginning_is_asked_for_is_not_subscribed_again() -> None:
    """A log that is given up while its start is asked for is not subscribed again."""

    class Asked(Source):
        async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            fetcher.unfollow(log)
            return await super().start_offsets(logs)

    log = TopicPartition("alerts.tokyo")
    source, sink, troubles = Asked(end=5), Sink(), list[LogState]()
    fetcher = fetcher_of(source, sink, troubles, start="latest")
    fetcher.follow(MirrorPartition(log, Priority.CONTROL))
    fetcher.follow(MirrorPartition(LOG, Priority.CONTROL))
    await run_to_the_end(fetcher, source)
    assert (source.asked, source.followed, troubles, sink.steps) == ([log], {LOG: 0}, [], [])


@pytest.mark.parametrize("other", [b"x", b"a"])
async def test_a_log_that_is_given_up_while_a_difference_is_looked_at_is_left_alone(other: bytes) -> None:
    """A log that is given up during a comparison is left alone.

    For instance its topic was recreated here: the result is about the old one.
    """
    source = Source(FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(stored(1, b"a")))), end=2)
    sink, troubles = Sink(), list[LogState]()
    sink.batch = stored(1, other)
    fetcher = fetcher_of(source, sink, troubles)
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(2, LastBatch(parse_header(sink.batch).producer_id, 1, 0, 1, 0), 0)
    sink.meanwhile = lambda: fetcher.unfollow(LOG)
    fetcher.follow(replica)
    fetcher.follow(MirrorPartition(OTHER, Priority.CONTROL))
    await run_to_the_end(fetcher, source)
    assert (source.followed, troubles, sink.stopped) == ({OTHER: 0}, [], [])


@pytest.mark.parametrize("error", [broker_error(LEADER_NOT_AVAILABLE), CorruptBatch("damaged")], ids=["leader", "disk"])
@pytest.mark.parametrize("starts", [0, 5], ids=["tails differ", "begins later"])
async def test_a_target_that_cannot_read_a_log_now_stops_that_log_only(error: WireError, starts: int) -> None:
    """The link and its other logs go on; a log that is unavailable is tried again."""
    answer = FetchedPartition(0, 2, 2, 0, (), memoryview(bytearray(stored(1, b"a"))))
    if starts:
        answer = FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING)
    source = Source(answer, end=6, begins=starts)

    def fail() -> None:
        raise error

    sink, troubles = Sink(), list[LogState]()
    sink.meanwhile = fail
    fetcher = fetcher_of(source, sink, troubles)
    replica = MirrorPartition(LOG, Priority.CONTROL)
    replica.set_end(2, LastBatch(parse_header(stored(1, b"b")).producer_id, 1, 0, 1, 0), 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert (troubles, sink.stopped) == ([], [(LogState.UNAVAILABLE, f"its last batch cannot be read: {error.what}")])


@pytest.mark.parametrize(
    ("priority", "urgent"), [(Priority.CONTROL, True), (Priority.URGENT, True), (Priority.BULK, False)]
)
async def test_a_lane_asks_for_nothing_until_the_target_is_ready(priority: Priority, urgent: bool) -> None:
    """A fetcher sends no fetch until the target is ready. Urgent logs have memory that others may not fill."""
    ready, asked = asyncio.Event(), list[bool]()

    class Waiting(Sink):
        async def wait_ready(self, *, urgent: bool = False) -> None:
            asked.append(urgent)
            await ready.wait()

    source, sink = Source(end=5), Waiting()
    fetcher = fetcher_of(source, sink, [], priority=priority)
    fetcher.follow(MirrorPartition(LOG, priority))
    running = asyncio.create_task(fetcher.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (asked, source.exhausted.is_set()) == ([urgent], False)
    ready.set()
    await asyncio.wait_for(source.exhausted.wait(), 5)
    running.cancel()


async def test_what_a_source_may_not_write_is_not_handed_on_and_told_once_nothing_else_is_left() -> None:
    """Records that the source may not write are not copied, and this is reported once all others are."""
    fine, forged = stored(5, b"e"), stored(6, b"f")
    source = Source(
        FetchedPartition(0, 7, 7, 0, (), memoryview(bytearray(stored(1, b"a", b"b", b"c", b"d")))),  # the proof
        FetchedPartition(0, 7, 7, 0, (), memoryview(bytearray(fine + forged))),
        FetchedPartition(0, 7, 7, 0, (), memoryview(bytearray(forged))),
        end=7,
    )
    told, reach = [], SourceReach(1, 6)
    sink = Storing(fine)

    class Told(FakeLinkLogs):
        def refuse_log(self, tp: TopicPartition, reach: SourceReach, problem: str) -> None:
            told.append((len(sink.steps), tp, reach))

    link = Told("duck-star->tokyo", reach=reach)
    fetcher = Fetcher(link, Priority.CONTROL, source, sink)  # type: ignore[arg-type]
    replica = MirrorPartition(LOG, Priority.CONTROL)
    header = parse_header(stored(1, b"a", b"b", b"c", b"d"))
    replica.set_end(5, LastBatch(header.producer_id, 1, 0, 1, header.crc), 0)
    fetcher.follow(replica)
    await run_to_the_end(fetcher, source)
    assert [(step.base, step.stop) for step in sink.steps] == [(5, 6)]
    assert told == [(1, LOG, reach)]
    assert link.ends == {LOG: 6}
