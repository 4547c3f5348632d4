"""Plan a voyage: a function of (scenario, topology, seed) alone, and pure.

``make_plan`` checks that the scenario fits its topology, gives every box a container number (ISO 6346) and a journey
and every call its work, and then applies the scenario's faults.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from fairlead.errors import ConfigurationError
from fairlead.names import container_check_digit
from fairlead.records.event import EquipmentEventType
from fairlead.records.reading import UnitAlarm
from simulators.fleet.commodities import ReeferUnit, commodity
from simulators.fleet.plan import (
    CRANE_CYCLE,
    HOUR,
    MINUTE,
    NEVER,
    SPREAD,
    CallWork,
    OtherMove,
    PlannedBox,
    PlannedLanding,
    PlannedLoss,
    PlannedMove,
    VoyagePlan,
)
from simulators.fleet.scenario import (
    Ashore,
    AtSea,
    DoorOpenFault,
    Lot,
    OverboardFault,
    PowerLossFault,
    ReeferFault,
    ReportedAlarm,
    Scenario,
    SetpointFault,
    ShipLoss,
    SilenceFault,
    UnitAlarmFault,
    YardDropFault,
    YardFault,
    YardPowerLossFault,
    YardSetpointFault,
    YardUnitAlarmFault,
)
from simulators.fleet.stowage import stow
from simulators.fleet.timetable import Span, Timetable, TimetableCall, timetable, worked
from simulators.network.weather import links_between
from topologies.model import SiteKind, Topology


def make_plan(scenario: Scenario, topology: Topology, seed: int) -> VoyagePlan:
    """Plan a scenario on a topology.

    Raises:
        ConfigurationError: the scenario does not fit the topology or its own timetable.
    """
    plan, rng = _quiet_plan(scenario, topology, seed)
    for fault in scenario.faults:
        if isinstance(fault, YardFault):
            _apply_ashore(fault, plan.boxes)
        else:
            _apply(fault, plan.timetables[fault.ship], plan.boxes, rng)
    for blackout in scenario.blackouts:
        starts = plan.starts + blackout.starts
        for box in plan.boxes:
            dark = list(_while_at(box, blackout.port, (starts, starts + blackout.lasts)))
            box.outages.extend(dark)
            box.blackouts.extend(dark)
    losses = tuple(_sink(loss, plan, rng) for loss in scenario.lost_ships)
    sunk = {loss.ship: loss.time for loss in losses}
    works = tuple(work for work in plan.works if work.ship not in sunk or work.call.arrives < sunk[work.ship])
    plan = replace(plan, works=works, losses=losses)
    stow(plan.boxes)
    ends = _end_of(plan)
    others = sorted(move for move in _other_moves(scenario, topology, seed) if plan.starts <= move.time < ends)
    return replace(plan, ends=ends, others=tuple(others))


def _apply_ashore(fault: Ashore, boxes: Iterable[PlannedBox]) -> None:
    """Apply a fault to boxes that are in the port's yard by then, and for an hour at least."""
    spans: list[tuple[PlannedBox, Span]] = []
    for box in boxes:
        stays = list(_while_at(box, fault.port, (box.moves[0].time, NEVER)))
        if box.lot_name != fault.lot or box.falls is not None or not stays:
            continue
        came, leaves = stays[-1]
        starts = (came + fault.after).replace(microsecond=0)
        if starts + HOUR <= leaves and (not isinstance(fault, YardDropFault) or len(box.moves) > 1):
            spans.append((box, (starts, leaves)))
    spans.sort(key=lambda each: each[0].troubled)  # two faults of one box would hide each other
    if len(spans) < fault.containers:
        raise ConfigurationError(
            f"fault {fault.kind} cannot happen: {len(spans)} boxes of lot {fault.lot} are in the yard of {fault.port} "
            f"{fault.after} after they came, {fault.containers} are wanted",
            hint="choose a shorter 'after', or a lot that stays longer in that port",
        )
    for box, (starts, leaves) in spans[: fault.containers]:
        match fault:
            case YardPowerLossFault():
                box.outages.append((starts, min(starts + fault.lasts, leaves)))
            case YardSetpointFault():
                box.setpoints.append(
                    ((starts, min(starts + fault.lasts, leaves) if fault.lasts else leaves), fault.setpoint)
                )
            case YardDropFault():
                _fall(box, starts)
            case YardUnitAlarmFault():
                span = starts, min(starts + fault.lasts, leaves) if fault.lasts else leaves
                box.alarms.append((span, _unit_alarm(fault, starts)))


