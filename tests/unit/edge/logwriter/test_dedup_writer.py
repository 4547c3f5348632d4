"""How much of its log a writer reads after a start: little for a new reading, and as much as necessary for a possible
repeat.
"""

from __future__ import annotations

from typing import Any

import pytest

from edge.logwriter import records
from edge.logwriter.container import DedupWriter
from edge.logwriter.tail_reader import DEEP, DEPTH, NEWEST, LogTail
from edge.logwriter.writer import EntryOutcome, LogEntry
from edge.messages import MessageId
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TopicPartition
from tests.support.edge.samples import BOX, BOX_LOG, NOW_MS, reading
from tests.unit.edge.logwriter.kafka_in_memory import Kafka

OTHER = "d2"


def said(sequence: int, device: str) -> NewRecord:
    return records.published(reading(sequence, name=device), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS + 5)


class Log(Kafka):
    """One log, and how far back it was read."""

    def __init__(self, *stored: tuple[str, range]) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.ranges: list[tuple[int, int]] = []
        self.outcomes: list[EntryOutcome] = []
        self.failures: list[BaseException] = []
        kept = self.logs[BOX_LOG] = []
        for device, sequences in stored:
            for record in (said(sequence, device) for sequence in sequences):
                kept.append(Record(len(kept), record.timestamp_ms, record.key, record.value, record.headers))

    async def read(self, topic: str, depth: int = DEPTH) -> LogTail:
        self.asked.append(depth)
        return await super().read(topic, depth)

    async def records(self, topic: str, start: int, end: int, *, patient: bool = True) -> Any:
        self.ranges.append((start, end))
        async for record in super().records(topic, start, end):
            yield record

    def writer(self) -> DedupWriter:
        """Return a writer in the state of a bridge that has just started."""
        return DedupWriter(BOX_LOG, self, self, settle=self._settled, fail=self.failures.append)  # type: ignore[arg-type]

    def _settled(self, _entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        self.outcomes.append(outcome)

    async def send(
        self, writer: DedupWriter, sequence: int, *, device: str = "d1", redelivered: bool = False
    ) -> Record:
        """Send one reading; return the newest record of the log."""
        writer.enqueue(LogEntry(said(sequence, device), MessageId(device, 1, sequence), redelivered))
        await writer.idle()
        assert self.failures == []
        return self.logs[BOX_LOG][-1]


async def test_for_a_newer_reading_only_the_newest_records_are_read() -> None:
    """For a reading newer than the log, only the newest records are read."""
    log = Log(("d1", range(3_000)))
    writer = log.writer()
    for sequence in (3_000, 3_001, 3_002):
        await log.send(writer, sequence)
    assert log.outcomes == [EntryOutcome.APPENDED] * 3
    assert (log.asked, log.ranges) == ([NEWEST], [])


@pytest.mark.parametrize("redelivered", [False, True])
@pytest.mark.parametrize(
    ("back", "asked", "further"),
    [
        (1, [NEWEST], False),
        (NEWEST, [NEWEST], False),
        (NEWEST + 1, [NEWEST, DEPTH], False),
        (DEPTH, [NEWEST, DEPTH], False),
        (DEPTH + 1, [NEWEST, DEPTH, DEEP], False),
        (DEEP, [NEWEST, DEPTH, DEEP], False),
        (DEEP + 1, [NEWEST, DEPTH, DEEP], True),
    ],
)
async def test_a_repeat_is_recognised_however_far_back_it_lies(
    back: int, asked: list[int], further: bool, redelivered: bool
) -> None:
    log = Log(("d1", range(3_000)))
    await log.send(log.writer(), 3_000 - back, redelivered=redelivered)
    assert (log.outcomes, len(log.logs[BOX_LOG])) == ([EntryOutcome.REPEAT], 3_000)
    again = [NEWEST, DEEP] if len(asked) > 1 else asked  # it reads the full depth at once
    assert log.asked == (again if redelivered else asked)
    assert log.ranges == ([(0, 3_000 - DEEP)] if further else [])


async def test_what_is_sent_again_and_newer_than_all_is_looked_for_among_all_that_may_be_sent_again() -> None:
    """A newer reading that is flagged as sent again is searched among all records that may be sent again."""
    log = Log(("d1", range(3_000)))
    await log.send(log.writer(), 3_000, redelivered=True)
    assert (log.outcomes, log.asked, log.ranges) == ([EntryOutcome.APPENDED], [NEWEST, DEEP], [])


async def test_a_device_that_is_not_among_the_newest_records_is_found_further_back() -> None:
    """A device that is not among the newest records is searched further back."""
    log = Log((OTHER, range(5)), ("d1", range(100)))
    writer = log.writer()
    await log.send(writer, 4, device=OTHER)
    newest = await log.send(writer, 5, device=OTHER)
    assert log.outcomes == [EntryOutcome.REPEAT, EntryOutcome.APPENDED]
    assert not records.is_late(newest)
    assert log.asked == [NEWEST, DEPTH]


async def test_a_reading_that_was_missing_is_appended_and_marked_late() -> None:
    log = Log(("d1", range(10)), ("d1", range(11, 3_000)))
    writer = log.writer()
    assert records.is_late(await log.send(writer, 10))
    assert not records.is_late(await log.send(writer, 3_000))
    assert log.outcomes == [EntryOutcome.APPENDED] * 2


async def test_late_records_do_not_tell_what_is_newest() -> None:
    """Late records do not show which reading is newest.

    The newest records are an old backlog: readings between them and the newest one may be in the log.
    """
    log = Log(("d1", range(100)), ("d1", range(110, 500)))
    backlog = [records.late(said(sequence, "d1")) for sequence in range(100, 100 + NEWEST + 1)]
    await log.append(TopicPartition(BOX_LOG), backlog)
    writer = log.writer()
    await log.send(writer, 499)
    newest = await log.send(writer, 500)
    assert log.outcomes == [EntryOutcome.REPEAT, EntryOutcome.APPENDED]
    assert not records.is_late(newest)
    assert log.asked == [NEWEST, DEPTH]


async def test_to_remember_from_an_offset_on_a_longer_tail_comes_before_reading_the_one_log() -> None:
    """To remember records from an offset on, the writer reads a longer tail, then the missing range of its log."""
    log = Log(("d1", range(3_000)))
    writer = log.writer()
    await writer.load_from(3_000 - DEPTH)
    assert (log.asked, log.ranges) == ([NEWEST, DEPTH], [])
    await writer.load_from(100)
    assert (log.asked, log.ranges) == ([NEWEST, DEPTH], [(100, 3_000 - DEPTH)])
    await log.send(writer, 100)
    assert log.outcomes == [EntryOutcome.REPEAT]
