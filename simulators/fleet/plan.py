"""The plan of a voyage: every box with its journey, fixed before anything is published. Pure data.

A box's journey is its moves. GTIN at the port opens its log. The port publishes LOAD and the ship publishes DISC: the
holder publishes the event that gives custody to the next one. GTOT at the port ends the journey.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.records.event import EquipmentEventType, TransportEventType
from fairlead.records.reading import UnitAlarm
from simulators.fleet.commodities import ReeferUnit
from simulators.fleet.scenario import Lot, Scenario
from simulators.fleet.timetable import Span, Timetable, TimetableCall
from topologies.model import Topology

MINUTE = dt.timedelta(minutes=1)
HOUR = dt.timedelta(hours=1)
CRANE_CYCLE = 4 * MINUTE  # per box and ship, when there is time; faster when there are more boxes
SPREAD = 2 * MINUTE  # devices report within this time after the full interval
BOOKED_BEFORE = HOUR  # bookings are confirmed this long before the first box of a call is loaded
INSPECTED_AFTER = 45 * MINUTE  # after the gate-in; the box then stands in its rack
INSPECTION = 90 * MINUTE
NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One event of a box. ``site`` publishes it and is the holder until then; ``to`` is the holder from then on.

    ``stowage``: for a LOAD, the slot aboard (``simulators.fleet.stowage``).
    """

    time: dt.datetime
    code: EquipmentEventType
    site: str
    to: str | None
    unlocode: str
    imo: str | None = None
    voyage: str | None = None
    stowage: str | None = None


class PlannedLanding(NamedTuple):
    """When and where a box of a lost ship comes ashore."""

    time: dt.datetime
    site: str


@dataclass(frozen=True, slots=True)
class PlannedLoss:
    """A ship that sinks: when, where it was berthed last, and which port takes over its logs when."""

    ship: str
    time: dt.datetime
    left: TimetableCall
    seized_at: str
    seized: dt.datetime


@dataclass(slots=True)
class PlannedBox:
    """One container and its journey. Only the planner changes it."""

    index: int
    number: str
    log: str
    lot_name: str
    lot: Lot
    device_id: str
    unit: ReeferUnit
    phase: dt.timedelta  # from each full interval to the device's report
    booking_reference: str | None
    destination: str  # UN/LOCODE
    moves: list[PlannedMove] = field(default_factory=list)
    released: dt.datetime | None = None
    falls: dt.datetime | None = None
    sinks: dt.datetime | None = None  # its ship is lost
    landed: PlannedLanding | None = None  # it was found afterwards
    outages: list[Span] = field(default_factory=list)  # the plug is out, or the yard has no power
    blackouts: list[Span] = field(default_factory=list)  # those of them in which the plug stays in a dead socket
    failures: list[Span] = field(default_factory=list)  # the machinery does not cool
    doors: list[Span] = field(default_factory=list)  # the doors stand open
    setpoints: list[tuple[Span, float]] = field(default_factory=list)  # the unit is set to another set point
    alarms: list[tuple[Span, UnitAlarm]] = field(default_factory=list)  # the unit reports alarms of its own
    silences: list[tuple[Span, bool]] = field(default_factory=list)  # no radio; whether the device keeps its readings

    @property
    def inspected(self) -> Span | None:
        """The time of its pre-trip inspection, in the yard of its first port; None if there is no time for it."""
        starts = self.moves[0].time + INSPECTED_AFTER
        loaded = next((move.time for move in self.moves if move.code == "LOAD"), None)
        if loaded is not None and starts + INSPECTION > loaded - HOUR:
            return None
        return starts, starts + INSPECTION

    def stowed(self, time: dt.datetime, ship: str) -> str | None:
        """Return its slot aboard this ship at ``time``; None if it is elsewhere."""
        aboard = (move for move in reversed(self.moves) if move.time <= time)
        newest = next(aboard, None)
        return newest.stowage if newest is not None and newest.to == ship else None

    @property
    def troubled(self) -> bool:
        return bool(self.outages or self.failures or self.doors or self.setpoints or self.silences or self.alarms)

    def unit_alarms(self, time: dt.datetime) -> tuple[UnitAlarm, ...] | None:
        """Return the alarms that its unit reports at ``time``; None for a unit that never reports any."""
        if not self.alarms:
            return None
        return tuple(alarm for (starts, ends), alarm in self.alarms if starts <= time < ends)

    @property
    def first_load(self) -> PlannedMove:
        return next(move for move in self.moves if move.code == "LOAD")

    def ashore(self, time: dt.datetime) -> bool:
        """Return whether the box is in a port's yard."""
        newest = next((move for move in reversed(self.moves) if move.time <= time), None)
        return newest is not None and newest.to is not None and newest.code in ("GTIN", "DISC")

    def entitled(self, time: dt.datetime) -> str | None:
        """Return the customer whose booking covers this device time."""
        return self.lot.customer if self.booked(time) else None

    def booked(self, time: dt.datetime) -> bool:
        """Return whether a booking of the box covers this time: from the first LOAD (inclusive) to the release."""
        return self.first_load.time <= time and (self.released is None or time < self.released)

    def holder(self, time: dt.datetime) -> str | None:
        """Return the box's holder at ``time``; None before its gate-in and after its gate-out."""
        held = None
        for move in self.moves:
            if move.time > time:
                break
            held = move.to
        return held


