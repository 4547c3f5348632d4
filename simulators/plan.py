"""The plan of a voyage: every box with its journey, fixed before anything is published. Pure, and a function of
(scenario, topology, seed) alone.

A box's moves follow design section 7: GTIN at the port opens its log; LOAD is said by the port and DISC by the ship,
each the holder that gives the box away; GTOT at the port ends it.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from fairlead.errors import ConfigurationError
from fairlead.records.event import EquipmentEventType
from simulators import containers
from simulators.commodities import commodity
from simulators.fitting import check, check_ships
from simulators.reefer import Unit
from simulators.scenario import Lot, Scenario
from simulators.timetable import CallTimes, Span, Timetable, timetable, worked
from topologies.model import Topology

MINUTE = dt.timedelta(minutes=1)
HOUR = dt.timedelta(hours=1)
CRANE_CYCLE = 4 * MINUTE  # per box and ship, when there is time; faster when there are more boxes
SPREAD = 2 * MINUTE  # devices report within this time after the full interval
BOOKED_BEFORE = HOUR  # bookings are confirmed this long before the first box of a call is loaded
INSPECTED_AFTER = 45 * MINUTE  # after the gate-in, when it stands in its rack
INSPECTION = 90 * MINUTE
NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Move:
    """One event of a box. ``site`` says it and holds the box until then; ``to`` holds it from then on.

    ``stowage``: of a LOAD, where the box stands aboard (``simulators.stowage``).
    """

    time: dt.datetime
    code: EquipmentEventType
    site: str
    to: str | None
    unlocode: str
    imo: str | None = None
    voyage: str | None = None
    stowage: str | None = None


@dataclass(slots=True)
class Box:
    """One container and its journey. Only the planner changes it."""

    index: int
    number: str
    log: str
    lot_name: str
    lot: Lot
    device_id: str
    unit: Unit
    phase: dt.timedelta  # after each full interval, when it reports
    booking_reference: str | None
    destination: str  # UN/LOCODE where it is meant to go
    moves: list[Move] = field(default_factory=list)
    released: dt.datetime | None = None
    falls: dt.datetime | None = None
    outages: list[Span] = field(default_factory=list)  # the plug is out, or the yard has no power
    failures: list[Span] = field(default_factory=list)  # the machinery does not cool
    doors: list[Span] = field(default_factory=list)  # they stand open
    setpoints: list[tuple[Span, float]] = field(default_factory=list)  # somebody set something else
    silences: list[tuple[Span, bool]] = field(default_factory=list)  # not heard; whether the device keeps its readings

    @property
    def inspected(self) -> Span | None:
        """Its pre-trip inspection, in the yard of its first port; None when there is no time for it."""
        starts = self.moves[0].time + INSPECTED_AFTER
        loaded = next((move.time for move in self.moves if move.code == "LOAD"), None)
        if loaded is not None and starts + INSPECTION > loaded - HOUR:
            return None
        return starts, starts + INSPECTION

    def stowed(self, time: dt.datetime, ship: str) -> str | None:
        """Where it stands aboard a ship; None elsewhere."""
        aboard = (move for move in reversed(self.moves) if move.time <= time)
        newest = next(aboard, None)
        return newest.stowage if newest is not None and newest.to == ship else None

    @property
    def troubled(self) -> bool:
        return bool(self.outages or self.failures or self.doors or self.setpoints or self.silences)

    @property
    def first_load(self) -> Move:
        return next(move for move in self.moves if move.code == "LOAD")

    def entitled(self, time: dt.datetime) -> str | None:
        """The customer whose booking covers this device time: from the first LOAD (inclusive) to the release."""
        covered = self.first_load.time <= time and (self.released is None or time < self.released)
        return self.lot.customer if covered else None

    def holder(self, time: dt.datetime) -> str | None:
        """The site that holds the box, None before its gate-in and after its gate-out."""
        held = None
        for move in self.moves:
            if move.time > time:
                break
            held = move.to
        return held


@dataclass(frozen=True, slots=True)
class Work:
    """What a call does: which boxes leave the ship and which come aboard, in order of time."""

    ship: str
    call: CallTimes
    discharged: tuple[Box, ...]
    loaded: tuple[Box, ...]

    def __contains__(self, move: Move) -> bool:
        """Whether a move is part of this call's work."""
        place = {move.site, move.to} == {self.ship, self.call.port}
        return place and self.call.arrives <= move.time <= self.call.departs


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will happen. ``boxes[i].index`` is i. Made by ``simulators.mishaps.make_plan``."""

    scenario: Scenario
    topology: Topology
    seed: int
    timetables: dict[str, Timetable]
    boxes: tuple[Box, ...]
    works: tuple[Work, ...]
    ends: dt.datetime

    @property
    def starts(self) -> dt.datetime:
        return self.scenario.start

    def chart_box(self) -> Box:
        """The box whose temperatures a report draws: a customer's, the longest under way, not one that falls."""

        def rank(box: Box) -> tuple[bool, bool, dt.timedelta, int]:
            return box.lot.customer is not None, box.falls is None, box.moves[-1].time - box.moves[0].time, -box.index

        return max(self.boxes, key=rank)


