"""A plan with its faults: which boxes they strike, and what that does to their power, doors and set points. Pure."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fairlead.errors import ConfigurationError
from simulators.faults import AnyFault, DoorOpen, Overboard, PowerLoss, ReeferFailure, Silence, WrongSetpoint
from simulators.plan import MINUTE, NEVER, Box, Plan, end_of, quiet_plan
from simulators.reefer import PowerChange
from simulators.scenario import Scenario
from simulators.stowage import stow
from simulators.timetable import CallTimes, Span, Timetable
from topologies.model import Topology


def make_plan(scenario: Scenario, topology: Topology, seed: int) -> Plan:
    """Plan a scenario on a topology.

    Raises:
        ConfigurationError: the scenario does not fit the topology or its own timetable.
    """
    plan, rng = quiet_plan(scenario, topology, seed)
    for fault in scenario.faults:
        _apply(fault, plan.timetables[fault.ship], plan.boxes, rng)
    for blackout in scenario.blackouts:
        starts = plan.starts + blackout.starts
        for box in plan.boxes:
            box.outages.extend(_while_at(box, blackout.port, (starts, starts + blackout.lasts)))
    stow(plan.boxes)
    return replace(plan, ends=end_of(plan))


def _apply(fault: AnyFault, table: Timetable, boxes: Iterable[Box], rng: random.Random) -> None:
    arrival = next(call for call in table.calls[1:] if call.port == fault.before)
    departure = table.calls[arrival.number - 1].departs
    time = arrival.comes - fault.by
    aboard = [b for b in boxes if b.lot_name == fault.lot and b.falls is None and b.holder(time) == table.ship]
    # Two faults for one box would hide each other; those without one yet come first.
    aboard.sort(key=lambda box: box.troubled)
    if time < departure or len(aboard) < fault.containers:
        raise ConfigurationError(
            f"fault {fault.kind} cannot happen: {len(aboard)} boxes of lot {fault.lot} are aboard {table.ship} "
            f"{fault.by} before {fault.before}, {fault.containers} are wanted",
            hint=f"choose 'by' below {arrival.comes - departure}, and a lot that is aboard then",
        )
    for nth, box in enumerate(aboard[: fault.containers]):
        _strike(fault, box, nth, time, arrival, rng)


def _strike(fault: AnyFault, box: Box, nth: int, time: dt.datetime, arrival: CallTimes, rng: random.Random) -> None:
    last = box.moves[-1].time
    journey = last if last > time else NEVER  # one that stays aboard has its last move behind it
    match fault:
        case Overboard():
            # The stack goes one box after the other. The boxes stand on deck, where the sea can take them.
            box.falls = (time + dt.timedelta(seconds=11 * nth + rng.randrange(5))).replace(microsecond=0)
            box.unit = replace(box.unit, on_deck=True)
            box.moves = [move for move in box.moves if move.time < box.falls]
            box.released = None
            box.doors.clear()
        case PowerLoss():
            box.outages.append((time, min(time + fault.lasts, arrival.comes)))
        case ReeferFailure():
            box.failures.append((time, time + fault.lasts if fault.lasts else journey))
        case DoorOpen():
            box.doors.append((time, min(time + fault.lasts, arrival.comes)))
        case WrongSetpoint():
            box.setpoints.append(((time, time + fault.lasts if fault.lasts else journey), fault.setpoint))
        case Silence():
            box.silences.append(((time, min(time + fault.lasts, arrival.comes)), fault.keeps))


def _while_at(box: Box, site: str, span: Span) -> Iterator[Span]:
    """The parts of a span in which a box stands at a site."""
    for move, until in zip(box.moves, [*(m.time for m in box.moves[1:]), NEVER], strict=True):
        if move.to == site and move.time < span[1] and until > span[0]:
            yield max(move.time, span[0]), min(until, span[1])


def power_changes(plan: Plan) -> Iterator[PowerChange]:
    """Every change at every plug, door and set point: a box is without power while it is handled, and through its
    faults."""
    for box in plan.boxes:
        yield from _changes(box)


def _changes(box: Box) -> Iterator[PowerChange]:
    """Fold handling, outages, failures, doors and set points of one box into its changes."""
    unplugged: list[Span] = list(box.outages)
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
    set_wrong = [span for span, _ in box.setpoints]
    for time in sorted({time for span in (*unplugged, *box.failures, *box.doors, *set_wrong) for time in span}):
        yield PowerChange(
            time,
            box.index,
            plugged=not _within(time, unplugged),
            cooling_works=not _within(time, box.failures),
            door_open=_within(time, box.doors),
            setpoint=next((value for span, value in box.setpoints if _within(time, [span])), None),
        )


def _within(time: dt.datetime, spans: Iterable[Span]) -> bool:
    return any(start <= time < end for start, end in spans)