def _unit_alarm(fault: ReportedAlarm, since: dt.datetime) -> UnitAlarm:
    date = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    return UnitAlarm(alarm_number=fault.number, alarm_severity=fault.severity, alarm_date=date)


def _fall(box: PlannedBox, time: dt.datetime) -> None:
    """Let a box fall: its journey ends, and its booking is not released."""
    box.falls = time
    box.moves = [move for move in box.moves if move.time < time]
    box.released = None
    box.doors.clear()


def _sink(loss: ShipLoss, plan: VoyagePlan, rng: random.Random) -> PlannedLoss:
    """Let a ship sink with the boxes aboard; those that are recovered leave through the gate of the port they come to.

    Raises:
        ConfigurationError: it is not at sea then, it would load boxes afterwards, or too few boxes are aboard.
    """
    table = plan.timetables[loss.ship]
    arrival = next(call for call in table.calls[1:] if call.port == loss.before)
    left, time = table.calls[arrival.number - 1], arrival.comes - loss.by
    aboard = [box for box in plan.boxes if box.falls is None and box.holder(time) == loss.ship]
    later = [
        box
        for box in plan.boxes
        if box not in aboard and any(move.time > time and loss.ship in (move.site, move.to) for move in box.moves)
    ]
    if time < left.departs or later or len(aboard) < loss.recovered:
        raise ConfigurationError(
            f"{loss.ship} cannot sink {loss.by} before {loss.before}: it leaves {left.port} "
            f"{arrival.comes - left.departs} before; {len(aboard)} boxes are aboard, and {loss.recovered} of them are "
            f"to be recovered; {len(later)} boxes are to go aboard afterwards",
            hint="choose 'by' and 'recovered' that fit, and no cargo for its later calls",
        )
    landed = time + loss.landed_after
    unlocode = str(plan.topology.sites[loss.seized_at].unlocode)
    rng.shuffle(aboard)
    for nth, box in enumerate(aboard):
        box.sinks, box.released = time, None
        box.moves = [move for move in box.moves if move.time < time]
        box.doors.clear()
        if nth < loss.recovered:
            box.landed = PlannedLanding((landed + nth * CRANE_CYCLE).replace(microsecond=0), loss.seized_at)
            leaves = box.landed.time + max(box.lot.gate_out_after, 12 * HOUR)
            box.moves.append(PlannedMove(leaves, "GTOT", loss.seized_at, None, unlocode))
    return PlannedLoss(loss.ship, time, left, loss.seized_at, time + loss.seized_after)


def _apply(fault: AtSea, table: Timetable, boxes: Iterable[PlannedBox], rng: random.Random) -> None:
    arrival = next(call for call in table.calls[1:] if call.port == fault.before)
    departure = table.calls[arrival.number - 1].departs
    time = arrival.comes - fault.by
    aboard = [b for b in boxes if b.lot_name == fault.lot and b.falls is None and b.holder(time) == table.ship]
    # Two faults of one box would hide each other: choose boxes without a fault first.
    aboard.sort(key=lambda box: box.troubled)
    if time < departure or len(aboard) < fault.containers:
        raise ConfigurationError(
            f"fault {fault.kind} cannot happen: {len(aboard)} boxes of lot {fault.lot} are aboard {table.ship} "
            f"{fault.by} before {fault.before}, {fault.containers} are wanted",
            hint=f"choose 'by' below {arrival.comes - departure}, and a lot that is aboard then",
        )
    for nth, box in enumerate(aboard[: fault.containers]):
        _strike(fault, box, nth, time, arrival, rng)