def quiet_plan(scenario: Scenario, topology: Topology, seed: int) -> tuple[Plan, random.Random]:
    """Plan a scenario on a topology, without its faults: ``simulators.mishaps`` adds them.

    Raises:
        ConfigurationError: the scenario does not fit the topology or its own timetable.
    """
    check(scenario, topology)
    rng = random.Random(f"{scenario.name}/{seed}")  # noqa: S311 - a simulation, not a secret
    tables = {
        name: timetable(name, ship, topology, scenario.start, scenario.closures)
        for name, ship in sorted(scenario.ships.items())
    }
    _check_ships(scenario, tables)
    boxes = _boxes(scenario, topology, rng)
    works = _works(scenario, tables, boxes, rng)
    plan = Plan(scenario, topology, seed, tables, tuple(boxes), works, scenario.start)
    return plan, rng


def end_of(plan: Plan) -> dt.datetime:
    """When everything that is planned has happened, and all have reported once more."""
    moves = [move.time for box in plan.boxes for move in box.moves]
    calls = [
        call.works_until if call.last else call.departs for table in plan.timetables.values() for call in table.calls
    ]
    return max(*moves, *calls) + plan.scenario.reading_interval


def _boxes(scenario: Scenario, topology: Topology, rng: random.Random) -> list[Box]:
    wanted: dict[str, int] = {}
    for lot in scenario.cargo.values():
        wanted[lot.owner] = wanted.get(lot.owner, 0) + lot.containers
    numbers = {owner: iter(containers.numbers(owner, count, rng)) for owner, count in sorted(wanted.items())}
    spread = min(SPREAD, scenario.reading_interval / 4)
    boxes: list[Box] = []
    for name, lot in scenario.cargo.items():
        goods = commodity(lot.commodity)
        stream = topology.container_stream(lot.owner + "0")
        destination = str(topology.sites[lot.route[-1]].unlocode)
        reference = f"BKG{rng.randrange(10**7):07d}" if lot.customer else None
        for _ in range(lot.containers):
            number = next(numbers[lot.owner])
            unit = Unit(
                goods,
                goods.setpoint if lot.setpoint is None else lot.setpoint,
                leak=rng.uniform(39, 50),
                strength=rng.uniform(0.85, 1.05),
                on_deck=rng.random() < 0.6,
                first_defrost_hours=rng.uniform(0.2, goods.defrost_hours or 1.0),
            )
            phase = dt.timedelta(milliseconds=rng.randrange(int(spread / dt.timedelta(milliseconds=1))))
            device = f"rmm-{rng.randrange(16**8):08x}"
            log = f"{stream}.{number}"
            boxes.append(Box(len(boxes), number, log, name, lot, device, unit, phase, reference, destination))
    return boxes


def _works(scenario: Scenario, tables: dict[str, Timetable], boxes: list[Box], rng: random.Random) -> tuple[Work, ...]:
    """Give every box its moves, and every call its work."""
    loads: dict[tuple[str, int], list[Box]] = {}
    discharges: dict[tuple[str, int], list[Box]] = {}
    for _, lot_boxes in groupby(boxes, attrgetter("lot_name")):
        members = list(lot_boxes)
        for ship, load, discharge in _connections(members[0].lot_name, members[0].lot, tables):
            loads.setdefault((ship, load), []).extend(members)
            if discharge is not None:
                discharges.setdefault((ship, discharge), []).extend(members)
    works: list[Work] = []
    calls = [(call, table) for table in tables.values() for call in table.calls]
    for call, table in sorted(calls, key=lambda item: (item[0].turns, item[1].ship)):
        key = (table.ship, call.number)
        off, on = discharges.get(key, []), loads.get(key, [])
        rng.shuffle(off)
        rng.shuffle(on)
        for box, time in zip(off, _crane(call, call.works_from, call.turns, len(off)), strict=True):
            box.moves.append(_ship_move(box, "DISC", time, table, call))
        for box, time in zip(on, _crane(call, call.turns + 2 * MINUTE, call.works_until, len(on)), strict=True):
            if not box.moves:
                gate_in = max(time - box.lot.gate_in * rng.uniform(0.3, 1.0), scenario.start + rng.random() * HOUR)
                gate_in = min(gate_in, time - HOUR).replace(microsecond=0)
                if closed := call.closed_at(gate_in):  # the gates are shut: it came before, or comes when they open
                    early = closed[0] - HOUR * rng.uniform(0.2, 6.0)
                    gate_in = early.replace(microsecond=0) if early > scenario.start else closed[1]
                box.moves.append(Move(gate_in, "GTIN", call.port, call.port, call.unlocode))
            box.moves.append(_ship_move(box, "LOAD", time, table, call))
        for box in off:
            if sum(move.code == "DISC" for move in box.moves) == len(box.lot.legs):
                _farewell(box, call, rng)
        works.append(Work(table.ship, call, tuple(off), tuple(on)))
    return tuple(works)


