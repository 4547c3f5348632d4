"""List the strays that wait, from one site's copies of the ``strays.*`` logs, the ledgers and the containers' logs.

A reading waits until it is in its log: below the offset that the newest marker's ``drained`` names, or found in the
log by (device, boot, sequence) after ``drained_since``. An event waits until the ledger has an entry with its id, a
later event gave the site custody, or the dead letters of the site that keeps it have it. A site that is behind still
lists strays that other sites have drained.
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
from edge.strays.store import Refusals
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
from fairlead.records.reading import milliseconds

STRAYS_PREFIX: Final = "strays."
LETTERS_PREFIX: Final = "deadletters."
_stray = decoder(Stray)
_event = decoder(Event)


class Kept(NamedTuple):
    """One stray: the site that keeps it, the time of receipt, and the identity of the reading or the event's id."""

    site: str
    received: dt.datetime
    name: MessageId | str


@dataclass(frozen=True, slots=True)
class WaitingLog:
    """The strays of one log, oldest first. ``holder`` and ``term`` are None if no ledger names the log."""

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
        """The number of strays, by the site that keeps them."""
        counts: dict[str, int] = defaultdict(int)
        for each in (*self.readings, *self.events):
            counts[each.site] += 1
        return dict(sorted(counts.items()))

    def longer_than(self, span: dt.timedelta, now: dt.datetime) -> WaitingLog | None:
        """Return only the strays that have waited for ``span`` or longer; None if there are none."""
        readings = tuple(each for each in self.readings if now - each.received >= span)
        events = tuple(each for each in self.events if now - each.received >= span)
        return WaitingLog(self.log, self.holder, self.term, readings, events) if readings or events else None


@dataclass(slots=True)
class _Open:
    readings: list[Kept] = field(default_factory=list)
    events: list[Kept] = field(default_factory=list)


class StrayList:
    """Finds the strays that still wait. Pure."""

    def __init__(self, entries: Iterable[CustodyEntry], is_box_log: Callable[[str], bool]) -> None:
        self._is_box_log = is_box_log
        self._view = CustodyView()
        self._grants: dict[str, list[CustodyEntry]] = defaultdict(list)
        for entry in entries:
            self._grants[entry.log].append(entry)
            with contextlib.suppress(
                SplitCustodyError
            ):  # the first entry counts; 'fairlead custody list' shows the conflict
                self._view.apply(entry)
        self._open: dict[str, _Open] = defaultdict(_Open)

    def add(self, strays_log: str, record: Record) -> None:
        """Add a record of a strays log; ignore records that are not strays."""
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
        """Return the newest grant of each log that may have some of the readings already, after ``drained_since``."""
        found = {log: self._view.grant(log) for log, each in self._open.items() if each.readings}
        return {log: grant for log, grant in found.items() if grant is not None}

    def is_part(self, log: str, batch: BatchHeader) -> bool:
        """Return whether a batch of this site's copy is part of the log: no seizure has cut it off."""
        seizures = self._view.seizures(log)
        return not any(batch.producer_epoch < each.term and batch.base_offset >= each.marker for each in seizures)

    def add_records(self, log: str, records: Iterable[Record]) -> None:
        """Drop the strays that are among these records of their log."""
        there = {identity_of(record) for record in records}
        opened = self._open[log]
        opened.readings = [each for each in opened.readings if each.name not in there]

    def events(self) -> list[Kept]:
        """Return the events that may wait."""
        return [each for opened in self._open.values() for each in opened.events]

    def drop_refused(self, refusals: Refusals) -> None:
        """Drop the events that the bridge that kept them has refused."""
        for log, opened in self._open.items():
            opened.events = [
                each
                for each in opened.events
                if not refusals.cover(LETTERS_PREFIX + each.site, log, str(each.name), milliseconds(each.received))
            ]

    def waiting(self) -> tuple[WaitingLog, ...]:
        """Return every log with strays, the one with the oldest stray first."""
        logs = [
            WaitingLog(log, self._view.holder(log), self._view.term(log), _sorted(each.readings), _sorted(each.events))
            for log, each in self._open.items()
            if each.readings or each.events
        ]
        return tuple(sorted(logs, key=lambda each: (each.oldest, each.log)))


async def find_waiting(cluster: Cluster, ledgers: Ledgers, is_box_log: Callable[[str], bool]) -> tuple[WaitingLog, ...]:
    """Return the strays that wait, from one site's strays logs and the ends of the logs that may have some already.

    Raises:
        BrokerError: the user may not read a log.
        ConnectionLost, RequestTimeout: no broker answers.
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
    letters = {f"{LETTERS_PREFIX}{each.site}" for each in strays.events()}
    refusals = Refusals({str(each.name) for each in strays.events()})
    async for tp, records in sweep(cluster, await extents(cluster, [TP(name) for name in topics if name in letters])):
        for record in records:
            refusals.add(tp.topic, record)
    strays.drop_refused(refusals)
    async for tp, records in sweep(cluster, tails, wanted=lambda tp, batch: strays.is_part(tp.topic, batch)):
        strays.add_records(tp.topic, records)
    return strays.waiting()


def _sorted(strays: Sequence[Kept]) -> tuple[Kept, ...]:
    return tuple(sorted(strays, key=lambda each: each.received))