def _strike(
    fault: AtSea, box: PlannedBox, nth: int, time: dt.datetime, arrival: TimetableCall, rng: random.Random
) -> None:
    last = box.moves[-1].time
    journey = last if last > time else NEVER  # a box that stays aboard has no later move
    match fault:
        case OverboardFault():
            # The boxes of a stack fall one after the other. Only boxes on deck can fall.
            _fall(box, (time + dt.timedelta(seconds=11 * nth + rng.randrange(5))).replace(microsecond=0))
            box.unit = replace(box.unit, on_deck=True)
        case PowerLossFault():
            box.outages.append((time, min(time + fault.lasts, arrival.comes)))
        case ReeferFault():
            box.failures.append((time, time + fault.lasts if fault.lasts else journey))
        case DoorOpenFault():
            box.doors.append((time, min(time + fault.lasts, arrival.comes)))
        case SetpointFault():
            box.setpoints.append(((time, time + fault.lasts if fault.lasts else journey), fault.setpoint))
        case SilenceFault():
            box.silences.append(((time, min(time + fault.lasts, arrival.comes)), fault.keeps))
        case UnitAlarmFault():
            span = time, time + fault.lasts if fault.lasts else journey
            box.alarms.append((span, _unit_alarm(fault, time)))


def _while_at(box: PlannedBox, site: str, span: Span) -> Iterator[Span]:
    """Yield the parts of a span in which a site is the box's holder."""
    for move, until in zip(box.moves, [*(m.time for m in box.moves[1:]), NEVER], strict=True):
        if move.to == site and move.time < span[1] and until > span[0]:
            yield max(move.time, span[0]), min(until, span[1])


# --- the plan without its faults


def _quiet_plan(scenario: Scenario, topology: Topology, seed: int) -> tuple[VoyagePlan, random.Random]:
    """Plan a scenario on a topology, without its faults: ``make_plan`` adds them.

    Raises:
        ConfigurationError: the scenario does not fit the topology or its own timetable.
    """
    check_fit(scenario, topology)
    rng = random.Random(f"{scenario.name}/{seed}")  # noqa: S311 - a simulation, not a secret
    tables = {
        name: timetable(name, ship, topology, scenario.start, scenario.closures)
        for name, ship in sorted(scenario.ships.items())
    }
    _check_ships(scenario, tables)
    boxes = _boxes(scenario, topology, rng)
    works = _works(scenario, tables, boxes, rng)
    plan = VoyagePlan(scenario, topology, seed, tables, tuple(boxes), works, scenario.start)
    return plan, rng


def _other_moves(scenario: Scenario, topology: Topology, seed: int) -> Iterator[OtherMove]:
    """Yield what ports see of other lines. Discharge takes the first half of a call, loading the second."""
    rng = random.Random(f"{scenario.name}/{seed}/other lines")  # noqa: S311 - a simulation, not a secret
    numbers = {
        owner: iter(container_numbers(owner, sum(call.discharged + call.loaded for call in calls), rng))
        for owner, calls in groupby(sorted(scenario.other_calls, key=attrgetter("owner")), attrgetter("owner"))
    }
    for call in scenario.other_calls:
        arrives = scenario.start + call.arrives
        turns, departs = arrives + call.stay / 2, arrives + call.stay
        seen = partial(OtherMove, port=call.port, unlocode=str(topology.sites[call.port].unlocode), imo=call.imo)
        yield seen(arrives, "ARRI")
        yield seen(departs, "DEPA")
        for nth in range(call.discharged + call.loaded):
            number, gate = next(numbers[call.owner]), HOUR * rng.uniform(18, 30)
            if nth < call.discharged:
                time = arrives + call.stay / 2 * (nth + 1) / (call.discharged + 1)
                yield seen(time.replace(microsecond=0), "DISC", number=number)
                yield seen((time + gate).replace(microsecond=0), "GTOT", number=number)
            else:
                time = turns + call.stay / 2 * (nth + 1 - call.discharged) / (call.loaded + 1)
                yield seen((time - gate).replace(microsecond=0), "GTIN", number=number)
                yield seen(time.replace(microsecond=0), "LOAD", number=number)


