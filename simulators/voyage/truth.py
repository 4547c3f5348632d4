"""The expected content of logs and feeds after a voyage, computed from everything published. No I/O.

``Truth.record`` gets each message when it goes to its broker, so an interrupted voyage has its truth too. Identities of
readings are stored as runs of sequence numbers, so that millions of readings need little memory.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from fairlead.records import decoder
from fairlead.records.event import Event
from simulators.fleet.plan import VoyagePlan
from simulators.steps import MessageKind, Publish, ReadingId

_event = decoder(Event)


class SequenceRun(msgspec.Struct):
    """Consecutive readings of one device and boot, sequence numbers ``first`` to ``last`` inclusive."""

    container: str
    device_id: str
    boot_id: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


class ReadingSet:
    """A set of readings as runs. Readings of one device come in order."""

    def __init__(self) -> None:
        self._open: dict[str, SequenceRun] = {}
        self.runs: list[SequenceRun] = []

    def add(self, reading: ReadingId) -> None:
        run = self._open.get(reading.container)
        if run and (run.device_id, run.boot_id, run.last + 1) == reading[1:]:
            run.last = reading.sequence
            return
        self._open[reading.container] = run = SequenceRun(*reading, reading.sequence)
        self.runs.append(run)

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __iter__(self) -> Iterator[ReadingId]:
        for run in self.runs:
            for sequence in range(run.first, run.last + 1):
                yield ReadingId(run.container, run.device_id, run.boot_id, sequence)


class OverboardLoss(msgspec.Struct, frozen=True):
    """A box that went overboard. ``published_at`` is the wall time at which the deciding reading was published."""

    container: str
    ship: str
    sim_time: dt.datetime
    published_at: dt.datetime


class DepartureTruth(msgspec.Struct):
    """A ship's departure, its boxes by custody, and when each was first heard aboard afterwards.

    ``event_id`` is that of the DEPA published on board; ``until`` the time of the ship's last position before it
    arrived again or the voyage ended.
    """

    ship: str
    port: str
    event_id: str
    time: dt.datetime
    aboard: frozenset[str]
    until: dt.datetime
    heard: dict[str, dt.datetime] = msgspec.field(default_factory=dict)

    def missing(self, at: dt.datetime, lost: Iterable[OverboardLoss]) -> frozenset[str]:
        """Return the boxes that were not heard until ``at`` and had not gone overboard."""
        gone = {loss.container for loss in lost if loss.sim_time <= at}
        heard = {number for number, first in self.heard.items() if first <= at}
        return self.aboard - heard - gone


class Truth:
    """The truth of one voyage so far."""

    def __init__(self, plan: VoyagePlan) -> None:
        self.published = ReadingSet()
        self.repeats = 0
        self.events: dict[str, set[str]] = defaultdict(set)  # ids of the events at a port (UN/LOCODE)
        self.losses: list[OverboardLoss] = []
        self.entitled: dict[str, ReadingSet] = {
            name: ReadingSet() for name, customer in sorted(plan.topology.customers.items()) if customer.feed_at
        }
        self.departures: list[DepartureTruth] = []
        self._aboard: dict[str, set[str]] = {name: set() for name in plan.timetables}
        self._at_sea: dict[str, DepartureTruth] = {}  # by ship
        self._ships = {table.imo: name for name, table in plan.timetables.items()}
        # By ship that the scenario loses: readings since its last departure, which only the ship may have.
        self.aboard_only: dict[str, set[ReadingId]] = {loss.ship: set() for loss in plan.losses}

    @property
    def readings(self) -> int:
        """Distinct readings published."""
        return len(self.published)

    def record(self, message: Publish, published_at: dt.datetime) -> None:
        """Count one message that is being published at ``published_at`` (wall clock, UTC)."""
        match message.kind:
            case MessageKind.READING:
                self._reading(message, published_at)
            case MessageKind.REPEAT:
                self.repeats += 1
            case MessageKind.EVENT:
                if message.site in self.aboard_only and message.detail == "DEPA":
                    self.aboard_only[message.site].clear()
                self._happened(message)
            case MessageKind.POSITION if message.site in self._at_sea:
                self._at_sea[message.site].until = message.sim_time

    def _happened(self, message: Publish) -> None:
        body = _event.decode(message.payload).payload
        port, ship = body.un_location_code, self._ships.get(body.vessel_imo_number or "")
        if port is not None:
            self.events[port].add(message.key)
        if body.equipment_event_type_code is not None:
            if not message.moves_log:
                return  # of another line: no site has custody of it
            if body.equipment_event_type_code == "LOAD" and ship is not None:
                self._aboard[ship].add(str(body.equipment_reference))
            elif body.equipment_event_type_code == "DISC":
                self._aboard[message.site].discard(str(body.equipment_reference))
        elif message.site == ship:
            self._at_sea.pop(ship, None)
            if body.transport_event_type_code == "DEPA":
                aboard, time = frozenset(self._aboard[ship]), message.sim_time
                sailing = DepartureTruth(ship, port or "", message.key, time, aboard, until=time)
                self._at_sea[ship] = sailing
                self.departures.append(sailing)

    def _reading(self, message: Publish, published_at: dt.datetime) -> None:
        if message.reading is None:
            raise AssertionError("a reading has an identity")
        self.published.add(message.reading)
        if (sailing := self._at_sea.get(message.site)) is not None:
            sailing.heard.setdefault(message.key, message.sim_time)
        if message.site in self.aboard_only:
            self.aboard_only[message.site].add(message.reading)
        if message.customer in self.entitled:
            self.entitled[message.customer].add(message.reading)
        if message.decides:
            self.losses.append(OverboardLoss(message.key, message.site, message.sim_time, published_at))