@dataclass(frozen=True, slots=True)
class CallWork:
    """The work of a call: the boxes that the port discharges and those that it loads."""

    ship: str
    call: TimetableCall
    discharged: tuple[PlannedBox, ...]
    loaded: tuple[PlannedBox, ...]

    def __contains__(self, move: PlannedMove) -> bool:
        """Return whether a move is part of this call's work."""
        place = {move.site, move.to} == {self.ship, self.call.port}
        return place and self.call.arrives <= move.time <= self.call.departs


class OtherMove(NamedTuple):
    """What a port sees of another line's ship, or of box ``number`` of it."""

    time: dt.datetime
    code: EquipmentEventType | TransportEventType
    port: str
    unlocode: str
    imo: str
    number: str | None = None


@dataclass(frozen=True, slots=True)
class VoyagePlan:
    """Everything that will happen. ``boxes[i].index`` is i. Made by ``simulators.fleet.planner.make_plan``."""

    scenario: Scenario
    topology: Topology
    seed: int
    timetables: dict[str, Timetable]
    boxes: tuple[PlannedBox, ...]
    works: tuple[CallWork, ...]
    ends: dt.datetime
    others: tuple[OtherMove, ...] = ()
    losses: tuple[PlannedLoss, ...] = ()

    @property
    def starts(self) -> dt.datetime:
        return self.scenario.start

    def chart_box(self) -> PlannedBox:
        """Return the box for a report's chart: a customer's, not one that falls or sinks, with the longest journey."""

        def rank(box: PlannedBox) -> tuple[bool, bool, dt.timedelta, int]:
            whole = box.falls is None and box.sinks is None
            return box.lot.customer is not None, whole, box.moves[-1].time - box.moves[0].time, -box.index

        return max(self.boxes, key=rank)


class PowerChange(NamedTuple):
    """The state of box number ``box`` from ``time`` on; ``setpoint`` is None for the unit's own set point.

    ``dead_socket``: the unit has no power, but its plug is in.
    """

    time: dt.datetime
    box: int
    powered: bool
    cooling_works: bool = True
    door_open: bool = False
    setpoint: float | None = None
    dead_socket: bool = False


def power_changes(plan: VoyagePlan) -> Iterator[PowerChange]:
    """Yield every change of a box's plug, machinery, door and set point: by its faults, and while it is moved."""
    for box in plan.boxes:
        yield from _changes(box)


def _changes(box: PlannedBox) -> Iterator[PowerChange]:
    """Fold handling, outages, failures, doors and set points of one box into its changes."""
    unplugged: list[Span] = [span for span in box.outages if span not in box.blackouts]
    for move in box.moves:
        before, after = {  # minutes without a plug around each move
            "GTIN": (0, 40),  # from the lorry's generator to the yard's rack
            "LOAD": (20, 12),
            "DISC": (15, 30),
            "GTOT": (20, 0),
        }[move.code]
        unplugged.append((move.time - before * MINUTE, move.time + after * MINUTE))
    if box.falls:
        unplugged.append((box.falls, NEVER))
    if box.sinks:
        unplugged.append((box.sinks, box.landed.time + HOUR if box.landed else NEVER))
    set_wrong = [span for span, _ in box.setpoints]
    spans = (*unplugged, *box.blackouts, *box.failures, *box.doors, *set_wrong)
    for time in sorted({time for span in spans for time in span}):
        yield PowerChange(
            time,
            box.index,
            powered=not _within(time, (*unplugged, *box.blackouts)),
            cooling_works=not _within(time, box.failures),
            door_open=_within(time, box.doors),
            setpoint=next((value for span, value in box.setpoints if _within(time, [span])), None),
            dead_socket=_within(time, box.blackouts) and not _within(time, unplugged),
        )


def _within(time: dt.datetime, spans: Iterable[Span]) -> bool:
    return any(start <= time < end for start, end in spans)