def _end_of(plan: VoyagePlan) -> dt.datetime:
    """Return the end of the voyage: one reading interval after the last move or call."""
    moves = [move.time for box in plan.boxes for move in box.moves]
    sunk = {loss.ship: loss.time for loss in plan.losses}
    calls = [
        call.works_until if call.last else call.departs
        for table in plan.timetables.values()
        for call in table.calls
        if table.ship not in sunk or call.arrives < sunk[table.ship]
    ]
    return max(*moves, *calls, *(loss.seized for loss in plan.losses)) + plan.scenario.reading_interval


def _boxes(scenario: Scenario, topology: Topology, rng: random.Random) -> list[PlannedBox]:
    wanted: dict[str, int] = {}
    for lot in scenario.cargo.values():
        wanted[lot.owner] = wanted.get(lot.owner, 0) + lot.containers
    numbers = {owner: iter(container_numbers(owner, count, rng)) for owner, count in sorted(wanted.items())}
    spread = min(SPREAD, scenario.reading_interval / 4)
    boxes: list[PlannedBox] = []
    for name, lot in scenario.cargo.items():
        goods = commodity(lot.commodity)
        stream = topology.container_stream(lot.owner + "0")
        destination = str(topology.sites[lot.route[-1]].unlocode)
        reference = f"BKG{rng.randrange(10**7):07d}" if lot.customer else None
        for _ in range(lot.containers):
            number = next(numbers[lot.owner])
            unit = ReeferUnit(
                goods,
                goods.setpoint if lot.setpoint is None else lot.setpoint,
                leak=rng.uniform(39, 50),
                strength=rng.uniform(0.85, 1.05),
                on_deck=rng.random() < 0.6,
                first_defrost_hours=rng.uniform(0.2, goods.defrost_hours or 1.0),
                three_probes=lot.cold_treatment is not None,
            )
            phase = dt.timedelta(milliseconds=rng.randrange(int(spread / dt.timedelta(milliseconds=1))))
            device = f"rmm-{rng.randrange(16**8):08x}"
            log = f"{stream}.{number}"
            boxes.append(PlannedBox(len(boxes), number, log, name, lot, device, unit, phase, reference, destination))
    return boxes


def _works(
    scenario: Scenario, tables: dict[str, Timetable], boxes: list[PlannedBox], rng: random.Random
) -> tuple[CallWork, ...]:
    """Give every box its moves, and every call its work."""
    loads: dict[tuple[str, int], list[PlannedBox]] = {}
    discharges: dict[tuple[str, int], list[PlannedBox]] = {}
    for _, lot_boxes in groupby(boxes, attrgetter("lot_name")):
        members = list(lot_boxes)
        for ship, load, discharge in _connections(members[0].lot_name, members[0].lot, tables):
            loads.setdefault((ship, load), []).extend(members)
            if discharge is not None:
                discharges.setdefault((ship, discharge), []).extend(members)
    works: list[CallWork] = []
    calls = [(call, table) for table in tables.values() for call in table.calls]
    for call, table in sorted(calls, key=lambda item: (item[0].turns, item[1].ship)):
        key = (table.ship, call.number)
        off, on = discharges.get(key, []), loads.get(key, [])
        rng.shuffle(off)
        rng.shuffle(on)
        for box, time in zip(off, _crane(call, call.works_from, call.turns, len(off)), strict=True):
            box.moves.append(_ship_move("DISC", time, table, call))
        for box, time in zip(on, _crane(call, call.turns + 2 * MINUTE, call.works_until, len(on)), strict=True):
            if not box.moves:
                gate_in = max(time - box.lot.gate_in * rng.uniform(0.3, 1.0), scenario.start + rng.random() * HOUR)
                gate_in = min(gate_in, time - HOUR).replace(microsecond=0)
                if closed := call.closed_at(gate_in):  # the gates are shut: it came before, or comes when they open
                    early = closed[0] - HOUR * rng.uniform(0.2, 6.0)
                    gate_in = early.replace(microsecond=0) if early > scenario.start else closed[1]
                box.moves.append(PlannedMove(gate_in, "GTIN", call.port, call.port, call.unlocode))
            box.moves.append(_ship_move("LOAD", time, table, call))
        for box in off:
            if sum(move.code == "DISC" for move in box.moves) == len(box.lot.legs):
                _plan_release(box, call, rng)
        works.append(CallWork(table.ship, call, tuple(off), tuple(on)))
    return tuple(works)