def _check_ships(scenario: Scenario, tables: dict[str, Timetable]) -> None:
    """Before thousands of boxes are made: whether the ships can carry them."""
    changes: Counter[tuple[str, int]] = Counter()
    for name, lot in scenario.cargo.items():
        for ship, load, discharge in _connections(name, lot, tables):
            changes[ship, load] += lot.containers
            if discharge is not None:
                changes[ship, discharge] -= lot.containers
    check_ships(changes, scenario.containers)


def _connections(name: str, lot: Lot, tables: dict[str, Timetable]) -> Iterator[tuple[str, int, int | None]]:
    """(ship, number of the loading call, number of the discharging call) for each leg, each after the one before.

    A box that stays aboard is not discharged from its last leg: None.
    """
    ready: dt.datetime | None = None
    legs = lot.legs
    for nth, (origin, ship, destination) in enumerate(legs, 1):
        calls = tables[ship].calls
        load = next((c for c in calls if c.port == origin and (ready is None or c.turns > ready)), None)
        later = calls[load.number + 1 :] if load else ()
        discharge = next((c for c in later if c.port == destination), None)
        if load is None or discharge is None:
            raise ConfigurationError(
                f"lot {name} misses its connection: no call of {ship} at {origin} after the box is there, "
                f"with a later one at {destination}",
                hint="change the lot's route, or the ships' first_arrival and stay",
            )
        ready = discharge.turns + HOUR
        stays = lot.afterwards == "aboard" and nth == len(legs)
        yield ship, load.number, None if stays else discharge.number


def _crane(call: CallTimes, start: dt.datetime, end: dt.datetime, count: int) -> list[dt.datetime]:
    """``count`` moments after ``start`` and before ``end`` while the port works, to the millisecond."""
    shut = sum((min(b, end) - max(a, start) for a, b in call.closed if a < end and b > start), dt.timedelta(0))
    cycle = min(CRANE_CYCLE, (end - start - shut) / (count + 1))
    times = [worked(call.closed, start, cycle * (k + 1)) for k in range(count)]
    return [time.replace(microsecond=time.microsecond // 1000 * 1000) for time in times]


def _ship_move(box: Box, code: EquipmentEventType, time: dt.datetime, table: Timetable, call: CallTimes) -> Move:
    site, to = (call.port, table.ship) if code == "LOAD" else (table.ship, call.port)
    return Move(time, code, site, to, call.unlocode, table.imo, f"{call.number + 1:03d}")


def _farewell(box: Box, call: CallTimes, rng: random.Random) -> None:
    """Release and gate-out, counted from the end of the discharge and never before the port has taken the box."""
    if box.lot.customer and box.lot.released_after:
        box.released = call.turns + box.lot.released_after
    if box.lot.afterwards == "leave":
        leaves = call.turns + max(box.lot.gate_out_after * rng.uniform(0.85, 1.15), 2 * HOUR)
        if box.released:
            leaves = max(leaves, box.released + HOUR * rng.uniform(0.5, 2.0))
        if closed := call.closed_at(leaves):
            leaves = closed[1] + HOUR * rng.uniform(0.1, 2.0)
        leaves = leaves.replace(microsecond=0)
        box.moves.append(Move(leaves, "GTOT", call.port, None, call.unlocode))
        if box.lot.customer and box.released is None:
            box.released = leaves
    if box.lot.inspected:
        opened = box.moves[-1].time if box.moves[-1].code == "DISC" else box.moves[-2].time
        opened = max(opened, call.turns) + 2 * HOUR
        box.doors.append((opened, opened + box.lot.inspected))
