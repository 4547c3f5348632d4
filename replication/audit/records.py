"""Compare logs by records: digests of chunks of many logs at a time, then ever smaller chunks where they differ.

Blocking; one thread reads both sites in turn. Memory: two readers' queues, and per log a digest of each chunk that one
side has finished before the other, at most ``AHEAD`` of them. The sides are 0 and 1; one may be ahead of the other.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from threading import Event
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.audit.ranges import Common, Inquiries
from replication.audit.reader import AuditReader, LogStartMoved, Offsets, Stopped, read_all
from replication.audit.result import AuditDifference, SeenRecord
from replication.audit.side_by_side import first_unexplained
from replication.link.byte_budget import ReadPace

CHUNK: Final = 10_000  # offsets
_Digest = tuple[int, bytes]  # number of records, and their digest
_encode: Final = msgspec.msgpack.Encoder().encode  # values have length prefixes, so different sequences never collide


def digest(offset: int, record: SeenRecord) -> bytes:
    """Return the digest of one record and its offset."""
    return hashlib.sha256(_encode((offset, *record))).digest()


class Chunks:
    """Compare offsets ``start`` to ``stop - 1`` of one log from two sides, by a digest of each chunk.

    Attributes:
        differs: Offsets ``(first, stop)`` of the first chunk that differs, once that is known.
        records: Number of records found equal.
    """

    __slots__ = (
        "_counts",
        "_digests",
        "_done",
        "_equal",
        "_index",
        "_last",
        "_running",
        "differs",
        "records",
        "size",
        "start",
        "stop",
    )

    def __init__(self, start: int, stop: int, size: int = CHUNK) -> None:
        self.start, self.stop, self.size = start, stop, size
        self.differs: tuple[int, int] | None = None
        self.records = 0
        self._last = -(-(stop - start) // size)  # number of chunks
        self._equal = 0  # all chunks below this index are equal
        self._done = [0, 0]  # per side, all chunks below this index are finished
        self._index = [-1, -1]  # per side, the chunk of the running digest
        self._running: list[Any] = [None, None]
        self._counts = [0, 0]  # records of the running digest
        self._digests: tuple[dict[int, _Digest], dict[int, _Digest]] = ({}, {})

    def add(self, side: int, offset: int, record: SeenRecord) -> bool:
        """Add a side's next record; offsets ascend within the range. Return True if it finished a chunk."""
        index = (offset - self.start) // self.size
        new = index != self._index[side]
        if new:
            self._finish(side, index)
            self._index[side] = index
            self._running[side] = hashlib.sha256()
            self._counts[side] = 0
        self._running[side].update(_encode((offset, *record)))
        self._counts[side] += 1
        return new

    def reach(self, side: int) -> None:
        """Record that a side has no more records in the range."""
        self._finish(side, self._last)

    @property
    def compared_to(self) -> int:
        """Return the offset below which everything is equal."""
        return min(self.stop, self.start + self._equal * self.size)

    @property
    def finished(self) -> bool:
        """Return whether everything is equal or ``differs`` is known."""
        return self.differs is not None or self._equal == self._last

    def ahead(self, side: int) -> int:
        """Return how many chunks a side has finished that the other has not."""
        return self._done[side] - self._done[1 - side]

    def _finish(self, side: int, before: int) -> None:
        """Complete a side's chunks below ``before``."""
        if self._running[side] is not None:
            self._digests[side][self._index[side]] = self._counts[side], self._running[side].digest()
            self._running[side] = None
        self._done[side] = before
        here, there = self._digests
        common = min(self._done)
        while self._equal < common and self.differs is None:
            one, other = here.pop(self._equal, None), there.pop(self._equal, None)
            if one != other:
                first = self.start + self._equal * self.size
                self.differs = first, min(first + self.size, self.stop)
            else:
                self._equal += 1
                self.records += one[0] if one else 0


AT_ONCE: Final = 1_000  # logs
PER_LOG: Final = 2_000  # bytes/s; each answer has some 50 bytes per requested log, so a low rate reads fewer logs
AHEAD: Final = 100  # chunks that one side may be ahead of the other
CLOSER: Final = 100  # factor by which chunks shrink when searching for a difference
WAIT: Final = 0.02  # seconds to wait for one site before polling the other
ATTEMPTS: Final = 20  # per log that keeps being compacted or shortened during the comparison

Where = dict[TopicPartition, Offsets]
Again = dict[TopicPartition, int]  # logs that changed meanwhile, with the offset from which to compare again


class AuditVerdict(NamedTuple):
    """The result for one range of a log.

    Args:
        records: Number of records found equal.
        compacted: The records differ, but compaction explains every difference.
    """

    log: Common
    records: int
    difference: AuditDifference | None = None
    compacted: bool = False