def _connections(name: str, lot: Lot, tables: dict[str, Timetable]) -> Iterator[tuple[str, int, int | None]]:
    """Yield ``(ship, number of the loading call, number of the discharging call)`` for each leg, in order.

    The last is None for the last leg of a box that stays aboard.
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


def _crane(call: TimetableCall, start: dt.datetime, end: dt.datetime, count: int) -> list[dt.datetime]:
    """Return ``count`` times between ``start`` and ``end`` while the port works, to the millisecond."""
    shut = sum((min(b, end) - max(a, start) for a, b in call.closed if a < end and b > start), dt.timedelta(0))
    cycle = min(CRANE_CYCLE, (end - start - shut) / (count + 1))
    times = [worked(call.closed, start, cycle * (k + 1)) for k in range(count)]
    return [time.replace(microsecond=time.microsecond // 1000 * 1000) for time in times]


def _ship_move(code: EquipmentEventType, time: dt.datetime, table: Timetable, call: TimetableCall) -> PlannedMove:
    site, to = (call.port, table.ship) if code == "LOAD" else (table.ship, call.port)
    return PlannedMove(time, code, site, to, call.unlocode, table.imo, f"{call.number + 1:03d}")


def _plan_release(box: PlannedBox, call: TimetableCall, rng: random.Random) -> None:
    """Plan release, gate-out and customs' inspection of a discharged box, counted from the end of the discharge."""
    if box.lot.customer and box.lot.released_after:
        box.released = call.turns + box.lot.released_after
    if box.lot.afterwards == "leave":
        leaves = call.turns + max(box.lot.gate_out_after * rng.uniform(0.85, 1.15), 2 * HOUR)
        if box.released:
            leaves = max(leaves, box.released + HOUR * rng.uniform(0.5, 2.0))
        if closed := call.closed_at(leaves):
            leaves = closed[1] + HOUR * rng.uniform(0.1, 2.0)
        leaves = leaves.replace(microsecond=0)
        box.moves.append(PlannedMove(leaves, "GTOT", call.port, None, call.unlocode))
        if box.lot.customer and box.released is None:
            box.released = leaves
    if box.lot.inspected:
        opened = box.moves[-1].time if box.moves[-1].code == "DISC" else box.moves[-2].time
        opened = max(opened, call.turns) + 2 * HOUR
        box.doors.append((opened, opened + box.lot.inspected))


# --- container numbers

SERIALS = 1_000_000  # six digits
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VALUES = {letter: value for letter, value in zip(_LETTERS, (v for v in range(10, 39) if v % 11), strict=True)}


def remainder(ten: str) -> int:
    """Return the weighted sum of the first ten characters modulo 11 (ISO 6346); 10 is written as check digit 0."""
    return sum((_VALUES.get(c) or int(c)) << place for place, c in enumerate(ten)) % 11


