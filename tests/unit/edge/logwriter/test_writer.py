from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.logwriter.dedup import RecentKeys, SequenceDedup
from edge.logwriter.writer import Barrier, EntryOutcome, LogEntry, LogWriter
from edge.messages import MessageId
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import Appended, TopicPartition


class Log:
    """A log in memory that can be made to wait or to fail."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.batches: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    def submit(
        self, log: TopicPartition, records: Sequence[NewRecord], *, term: int | None = None
    ) -> asyncio.Future[Appended]:
        return asyncio.ensure_future(self._append(log, records))

    async def _append(self, log: TopicPartition, records: Sequence[NewRecord]) -> Appended:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        base = len(self.values)
        self.values += [record.value for record in records]
        self.batches.append(len(records))
        return Appended(base, len(records))


class Bench:
    """A writer over a log in memory, and what it reported."""

    def __init__(self) -> None:
        self.log = Log()
        self.settled: list[tuple[int, EntryOutcome]] = []
        self.failures: list[BaseException] = []
        self.writer: LogWriter[MessageId] = LogWriter(
            "test.log", self.log, SequenceDedup(complete=True), settle=self._settle, fail=self.failures.append
        )

    def _settle(self, entry: LogEntry[MessageId], outcome: EntryOutcome) -> None:
        self.settled.append((entry.key.sequence, outcome))

    def put(self, sequence: int) -> LogEntry[MessageId]:
        entry = LogEntry(NewRecord(b"%d" % sequence, timestamp_ms=1), MessageId("d", 1, sequence))
        self.writer.enqueue(entry)
        return entry

    def stored(self) -> list[int]:
        return [int(value or b"") for value in self.log.values]


@given(st.lists(st.integers(0, 15), max_size=60), st.integers(0, 5))
async def test_what_arrives_is_stored_once_in_the_order_of_arrival(sent: list[int], pause_every: int) -> None:
    """Entries are stored once, in the order of arrival."""
    bench = Bench()
    for count, sequence in enumerate(sent):
        bench.put(sequence)
        if pause_every and count % pause_every == 0:
            await asyncio.sleep(0)
    await bench.writer.idle()
    assert bench.stored() == list(dict.fromkeys(sent))
    assert sorted(sequence for sequence, _ in bench.settled) == sorted(sent)
    assert sum(outcome is EntryOutcome.APPENDED for _, outcome in bench.settled) == len(set(sent))


async def test_what_comes_while_an_append_is_under_way_shares_the_next_one() -> None:
    """Entries that arrive during an append share the next one."""
    bench = Bench()
    bench.log.open.clear()
    bench.put(0)
    await asyncio.sleep(0)
    for sequence in range(1, 50):
        bench.put(sequence)
    bench.log.open.set()
    await bench.writer.idle()
    assert bench.log.batches == [1, 49]


async def test_a_repeat_is_done_only_when_the_first_is_stored() -> None:
    """A repeat counts as done only when the first entry is stored."""
    bench = Bench()
    bench.log.open.clear()
    bench.put(7)
    bench.put(7)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.settled == []
    bench.log.open.set()
    await bench.writer.idle()
    assert bench.settled == [(7, EntryOutcome.APPENDED), (7, EntryOutcome.REPEAT)]


async def test_a_control_runs_alone_between_what_came_before_and_after() -> None:
    """A barrier runs alone, after all entries before it and before all after it."""
    bench = Bench()
    seen: list[list[int]] = []

    async def look() -> None:
        await asyncio.sleep(0)
        seen.append(bench.stored())

    bench.put(1)
    bench.put(2)
    bench.writer.enqueue(Barrier(look))
    bench.put(3)
    await bench.writer.idle()
    assert seen == [[1, 2]]
    assert bench.stored() == [1, 2, 3]


async def test_an_error_stops_the_bridge_and_settles_nothing() -> None:
    """An error stops the bridge, and no entry counts as done."""
    bench = Bench()
    bench.log.error = ValueError("the log is gone")
    bench.put(1)
    await bench.writer.idle()
    assert bench.failures == [bench.log.error]
    assert bench.settled == []


async def test_whoever_waits_for_an_entry_sees_its_error() -> None:
    """The caller that waits for an entry gets its error."""
    bench = Bench()
    bench.log.error = ValueError("the log is gone")
    with pytest.raises(ValueError, match="gone"):
        await bench.writer.append(NewRecord(b"1", timestamp_ms=1), MessageId("d", 1, 1))


async def test_entries_know_their_offsets() -> None:
    """Stored entries carry their offsets."""
    bench = Bench()
    bench.put(0)
    entry = await bench.writer.append(NewRecord(b"1", timestamp_ms=1), MessageId("d", 1, 1))
    assert entry.offset == 1


async def test_large_entries_go_in_several_batches() -> None:
    bench = Bench()
    for sequence in range(4):
        bench.writer.enqueue(LogEntry(NewRecord(b"x" * 300_000, timestamp_ms=1), MessageId("d", 1, sequence)))
    await bench.writer.idle()
    assert bench.log.batches == [2, 2]


async def test_close_leaves_what_is_not_stored_unsettled() -> None:
    """Closing leaves entries that are not stored undone."""
    bench = Bench()
    bench.log.open.clear()
    bench.put(1)
    await asyncio.sleep(0)
    await bench.writer.close()
    assert bench.settled == []
    assert bench.failures == []


@pytest.mark.parametrize(("redelivered", "expected"), [(False, 3), (True, 1)])
async def test_equal_entries_without_an_id_are_all_stored_unless_they_are_sent_again(
    redelivered: bool, expected: int
) -> None:
    """Equal entries without an id are all stored, unless they are flagged as sent again."""
    log = Log()
    memory: RecentKeys[str] = RecentKeys(only_redelivered=True)
    writer: LogWriter[str] = LogWriter("test.log", log, memory, settle=lambda *_: None, fail=lambda _: None)
    log.open.clear()
    for n in range(3):
        writer.enqueue(LogEntry(NewRecord(b"x", timestamp_ms=1), "x", redelivered=redelivered and n > 0))
    log.open.set()
    await writer.idle()
    assert len(log.values) == expected
