"""Strays: readings and events that a site keeps in ``strays.<site>`` because it may not append to their log now.

``Strays`` keeps this site's own strays. A ``StrayIndex`` lists the readings that wait in one strays log; ``StrayBook``
has the indexes of all sites' strays logs. Memory has only offsets and identities; draining reads the strays log again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple

from edge.logwriter import records
from edge.logwriter.dedup import DedupResult, SequenceDedup
from edge.logwriter.writer import EntryOutcome, LogEntry, LogWriter, Sink
from edge.messages import MessageId, RejectReason
from edge.metrics import Metrics
from edge.mqtt.acks import PendingAck
from fairlead.custody.view import CustodyView
from fairlead.kafka.convention import is_data, received_ms
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.edge import DeadLetter, Stray
from fairlead.records.reading import milliseconds

log = logging.getLogger(__name__)

StrayKey = tuple[str, MessageId]
_letter = decoder(DeadLetter)
_LARGEST: Final = 512 << 10  # bytes of a stray with its key and headers; bridges take half of that from MQTT
_EVENT = -1  # boot and sequence in the identity of an event


class WaitingEvent(NamedTuple):
    """An event that waits for custody of its log. ``offset`` is its offset in the strays log, ``at`` its event time."""

    offset: int
    event_id: str
    at: dt.datetime
    received_ms: int


class KeptReading(NamedTuple):
    """A reading in a strays log. ``received_ms`` is its time of receipt in milliseconds since 1970."""

    offset: int
    identity: MessageId
    received_ms: int = 0


class Refusals:
    """Which events were refused after they had waited, by the dead letters of one or several sites. Pure.

    Args:
        wanted: The ids of the events that wait. Refusals of others are not remembered, because they may be very many.
    """

    def __init__(self, wanted: Container[str]) -> None:
        self._wanted = wanted
        self._newest: dict[tuple[str, str, str], int] = {}  # by dead-letter log, container and event id: ms since 1970

    def add(self, letters: str, record: Record) -> None:
        """Add a record of a dead-letter log; ignore records that are not letters of refused events."""
        if record.value is None or not is_data(record):
            return
        with contextlib.suppress(*UNREADABLE):
            letter = _letter.decode(record.value)
            event = records.event_of(letter.payload) if letter.reason == RejectReason.NOT_HOLDER.value else None
            if event is None or event.metadata.event_id not in self._wanted:
                return
            if event.payload.equipment_reference is not None:
                key = letters, event.payload.equipment_reference, event.metadata.event_id
                self._newest[key] = milliseconds(letter.received_date_time)

    def cover(self, letters: str, log: str, event_id: str, received_ms: int) -> bool:
        """Return whether an event was refused. One that came after the last refused one, such as a replay, was not.

        The letter of an event that waited has the time at which the event came, so a clock that is set back before the
        refusal has no effect. Letters of earlier releases have the time of the refusal.
        """
        return received_ms <= self._newest.get((letters, log.rpartition(".")[2], event_id), -1)


class _Kept:
    """The strays of one log: ascending offsets in the strays log, times of receipt, identities."""

    __slots__ = ("dedup", "offsets", "received")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.received = array("q")
        self.dedup = SequenceDedup(complete=True)


class StrayIndex:
    """The readings that wait in one strays log, by the log that they are for. Pure."""

    def __init__(self) -> None:
        self.kept: dict[str, _Kept] = {}  # by log; a log without strays has no entry
        self._ever: set[str] = set()
        self._done: dict[str, int] = {}  # by log: before this offset, strays are left out because they are drained
        self.end = 0  # the offset after the last record of the strays log that was added
        self.waiting = 0

    def add(self, log: str, offset: int, identity: MessageId, received_ms: int = 0) -> None:
        """Add a stray; offsets ascend."""
        kept = self.kept.get(log)
        if kept is None:
            kept = self.kept[log] = _Kept()
            self._ever.add(log)
        kept.offsets.append(offset)
        kept.received.append(received_ms)
        kept.dedup.add(identity)
        self.waiting += 1
        self.end = max(self.end, offset + 1)

    def logs(self) -> Set[str]:
        return self.kept.keys()

    def offsets(self, log: str) -> Iterable[int]:
        kept = self.kept.get(log)
        return kept.offsets if kept is not None else ()

    def oldest_ms(self, log: str) -> int | None:
        """Return the time of receipt of the log's oldest stray, in ms since 1970; None if the log has none."""
        kept = self.kept.get(log)
        return min(kept.received) if kept is not None else None

    def mark(self, log: str) -> int | None:
        """Return the offset before which the log's strays are drained; None if it had none since the bridge started."""
        if log not in self._ever:
            return None
        kept = self.kept.get(log)
        return kept.offsets[0] if kept is not None else max(self.end, self.done(log))

    def drained(self, log: str, *, upto: int) -> None:
        """Drop the log's strays before offset ``upto``: the log has them now."""
        if log in self._ever:
            self.passed(log, upto)
        kept = self.kept.get(log)
        if kept is None:
            return
        left = [place for place, offset in enumerate(kept.offsets) if offset >= upto]
        self.waiting -= len(kept.offsets) - len(left)
        if left:
            kept.received = array("q", (kept.received[place] for place in left))
            kept.offsets = array("q", (kept.offsets[place] for place in left))
        else:
            del self.kept[log]

    def passed(self, log: str, upto: int) -> None:
        """Note that the index leaves out the log's strays before ``upto``, because the log has them."""
        self._done[log] = max(upto, self._done.get(log, 0))

    def done(self, log: str) -> int:
        """Return the offset before which the index may leave out the log's strays; 0 if it has them all."""
        return self._done.get(log, 0)

    def go_back(self, offset: int) -> None:
        """Drop the strays from ``offset`` on, of all logs: the strays log cannot be read there now."""
        self.end = min(self.end, offset)
        for log, kept in tuple(self.kept.items()):
            left = bisect_left(kept.offsets, offset)
            self.waiting -= len(kept.offsets) - left
            del kept.offsets[left:], kept.received[left:]
            if not left:
                del self.kept[log]

    def forget(self, log: str) -> None:
        """Drop one log from the index; the caller then reads its strays again from further back."""
        self._done.pop(log, None)
        kept = self.kept.pop(log, None)
        if kept is not None:
            self.waiting -= len(kept.offsets)

    def check(self, key: StrayKey) -> DedupResult:
        """Return ``REPEAT`` if the strays log has this reading already, else ``NEW``."""
        kept = self.kept.get(key[0])
        # If the dedup has forgotten a reading, the strays log gets it twice; draining drops the repeat.
        known = kept is not None and kept.dedup.check(key[1]) is DedupResult.REPEAT
        return DedupResult.REPEAT if known else DedupResult.NEW