class AuditSites:
    """The two sites of an audit: endpoints, inquiries, and read rates.

    Args:
        stop: If another thread sets it, the comparison raises ``Stopped``.
    """

    def __init__(self, a: KafkaEndpoint, b: KafkaEndpoint, *, rate: int | None, stop: Event) -> None:
        self.endpoints = (a, b)
        self.inquiries = Inquiries(a, b)
        self.paces = (ReadPace(rate), ReadPace(rate))
        self.stop = stop
        self._voids: tuple[dict[TopicPartition, Offsets], dict[TopicPartition, Offsets]] = ({}, {})

    def reader(self, side: int, logs: list[Common]) -> AuditReader:
        return AuditReader(self.endpoints[side], logs, self.paces[side], self._voids[side])


class Comparison:
    """Compare ranges of logs by their records.

    Args:
        on_equal: Called with a log and the offset below which it is equal: now and then, and at each log's end.
    """

    def __init__(
        self, sites: AuditSites, *, chunk: int = CHUNK, on_equal: Callable[[Common, int], None] = lambda _log, _to: None
    ) -> None:
        self._sites = sites
        self._chunk = chunk
        rate = sites.paces[0].rate
        self._at_once = AT_ONCE if rate is None else min(AT_ONCE, max(10, rate // PER_LOG))
        self._on_equal = on_equal
        self._again: deque[Common] = deque()
        self._counts: dict[TopicPartition, int] = {}
        self._attempts: dict[TopicPartition, int] = {}

    def verdicts(self, logs: Iterable[Common]) -> Iterator[AuditVerdict]:
        """Yield one verdict for each log, in any order. ``logs`` must not repeat a log.

        Raises:
            Stopped: ``AuditSites.stop`` was set. FairleadError: a site cannot be read.
        """
        waiting = iter(logs)
        while True:
            wave = [self._again.popleft() for _ in range(len(self._again))]
            wave += islice(waiting, max(0, self._at_once - len(wave)))
            if not wave:
                return
            yield from self._wave({log.tp: log for log in wave})

    def _wave(self, logs: Mapping[TopicPartition, Common]) -> Iterator[AuditVerdict]:
        size = self._chunk
        ranges: Where = {tp: (log.start, log.stop) for tp, log in logs.items()}
        differing, again = self._differing(logs, ranges, size, first_time=True)
        for tp, log in logs.items():
            if tp not in differing and tp not in again:
                yield self._equal(log)
        while differing and size > 1:
            size = max(1, size // CLOSER)
            ranges = differing
            differing, moved = self._differing(logs, ranges, size)
            same_now = {tp: stop for tp, (_, stop) in ranges.items() if tp not in differing and tp not in moved}
            again |= moved | same_now
        yield from self._judge_differences(logs, {tp: first for tp, (first, _) in differing.items()}, again)
        yield from self._once_more(logs, again)

    def _differing(
        self, logs: Mapping[TopicPartition, Common], ranges: Where, size: int, *, first_time: bool = False
    ) -> tuple[Where, Again]:
        """Compare ranges by digests; return the first differing chunk of each log."""
        wanted = [logs[tp]._replace(start=first, stop=stop) for tp, (first, stop) in ranges.items() if first < stop]
        chunks = {log.tp: Chunks(log.start, log.stop, size) for log in wanted}
        moved = self._read_both(wanted, chunks, note=first_time) if wanted else set()
        out: Where = {}
        for tp, compared in chunks.items():
            if tp in moved:
                continue
            if first_time:
                self._counts[tp] = self._counts.get(tp, 0) + compared.records
            if compared.differs is not None:
                out[tp] = compared.differs
        return out, {tp: ranges[tp][0] for tp in moved}

    def _read_both(
        self, logs: list[Common], chunks: Mapping[TopicPartition, Chunks], *, note: bool
    ) -> set[TopicPartition]:
        """Read both sides until every log is decided; return the logs that were shortened."""
        open_ = {log.tp: log for log in logs}
        with self._sites.reader(0, logs) as here, self._sites.reader(1, logs) as there:
            readers = here, there
            busy = False
            while open_:
                delays = [reader.pause_seconds() for reader in readers if reader.wants]
                if self._sites.stop.wait(0 if busy else min(delays, default=0)):
                    raise Stopped
                wait, busy = 0 if busy else WAIT, False
                for side, reader in enumerate(readers):
                    for tp, offset, record in reader.poll(wait):
                        busy = True
                        compared = chunks[tp]
                        if record is None:
                            compared.reach(side)
                        elif not compared.add(side, offset, record):
                            continue
                        if tp in open_:
                            self._advance(open_, compared, readers, side, tp, note=note)
                for tp in here.moved | there.moved:
                    if open_.pop(tp, None) is not None:
                        here.drop(tp)
                        there.drop(tp)
            return here.moved | there.moved

    def _advance(
        self,
        open_: dict[TopicPartition, Common],
        compared: Chunks,
        readers: tuple[AuditReader, AuditReader],
        side: int,
        tp: TopicPartition,
        *,
        note: bool,
    ) -> None:
        """Pause or resume sides after one has finished a chunk."""
        if compared.finished:
            del open_[tp]
            for reader in readers:
                reader.drop(tp)
            return
        if compared.ahead(side) >= AHEAD:
            readers[side].rest(tp)
        if compared.ahead(1 - side) < AHEAD // 2:
            readers[1 - side].resume(tp)
        if note and compared.compared_to > compared.start:
            self._on_equal(open_[tp], compared.compared_to)

    def _judge_differences(
        self, logs: Mapping[TopicPartition, Common], offsets: Mapping[TopicPartition, int], again: Again
    ) -> Iterator[AuditVerdict]:
        """Yield verdicts on the logs' first differences; those that compaction explains do not count."""
        found = self._both_at(logs, offsets, again)
        one_sided = [tp for tp, (a, b) in found.items() if (a is None) != (b is None)]
        starts = self._sites.inquiries.starts(one_sided)
        compacted = self._sites.inquiries.compacted({tp.topic for tp in one_sided})
        for tp, (a, b) in found.items():
            log, offset = logs[tp], offsets[tp]
            if starts.get(tp, 0) > offset:
                again[tp] = offset
            elif (a and a.digest) == (b and b.digest):
                again[tp] = offset + 1  # one side was compacted meanwhile
            elif tp in starts and tp.topic in compacted:
                yield from self._compacted(log, offset, again)
            else:
                yield self._different(log, offset, a, b)

    def _both_at(
        self, logs: Mapping[TopicPartition, Common], offsets: Mapping[TopicPartition, int], again: Again
    ) -> dict[TopicPartition, tuple[_At | None, _At | None]]:
        """Read both sides' records at one offset of each log."""
        wanted = [logs[tp]._replace(start=offset, stop=offset + 1) for tp, offset in offsets.items()]
        found: tuple[dict[TopicPartition, _At], dict[TopicPartition, _At]] = ({}, {})
        for side in (0, 1) if wanted else ():
            with self._sites.reader(side, wanted) as reader:
                for tp, offset, record in read_all(reader, self._sites.stop):
                    found[side][tp] = _At(digest(offset, record), record.as_json())
            again |= {tp: offsets[tp] for tp in reader.moved}
        return {tp: (found[0].get(tp), found[1].get(tp)) for tp in offsets if tp not in again}

    def _compacted(self, log: Common, offset: int, again: Again) -> Iterator[AuditVerdict]:
        """Find the first difference from ``offset`` on that compaction does not explain."""
        ends = self._sites.inquiries.ends(log)
        try:
            with (
                closing(self._read(0, log, offset, ends[0], count=True)) as a,
                closing(self._read(1, log, offset, ends[1])) as b,
            ):
                first = first_unexplained(a, b, log.stop, lambda side, before: self._from_start(side, log, before))
        except LogStartMoved:
            again[log.tp] = offset
            return
        if first is None:
            yield self._equal(log, compacted=True)
            return
        for one, other in self._both_at({log.tp: log}, {log.tp: first}, again).values():
            yield self._different(log, first, one, other)

    def _from_start(self, side: int, log: Common, before: int) -> Iterator[tuple[int, SeenRecord]]:
        return self._read(side, log, self._sites.inquiries.starts([log.tp])[log.tp], before)

    def _read(
        self, side: int, log: Common, start: int, stop: int, *, count: bool = False
    ) -> Generator[tuple[int, SeenRecord], None, None]:
        if start >= stop:
            return
        with self._sites.reader(side, [log._replace(start=start, stop=stop)]) as reader:
            for _, offset, record in read_all(reader, self._sites.stop):
                self._counts[log.tp] += count and offset < log.stop
                yield offset, record
            if reader.moved:
                raise LogStartMoved

    def _once_more(self, logs: Mapping[TopicPartition, Common], again: Again) -> Iterator[AuditVerdict]:
        """Schedule logs to be compared again from an offset on, as far as both sites still have them."""
        starts = self._sites.inquiries.starts(again)
        for tp, at in again.items():
            log = logs[tp]
            self._attempts[tp] = tries = self._attempts.get(tp, 0) + 1
            if tries > ATTEMPTS:
                raise UnavailableError(
                    f"{tp} was shortened or compacted {ATTEMPTS} times while it was compared",
                    hint="compare without --rate, or when there is less traffic",
                    log=str(tp),
                )
            start = max(at, starts[tp])
            if start < log.stop:
                self._again.append(log._replace(start=start))
            else:
                yield self._equal(log)

    def _equal(self, log: Common, *, compacted: bool = False) -> AuditVerdict:
        self._on_equal(log, log.stop)
        return AuditVerdict(log, self._counts.pop(log.tp, 0), compacted=compacted)

    def _different(self, log: Common, offset: int, a: _At | None, b: _At | None) -> AuditVerdict:
        self._on_equal(log, offset)
        difference = AuditDifference(str(log.tp), offset, a.shown if a else None, b.shown if b else None)
        return AuditVerdict(log, self._counts.pop(log.tp, 0), difference)


class _At(NamedTuple):
    """A record's digest and its form for display, without the possibly long value."""

    digest: bytes
    shown: dict[str, Any]
