"""Which strays wait, as far as one site can see: all ``strays.*`` logs there against the ledgers and the logs.

A reading waits until it is in its log: below the offset that the newest marker's ``drained`` names, or found in the
log by (device, boot, sequence) after ``drained_since``. An event waits until the ledger has an entry with its id, or
custody came by an event that happened later. A site that is behind sees strays that are drained elsewhere already.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from edge.logwriter.records import identity, identity_of
from edge.messages import MessageId
from fairlead.custody.ledger import Ledgers
from fairlead.custody.view import CustodyView, Grant, SplitCustodyError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, extents, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.batch import BatchHeader
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE, decoder
from fairlead.records.custody import CustodyEntry
from fairlead.records.edge import Stray
from fairlead.records.event import Event

STRAYS_PREFIX: Final = "strays."
_stray = decoder(Stray)
_event = decoder(Event)


class Kept(NamedTuple):
    """One stray: who keeps it, when it came, and what names it (of an event: its id)."""

    site: str
    received: dt.datetime
    name: MessageId | str


@dataclass(frozen=True, slots=True)
class WaitingLog:
    """What waits for one log, oldest first. ``holder`` and ``term`` are None where no ledger names the log."""

    log: str
    holder: str | None
    term: int | None
    readings: tuple[Kept, ...]
    events: tuple[Kept, ...]

    @property
    def oldest(self) -> dt.datetime:
        return min(each.received for each in (*self.readings, *self.events))

    @property
    def kept_at(self) -> dict[str, int]:
        """How many each site keeps."""
        counts: dict[str, int] = defaultdict(int)
        for each in (*self.readings, *self.events):
            counts[each.site] += 1
        return dict(sorted(counts.items()))

    def longer_than(self, span: dt.timedelta, now: dt.datetime) -> WaitingLog | None:
        """The same without what waits for less than ``span``; None when nothing is left."""
        readings = tuple(each for each in self.readings if now - each.received >= span)
        events = tuple(each for each in self.events if now - each.received >= span)
        return WaitingLog(self.log, self.holder, self.term, readings, events) if readings or events else None


@dataclass(slots=True)
class _Open:
    readings: list[Kept] = field(default_factory=list)
    events: list[Kept] = field(default_factory=list)


class StrayList:
    """Sorts strays into those that are drained and those that wait. Pure."""

    def __init__(self, entries: Iterable[CustodyEntry], is_box_log: Callable[[str], bool]) -> None:
        self._is_box_log = is_box_log
        self._view = CustodyView()
        self._grants: dict[str, list[CustodyEntry]] = defaultdict(list)
        for entry in entries:
            self._grants[entry.log].append(entry)
            with contextlib.suppress(
                SplitCustodyError
            ):  # the first one counts; 'fairlead custody list' shows the conflict
                self._view.apply(entry)
        self._open: dict[str, _Open] = defaultdict(_Open)

    def add(self, strays_log: str, record: Record) -> None:
        """Add a record of a strays log; records that are no strays are ignored."""
        if record.value is None or not is_data(record):
            return
        try:
            stray = _stray.decode(record.value)
        except UNREADABLE:
            return
        if not self._is_box_log(stray.log):
            return
        site = strays_log.removeprefix(STRAYS_PREFIX)
        if stray.event:
            self._add_event(site, stray)
            return
        grant = self._view.grant(stray.log)
        if grant is not None and record.offset < grant.drained.get(strays_log, 0):
            return
        name = identity(stray.payload)
        if name is not None:
            self._open[stray.log].readings.append(Kept(site, stray.received_date_time, name))

    def _add_event(self, site: str, stray: Stray) -> None:
        try:
            event = _event.decode(stray.payload)
        except UNREADABLE:
            return
        happened, event_id = event.payload.event_date_time, event.metadata.event_id
        for entry in self._grants.get(stray.log, ()):
            overtaken = entry.to_site == site and entry.event_date_time > happened
            if entry.event_id == event_id or overtaken:
                return
        self._open[stray.log].events.append(Kept(site, stray.received_date_time, event_id))

    def unsure(self) -> dict[str, Grant]:
        """Logs that may have some of the readings already, with their newest grant: look after ``drained_since``."""
        found = {log: self._view.grant(log) for log, each in self._open.items() if each.readings}
        return {log: grant for log, grant in found.items() if grant is not None}

    def is_part(self, log: str, batch: BatchHeader) -> bool:
        """Whether a batch of this site's copy is part of the log, not of what a seizure cut off."""
        seizures = self._view.seizures(log)
        return not any(batch.producer_epoch < each.term and batch.base_offset >= each.marker for each in seizures)

    def add_records(self, log: str, records: Iterable[Record]) -> None:
        """Records that are in a log: strays that are among them wait no more."""
        there = {identity_of(record) for record in records}
        opened = self._open[log]
        opened.readings = [each for each in opened.readings if each.name not in there]

    def waiting(self) -> tuple[WaitingLog, ...]:
        """What waits, the log with the oldest stray first."""
        logs = [
            WaitingLog(log, self._view.holder(log), self._view.term(log), _sorted(each.readings), _sorted(each.events))
            for log, each in self._open.items()
            if each.readings or each.events
        ]
        return tuple(sorted(logs, key=lambda each: (each.oldest, each.log)))


async def find_waiting(cluster: Cluster, ledgers: Ledgers, is_box_log: Callable[[str], bool]) -> tuple[WaitingLog, ...]:
    """Read the strays logs of one site, and of the logs that may have some already what is needed to be sure.

    Raises:
        BrokerError: a log may not be read. ConnectionLost, RequestTimeout: no broker answers.
    """
    topics = await cluster.topics(refresh=True)
    strays = StrayList((entry for entry in ledgers.entries if isinstance(entry, CustodyEntry)), is_box_log)
    kept = await extents(cluster, [TP(name) for name in topics if name.startswith(STRAYS_PREFIX)])
    async for tp, records in sweep(cluster, kept):
        for record in records:
            strays.add(tp.topic, record)
    unsure = {TP(log): grant for log, grant in strays.unsure().items() if log in topics}
    tails = {
        tp: OffsetRange(max(extent.start, unsure[tp].drained_since + 1), extent.end)
        for tp, extent in (await extents(cluster, list(unsure))).items()
    }
    async for tp, records in sweep(cluster, tails, wanted=lambda tp, batch: strays.is_part(tp.topic, batch)):
        strays.add_records(tp.topic, records)
    return strays.waiting()


def _sorted(strays: Sequence[Kept]) -> tuple[Kept, ...]:
    return tuple(sorted(strays, key=lambda each: each.received))