def container_numbers(owner: str, count: int, rng: random.Random) -> list[str]:
    """Return ``count`` different container numbers of one owner code (``BIGU``), in random order.

    Skips serials with remainder 10. They share check digit 0 with remainder 0, so the check digit would miss some
    misread digits.

    Raises:
        ConfigurationError: ``count`` is above 900,000; an owner code has about 909,000 usable serials.
    """
    found: list[str] = []
    seen: set[int] = set()
    if count > SERIALS * 0.9:  # about one serial in eleven is skipped
        raise ConfigurationError(
            f"{count} containers of owner {owner} are more than its serial numbers allow",
            hint="use fewer containers, or spread them over several owner codes; at most 900000 for each",
        )
    while len(found) < count:
        serial = rng.randrange(SERIALS)
        if serial in seen:
            continue
        seen.add(serial)
        ten = f"{owner}{serial:06d}"
        if remainder(ten) != 10:
            found.append(ten + container_check_digit(ten))
    return found


# --- whether a scenario fits its topology

SHIP_TAKES = 20_000  # boxes; the largest ships carry fewer


def check_fit(scenario: Scenario, topology: Topology) -> None:
    """Check that a scenario fits its topology.

    Raises:
        ConfigurationError: the topology lacks a name, or no timetable serves a route; the message lists all mistakes.
    """
    mistakes = list(_mistakes(scenario, topology))
    if mistakes:
        raise ConfigurationError(
            f"scenario {scenario.name} does not fit topology {topology.name}: " + "; ".join(mistakes),
            hint="correct the scenario, or choose the topology that it was written for: " + scenario.topology,
            mistakes=mistakes,
        )


def _check_ships(scenario: Scenario, tables: dict[str, Timetable]) -> None:
    """Check that no ship carries too many boxes at once, before thousands of boxes are made.

    Raises:
        ConfigurationError: a ship does; the hint says how many boxes the scenario may have.
    """
    changes: Counter[tuple[str, int]] = Counter()  # by ship and number of its call: boxes loaded less discharged
    for name, lot in scenario.cargo.items():
        for ship, load, discharge in _connections(name, lot, tables):
            changes[ship, load] += lot.containers
            if discharge is not None:
                changes[ship, discharge] -= lot.containers
    aboard: Counter[str] = Counter()
    fullest, most = "", 0
    for (ship, _), change in sorted(changes.items()):
        aboard[ship] += change
        if aboard[ship] > most:
            fullest, most = ship, aboard[ship]
    if most > SHIP_TAKES:
        fits = scenario.containers * SHIP_TAKES // most
        raise ConfigurationError(
            f"{fullest} would carry {most:,} boxes at once, and a ship takes {SHIP_TAKES:,} at most",
            hint=f"of the {scenario.containers:,} boxes of this scenario {fits:,} fit (--containers 1 to {fits}); or "
            "let more ships sail; fairlead voyage size N says how large sites and links for more must be",
            ship=fullest,
            aboard=most,
            most=fits,
        )