class _StrayMemory:
    """The writer's view of which strays are kept already; ``Strays`` adds to it once offsets are known."""

    only_redelivered = False

    def __init__(self, strays: Strays) -> None:
        self._strays = strays

    def check(self, key: StrayKey, *, redelivered: bool = False) -> DedupResult:
        if is_event(key):
            waits = any(event.event_id == key[1].device for event in self._strays.events.get(key[0], ()))
            return DedupResult.REPEAT if waits else DedupResult.NEW
        return self._strays.index.check(key)

    def add(self, key: StrayKey) -> None:
        return


class Strays:
    """Appends this site's strays to its strays log and indexes them.

    ``events`` has the events that wait, by log, in order of arrival.

    Args:
        is_box_log: Whether a topic is the log of a container; strays for other topics are ignored.
    """

    def __init__(
        self,
        log: str,
        sink: Sink,
        metrics: Metrics,
        *,
        is_box_log: Callable[[str], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.is_box_log = is_box_log
        self.index = StrayIndex()
        self.events: dict[str, list[WaitingEvent]] = {}
        self.events_due = asyncio.Event()  # set when this site gets custody of a log for which events wait
        self._metrics = metrics
        self._on_the_way: Counter[str] = Counter()
        self._event_times: dict[str, dt.datetime] = {}
        self.writer: LogWriter[StrayKey] = LogWriter(log, sink, _StrayMemory(self), settle=self._settled, fail=fail)

    def keep_reading(self, log: str, entry: LogEntry[MessageId]) -> None:
        """Keep a reading of a log that this site does not hold; acknowledge its message once the stray is stored."""
        self._enqueue(log, records.stray(log, entry.record), entry.key, entry.redelivered, entry.ack)

    def keep_event(
        self, log: str, record: NewRecord, event_id: str, at: dt.datetime, mqtt_topic: str, ack: PendingAck | None
    ) -> None:
        """Keep an event until this site has custody; acknowledge its message once it is stored."""
        self._event_times[event_id] = at
        self._enqueue(
            log, records.stray_event(log, record, mqtt_topic), MessageId(event_id, _EVENT, _EVENT), False, ack
        )

    def _enqueue(self, log: str, wrapped: NewRecord, key: MessageId, redelivered: bool, ack: PendingAck | None) -> None:
        self._on_the_way[log] += 1
        self.writer.enqueue(LogEntry(wrapped, (log, key), redelivered, ack))

    def custody_came(self, log: str) -> None:
        """Set ``events_due`` if events wait for a log that this site holds now."""
        if log in self.events:
            self.events_due.set()

    def has_any_for(self, log: str) -> bool:
        """Return whether this site keeps readings for this log, or is appending a stray for it."""
        return log in self.index.kept or log in self._on_the_way

    def recall_record(
        self, record: Record, drained_before: Callable[[str], int], done: Callable[[str, WaitingEvent], bool]
    ) -> None:
        """Index a record of the strays log when the bridge starts.

        Args:
            drained_before: The offset in this strays log before which a log has its strays.
            done: Whether an event of a log has been carried out.
        """
        self.index.end = max(self.index.end, record.offset + 1)
        stray = of_box(self.log, record, self.is_box_log)
        if stray is None:
            return
        if stray.event:
            event = records.event_of(stray.payload)
            if event is not None:
                waiting = WaitingEvent(
                    record.offset, event.metadata.event_id, event.payload.event_date_time, received_ms(record)
                )
                if not done(stray.log, waiting):
                    self.events.setdefault(stray.log, []).append(waiting)
            return
        if record.offset < (floor := drained_before(stray.log)):
            self.index.passed(stray.log, floor)
        elif (identity := records.identity(stray.payload)) is not None:
            self.index.add(stray.log, record.offset, identity, received_ms(record))

    def carried_out(self, log: str, event_id: str) -> None:
        """Drop an event that has been carried out."""
        self._let_wait(log, [event for event in self.events.get(log, ()) if event.event_id != event_id])

    def refused(self, log: str, event: WaitingEvent) -> None:
        """Drop one event that was refused; another with the same id, which came later, still waits."""
        self._let_wait(log, [each for each in self.events.get(log, ()) if each.offset != event.offset])

    def _let_wait(self, log: str, events: list[WaitingEvent]) -> None:
        if events:
            self.events[log] = events
        else:
            self.events.pop(log, None)

    def _settled(self, entry: LogEntry[StrayKey], outcome: EntryOutcome) -> None:
        log, identity = entry.key
        self._on_the_way[log] -= 1
        if not self._on_the_way[log]:
            del self._on_the_way[log]
        if is_event(entry.key):
            at = self._event_times.pop(identity.device, None)
            if outcome is EntryOutcome.APPENDED and at is not None:
                waiting = WaitingEvent(entry.offset, identity.device, at, received_ms(entry.record))
                self.events.setdefault(log, []).append(waiting)
                self.index.end = max(self.index.end, entry.offset + 1)
        elif outcome is EntryOutcome.APPENDED:
            self.index.add(log, entry.offset, identity, received_ms(entry.record))
        if outcome is EntryOutcome.REPEAT:
            self._metrics.repeats += 1
        elif is_event(entry.key):
            self._metrics.events_kept += 1
        else:
            self._metrics.strays += 1
        if entry.ack is not None:
            entry.ack.finish_part()


def kept_reading(record: Record, stray: Stray) -> KeptReading | None:
    """Return the reading in a stray; None for an event and for a payload that is not a reading."""
    identity = None if stray.event else records.identity(stray.payload)
    return KeptReading(record.offset, identity, received_ms(record)) if identity is not None else None


def is_event(key: StrayKey) -> bool:
    """Return whether a key in the strays log is an event's."""
    return key[1].boot == _EVENT


def of_box(strays_log: str, record: Record, is_box_log: Callable[[str], bool]) -> Stray | None:
    """Return the stray in a record; None, after logging an error, if it is not for the log of a container."""
    stray = readable(record)
    if stray is None or is_box_log(stray.log):
        return stray
    log.error(
        "%s@%d: ignored a stray for %s, which is not the log of a container here", strays_log, record.offset, stray.log
    )
    return None


def readable(record: Record) -> Stray | None:
    """Return the stray in a record; None for markers, fillers and records that no bridge wrote, such as one that is too
    large for the log that it is for: that log would be broken for good."""
    try:
        stray = records.read_stray(record)
    except UNREADABLE:
        return None
    return stray if stray is not None and fits(stray.payload, record) else None


def fits(payload: bytes, record: Record) -> bool:
    """Return whether a payload with a record's key and headers is one that a bridge may have written."""
    others = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(payload) + len(record.key or b"") + others <= _LARGEST


class StrayBook:
    """All strays that this site can see: its own, and those in its copies of other sites' strays logs.

    The holder of a log drains the strays that every site keeps for it, so there is an index for every strays log. The
    newest marker of a log says how far its earlier holders have drained each strays log.

    Args:
        own: This site's own strays.
        others: Topics of the other sites' strays logs.
        trusted: Whether strays of one strays log may be appended to one log.
    """

    def __init__(
        self,
        own: Strays,
        others: tuple[str, ...],
        view: CustodyView,
        *,
        trusted: Callable[[str, str], bool] = lambda _strays, _log: True,
    ) -> None:
        self.own = own
        self._trusted = trusted
        self._view = view
        self._others = {topic: StrayIndex() for topic in others}

    def indexes(self) -> Iterator[tuple[str, StrayIndex]]:
        """Yield every strays log with its index, this site's own first."""
        yield self.own.log, self.own.index
        yield from self._others.items()

    def has_any_for(self, log: str) -> bool:
        """Return whether any strays log has readings that may be appended to this log."""
        if self.own.has_any_for(log):
            return True
        for topic, index in self._others.items():  # called for every reading
            if log in index.kept and self._trusted(topic, log):
                return True
        return False

    def may_drain(self, strays: str, log: str) -> bool:
        """Return whether strays of a strays log may be appended to a log; this site's own always may."""
        return strays == self.own.log or self._trusted(strays, log)

    def logs(self) -> Set[str]:
        """Return every log for which readings wait."""
        return set().union(*(index.logs() for _, index in self.indexes()))

    def drained(self, log: str) -> dict[str, int]:
        """Return ``drained`` of the log's next marker: by strays log, the offset before which all are drained."""
        grant = self._view.grant(log)
        marks = dict(grant.drained) if grant is not None else {}
        for topic, index in self.indexes():
            mark = index.mark(log)
            if mark is not None:
                marks[topic] = max(mark, marks.get(topic, 0))
        return marks

    def passed_on(self, log: str, drained: Mapping[str, int]) -> None:
        """Drop the strays that a log's new marker names as drained."""
        for topic, index in self.indexes():
            index.drained(log, upto=drained.get(topic, 0))

    def add_record(self, topic: str, record: Record) -> str | None:
        """Index a record of another site's strays log. Return the log for which its reading waits, or None."""
        self._others[topic].end = max(self._others[topic].end, record.offset + 1)
        stray = of_box(topic, record, self.own.is_box_log)
        if stray is not None and (kept := kept_reading(record, stray)) is not None:
            return stray.log if self.learn(topic, stray.log, kept) else None
        return None

    def learn(self, topic: str, log: str, kept: KeptReading) -> bool:
        """Index a reading of another site's strays log; return False if it is drained already."""
        index = self._others[topic]
        index.end = max(index.end, kept.offset + 1)
        if kept.offset < (floor := self.floor(log, topic)):
            index.passed(log, floor)
            return False
        index.add(log, *kept)
        return True

    def go_back(self, topic: str, offset: int) -> int:
        """Drop the strays of another site's strays log from ``offset`` on, where it is damaged now.

        Returns:
            Where to read on. A reader that began further on may meet the same damage after another one.
        """
        index = self._others[topic]
        index.go_back(offset)
        return index.end

    def floor(self, log: str, topic: str) -> int:
        """Return the offset before which one strays log is drained for a log, according to the log's newest marker."""
        grant = self._view.grant(log)
        return grant.drained.get(topic, 0) if grant is not None else 0

    def is_put_back(self, log: str) -> bool:
        """Return whether a seizure has undone drains: the log's newest marker names less as drained than an earlier
        one did. True even before the ledger entry of that seizure has arrived here."""
        return any(index.done(log) > self.floor(log, topic) for topic, index in self.indexes())

    def look_again(self, log: str, topic: str, found: Iterable[KeptReading]) -> None:
        """Index the strays of one log in one strays log again: those found between ``floor`` and ``index.end``.

        Needed after a seizure, which undoes drains of the site that lost custody.
        """
        index = dict(self.indexes())[topic]
        floor = self.floor(log, topic)
        index.forget(log)
        for kept in found:
            if floor <= kept.offset < index.end:
                index.add(log, *kept)