def _mistakes(scenario: Scenario, topology: Topology) -> Iterator[str]:
    ships = {name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP and site.imo}
    ports = {name for name, site in topology.sites.items() if site.kind is SiteKind.PORT and site.unlocode}

    def unknown(where: str, kind: str, name: str, valid: set[str]) -> Iterator[str]:
        if name not in valid:
            yield f"{where}: no {kind} {name!r} (valid: {', '.join(sorted(valid)) or 'none'})"

    yield from unknown("booking_office", "site", scenario.booking_office, set(topology.sites))
    for name, ship in scenario.ships.items():
        yield from unknown(f"ships.{name}", "ship", name, ships)
        for i, call in enumerate(ship.calls):
            yield from unknown(f"ships.{name}.calls[{i}]", "port", call.port, ports)
    for name, lot in scenario.cargo.items():
        where = f"cargo.{name}"
        if topology.container_stream(lot.owner + "0") is None:
            yield f"{where}: no stream of the topology is for owner {lot.owner!r}"
        for party in (lot.customer, lot.consignee):
            if party is not None:
                yield from unknown(where, "customer", party, set(topology.customers))
        for origin, carrier, destination in lot.legs:
            yield from unknown(f"{where}.route", "ship of the scenario", carrier, set(scenario.ships))
            calls = [call.port for call in scenario.ships[carrier].calls] if carrier in scenario.ships else None
            if calls is not None and (origin not in calls or destination not in calls[calls.index(origin) + 1 :]):
                yield f"{where}.route: {carrier} does not sail from {origin} to {destination}"
    for i, fault in enumerate(scenario.faults):
        where = f"faults[{i}]"
        yield from unknown(where, "lot", fault.lot, set(scenario.cargo))
        boxes = scenario.cargo[fault.lot] if fault.lot in scenario.cargo else None
        if boxes and fault.containers > boxes.containers:
            yield f"{where}: {fault.containers} containers, but lot {fault.lot} has {boxes.containers}"
        if isinstance(fault, YardFault):
            yield from unknown(where, "port", fault.port, ports)
            if boxes and fault.port not in boxes.route[::2]:
                yield f"{where}: lot {fault.lot} is never in the yard of {fault.port}"
            continue
        yield from unknown(where, "ship of the scenario", fault.ship, set(scenario.ships))
        timetable = scenario.ships.get(fault.ship)
        if timetable and fault.before not in [call.port for call in timetable.calls[1:]]:
            yield f"{where}: {fault.ship} never arrives at {fault.before} from sea"
        if boxes and fault.ship not in {ship for _, ship, _ in boxes.legs}:
            yield f"{where}: lot {fault.lot} never sails on {fault.ship}"
    for i, trouble in enumerate(scenario.links):
        if trouble.between is not None and frozenset(trouble.between) not in links_between(topology):
            yield f"links[{i}]: the topology has no link between {trouble.between[0]} and {trouble.between[1]}"
        if trouble.site is not None:
            yield from unknown(f"links[{i}]", "site", trouble.site, set(topology.sites))
    for i, closure in enumerate(scenario.closures):
        yield from unknown(f"closures[{i}]", "port", closure.port, ports)
    for i, blackout in enumerate(scenario.blackouts):
        yield from unknown(f"blackouts[{i}]", "port", blackout.port, ports)
    for i, visit in enumerate(scenario.other_calls):
        where = f"other_calls[{i}]"
        yield from unknown(where, "port", visit.port, ports)
        if topology.container_stream(visit.owner + "0") is not None:
            yield f"{where}: owner {visit.owner!r} has a stream in the topology; its boxes belong in cargo"
        if (own := topology.ship_with(visit.imo)) is not None:
            yield f"{where}: {visit.imo} is the topology's own ship {own}; its calls belong in ships"
    for i, loss in enumerate(scenario.lost_ships):
        where = f"lost_ships[{i}]"
        yield from unknown(where, "ship of the scenario", loss.ship, set(scenario.ships))
        yield from unknown(f"{where}.seized_at", "port", loss.seized_at, ports)
        sinking = scenario.ships.get(loss.ship)
        if sinking and loss.before not in [call.port for call in sinking.calls[1:]]:
            yield f"{where}: {loss.ship} never arrives at {loss.before} from sea"
        if loss.ship in [other.ship for other in scenario.lost_ships[:i]]:
            yield f"{where}: {loss.ship} sinks once only"
    for i, storm in enumerate(scenario.storms):
        yield from unknown(f"storms[{i}]", "port", storm.near, ports)
    if (lost := scenario.lost_headquarters) is not None:
        shore = topology.shore
        if shore is None or lost.site != shore.at or lost.heir not in shore.standby:
            yield f"lost_headquarters: shore of {topology.name} cannot move from {lost.site} to {lost.heir}"
        called = {call.port for sailing in scenario.ships.values() for call in sailing.calls}
        if lost.site in {scenario.booking_office, *called}:
            yield f"lost_headquarters: {lost.site} has work to do: bookings are made or ships call there"
