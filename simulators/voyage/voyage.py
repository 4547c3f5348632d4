"""A voyage as an ordered stream of steps in simulated time. Pure: no clock, no network, no global state.

The same scenario, topology and seed give the same steps, byte for byte. Steps that were yielded are not kept, so a
long voyage needs no more memory than a short one.

Simulated time never goes back. Each message is published at the site where the box is at that time, a port or a ship; a
box that fell overboard publishes at its ship until it is out of range.

``Unfolding`` makes the steps. Its actions wait in a heap ordered by (simulated time, order at that time, number); each
is called once with its time and yields steps. Once per reading interval one action goes through all boxes, and runs the
actions that are due in between.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from fairlead.records.event import EventClassifier, TransportEventType
from simulators.fleet import routes
from simulators.fleet.plan import (
    BOOKED_BEFORE,
    HOUR,
    MINUTE,
    SPREAD,
    CallWork,
    OtherMove,
    PlannedBox,
    PlannedLanding,
    PlannedLoss,
    PlannedMove,
    VoyagePlan,
)
from simulators.fleet.planner import make_plan
from simulators.fleet.routes import Point
from simulators.fleet.scenario import Scenario
from simulators.fleet.timetable import UNDER_WAY, TimetableCall
from simulators.physics import climate
from simulators.physics.climate import link_weather, storms_of
from simulators.physics.sensors import DROP_STAGES, STAGES, FallStage, Sensors, Surroundings, drifted, surroundings
from simulators.steps import (
    BOOKINGS_TOPIC,
    EVENTS_TOPIC,
    BarrierKind,
    LinkChange,
    MessageKind,
    Publish,
    ShipSeized,
    ShipSinks,
    Step,
    VoyageBarrier,
    environment_topic,
    position_topic,
)
from simulators.voyage import messages
from simulators.voyage.messages import bad_message
from topologies.model import Topology


class VoyageSource(Protocol):
    """A source of steps: a voyage, a recorded one, or one that is being recorded."""

    @property
    def plan(self) -> VoyagePlan: ...
    @property
    def starts(self) -> dt.datetime: ...
    @property
    def ends(self) -> dt.datetime: ...
    def expected_messages(self) -> int: ...
    def steps(self) -> Iterator[Step]: ...


class Voyage:
    """All steps of one scenario.

    Args:
        seed: Determines everything random.
        with_bad: Mix in messages that no bridge can use (``simulators.voyage.messages``).

    Raises:
        ConfigurationError: the scenario does not fit the topology, or cannot be planned.
    """

    def __init__(self, scenario: Scenario, topology: Topology, *, seed: int, with_bad: bool = False) -> None:
        self.plan: VoyagePlan = make_plan(scenario, topology, seed)
        self.with_bad = with_bad

    @property
    def starts(self) -> dt.datetime:
        return self.plan.starts

    @property
    def ends(self) -> dt.datetime:
        return self.plan.ends

    def expected_messages(self) -> int:
        """Return about how many messages will be published (within some per cent), for a progress bar."""
        scenario, ends = self.plan.scenario, self.plan.ends
        total = 0.0
        for box in self.plan.boxes:
            last = box.moves[-1]
            gone = box.falls or (last.time if last.to is None else ends)
            if box.sinks:
                gone = min(gone, box.sinks)
            total += (gone - box.moves[0].time) / scenario.reading_interval + len(box.moves)
            total += 2 if box.released else int(box.lot.customer is not None)
        total *= 1 + scenario.devices.repeat
        total += len(self.plan.others)
        hours = (ends - self.plan.starts) / scenario.ship_interval
        return int(total + 2 * hours * len(self.plan.timetables))

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the voyage; every call starts at the beginning."""
        return Unfolding(self.plan, with_bad=self.with_bad).steps()


# Order of actions at the same time.
_BEFORE, _MOVE, _REPORT, _AFTER = range(4)
_BAD_EVERY = 150  # readings for one bad message
Action = Callable[[dt.datetime], Iterator[Step]]


class Unfolding:
    """One pass through a plan; ``steps`` may be called once."""

    def __init__(self, plan: VoyagePlan, *, with_bad: bool) -> None:
        self.plan = plan
        self.scenario = plan.scenario
        self.name = f"{self.scenario.name}/{self.scenario.start.isoformat()}/{plan.seed}"
        self._heap: list[tuple[dt.datetime, int, int, Action]] = []
        self._number = 0
        self._ends: Counter[str] = Counter()  # by log: how many markers and distinct messages it must have so far
        # The site of each box (its first port before the gate-in), and whether the box reports there.
        self._site: list[str | None] = [box.moves[0].site for box in plan.boxes]
        self._reports = [False] * len(plan.boxes)
        probes, chances, ships = np.random.SeedSequence(plan.seed).spawn(3)
        self._sensors = Sensors(plan, (probes, chances))
        self._ship_noise = np.random.Generator(np.random.PCG64(ships))
        self._ship_sequence: Counter[str] = Counter()
        self._fell_at: dict[int, tuple[dt.datetime, Point]] = {}
        self._storms = {name: storms_of(plan, name) for name in plan.timetables}
        self._ashore: dict[str, int] = {}  # by log of a box aboard: its end at the departure, which the port has, too
        self._sunk: set[str] = set()
        self._silent: set[int] = set()  # boxes out of radio range
        self._kept: dict[int, list[Publish]] = {}  # the readings that their devices keep
        self._with_bad = with_bad
        self._readings = 0
        self._ports = {
            call.port: routes.port(call.unlocode) for table in plan.timetables.values() for call in table.calls
        }

    # -- the heap

    def _at(self, time: dt.datetime, order: int, action: Action) -> None:
        heapq.heappush(self._heap, (time, order, self._number, action))
        self._number += 1

    def _until(self, time: dt.datetime) -> Iterator[Step]:
        """Yield the steps of every action that is due before ``time``."""
        while self._heap and self._heap[0][0] < time:
            due, _, _, action = heapq.heappop(self._heap)
            yield from action(due)

    def steps(self) -> Iterator[Step]:
        self._schedule()
        yield from self._until(self.plan.ends)
        yield _final_barrier(self.plan.ends, self._ends)

    def _schedule(self) -> None:
        plan = self.plan
        for box in plan.boxes:
            for move in box.moves:
                self._at(move.time, _MOVE, partial(self._move, box, move))
            if box.falls:
                for stage in DROP_STAGES if box.ashore(box.falls) else STAGES:
                    self._at(box.falls + stage.after, _REPORT, partial(self._falling, box, stage))
            for (starts, ends), keeps in box.silences:
                self._at(starts, _BEFORE, partial(self._falls_silent, box, keeps=keeps))
                self._at(ends, _BEFORE, partial(self._is_heard, box))
        for work in plan.works:
            self._schedule_call(work)
        for seen in plan.others:
            self._at(seen.time, _MOVE, partial(self._seen_of_others, seen))
        self._schedule_releases()
        for name in plan.timetables:
            self._at(plan.starts, _REPORT, partial(self._ship_report, name))
        for name in (*plan.timetables, *self._ports):
            if falls := [box.falls for box in plan.boxes if box.falls and box.holder(box.falls) == name]:
                self._wait_at(min(falls) - MINUTE, self._up_to_date(name))
        for loss in plan.losses:
            self._wait_at(loss.time, self._up_to_date(loss.ship))
            self._at(loss.time, _BEFORE, partial(self._sinks, loss))
            self._at(loss.seized, _BEFORE, partial(self._is_seized, loss))
        for box in plan.boxes:
            if box.landed:
                self._at(box.landed.time, _MOVE, partial(self._lands, box, box.landed))
        for between, down, up in link_weather(plan).outages():
            for time, is_up in ((down, False), (up, True)):
                self._at(time, _BEFORE, partial(self._link, between, up=is_up))
                self._no_backlog(between, max(plan.starts, time - MINUTE))
        self._at(plan.starts + self.scenario.reading_interval, _REPORT, self._interval)

    def _no_backlog(self, between: tuple[str, str], time: dt.datetime) -> None:
        """Let a ship at sea store its readings before its link changes: see ``_backlog_barrier``."""
        for ship in between:
            if ship in self.plan.timetables and self.plan.timetables[ship].berthed_at(time) is None:
                self._wait_at(time, self._up_to_date(ship))

    def _schedule_call(self, work: CallWork) -> None:
        call = work.call
        if call.number:
            self._wait_at(call.arrives - MINUTE, self._arrives(work))  # by satellite still, not by the port's radio
        self._at(call.arrives, _MOVE, partial(self._transport, work, "ARRI"))
        booked = [box for box in work.loaded if box.lot.customer and box.first_load in work]
        if booked:
            self._at(call.turns - BOOKED_BEFORE, _MOVE, partial(self._book, booked, "CONFIRMED"))
            self._wait_at(call.turns + MINUTE, self._booked(f"{len(booked)} bookings confirmed"))
        if work.discharged:
            self._wait_at(call.turns + MINUTE, partial(_discharge_barrier, work))
        if not call.last:
            self._wait_at(call.departs, self._ready_to_sail(work))
            self._at(call.departs, _MOVE, partial(self._transport, work, "DEPA"))
            following = self.plan.timetables[work.ship].calls[call.number + 1]
            planned = following.comes, following.comes + following.stay
            self._at(call.departs, _MOVE, partial(self._expect, work.ship, following, call.port, "PLN", planned))
        if call.arrives > call.comes:  # the port is closed: its terminal says when the ship may come
            estimated = call.arrives, call.departs
            self._at(call.comes, _MOVE, partial(self._expect, work.ship, call, call.port, "EST", estimated))

    def _wait_at(self, time: dt.datetime, barrier: BarrierMaker) -> None:
        """Schedule a barrier before everything else at ``time``; ``barrier`` makes it from the logs' ends then."""

        def wait(now: dt.datetime) -> Iterator[Step]:
            yield barrier(now, self._ends)

        self._at(time, _BEFORE, wait)

    def _booked(self, what: str) -> BarrierMaker:
        return partial(_booking_barrier, self.scenario.booking_office, what)

    def _ready_to_sail(self, work: CallWork) -> BarrierMaker:
        def make(time: dt.datetime, ends: Mapping[str, int]) -> VoyageBarrier:
            barrier = _departure_barrier(work, self._aboard(work.ship), time, ends)
            self._ashore.update(barrier.log_ends)
            return barrier

        return make

    def _arrives(self, work: CallWork) -> BarrierMaker:
        imo = self.plan.timetables[work.ship].imo
        own = (f"events.{work.ship}", f"ships.{imo}.location", f"ships.{imo}.environment")
        return lambda time, ends: _arrival_barrier(work, self._aboard(work.ship), own, time, ends)

    def _up_to_date(self, ship: str) -> BarrierMaker:
        return lambda time, ends: _backlog_barrier(ship, self._aboard(ship), time, ends)

    def _aboard(self, site: str) -> list[PlannedBox]:
        """Return the boxes that report at a site."""
        return [box for box in self.plan.boxes if self._reports[box.index] and self._site[box.index] == site]

    def _schedule_releases(self) -> None:
        """Publish the end of each booking an hour before it, so that no customer reads beyond the end."""
        releases: dict[dt.datetime, list[PlannedBox]] = {}
        for box in self.plan.boxes:
            if box.released:
                releases.setdefault(box.released, []).append(box)
        for time, boxes in releases.items():
            self._at(time - HOUR, _MOVE, partial(self._book, boxes, "COMPLETED"))
            if any(box.moves[-1].time > time or box.moves[-1].to for box in boxes):
                self._wait_at(time, self._booked(f"{len(boxes)} bookings completed"))

    # -- boxes

    def _message(
        self, time: dt.datetime, site: str, topic: str, payload: bytes, kind: MessageKind, *, log: str, **facts: Any
    ) -> Publish:
        """Return a message that becomes one record of a log whose holder never changes."""
        self._ends[log] += 1 if log in self._ends else 2  # the first record comes after the log's opening marker
        return Publish(time, site, topic, payload, kind, log=log, **facts)

    def _move(self, box: PlannedBox, move: PlannedMove, time: dt.datetime) -> Iterator[Step]:
        identity = messages.event_id(self.name, f"{box.number}/{move.code}/{time.isoformat()}")
        payload = messages.equipment_event(identity, box.number, move, box.booking_reference)
        self._ends[box.log] += 1  # the marker of the next term
        self._site[box.index] = move.to or move.site
        self._reports[box.index] = move.to is not None
        yield self._message(
            time,
            move.site,
            EVENTS_TOPIC,
            payload,
            MessageKind.EVENT,
            key=identity,
            log=f"events.{move.site}",
            detail=move.code,
            moves_log=box.log,
        )

    def _falling(self, box: PlannedBox, stage: FallStage, time: dt.datetime) -> Iterator[Step]:
        """Publish one reading of a fall where the box's radio is still heard; end its ordinary reports."""
        self._reports[box.index] = False
        site = self._site[box.index]
        if site is None:
            raise AssertionError(f"{box.number} falls from nowhere")
        place = self._ports[site] if site in self._ports else self.plan.timetables[site].at(time)[0].point
        if stage.adrift:
            since, fell_at = self._fell_at.setdefault(box.index, (time, place))
            place = drifted(fell_at, time - since)
        yield self._recorded(self._sensors.falling(box, time, site, place, stage))

    def _sinks(self, loss: PlannedLoss, time: dt.datetime) -> Iterator[Step]:
        """Lose a ship with what only it has: what its port had at the departure is what is left of its boxes' logs."""
        self._sunk.add(loss.ship)
        for box in self._lost_boxes(loss):
            self._reports[box.index], self._site[box.index] = False, None
            self._ends[box.log] = self._ashore[box.log]
        imo = self.plan.timetables[loss.ship].imo
        for log in (f"events.{loss.ship}", f"ships.{imo}.location", f"ships.{imo}.environment"):
            self._ends.pop(log, None)
        yield ShipSinks(time, loss.ship)

    def _is_seized(self, loss: PlannedLoss, time: dt.datetime) -> Iterator[Step]:
        """Let the port have what was copied of the logs, and take them over."""
        logs = [box.log for box in self._lost_boxes(loss)]
        ends = {log: self._ends[log] for log in sorted(logs)}
        what = f"{loss.seized_at} has the copies of {len(ends)} logs that {loss.ship} held"
        yield VoyageBarrier(time, BarrierKind.RECORDED, what, site=loss.seized_at, log_ends=ends)
        yield ShipSeized(time, loss.ship, loss.seized_at)
        for log in logs:
            self._ends[log] += 1  # the seizure's marker

    def _lost_boxes(self, loss: PlannedLoss) -> list[PlannedBox]:
        return [box for box in self.plan.boxes if box.sinks == loss.time and box.log in self._ashore]

    def _lands(self, box: PlannedBox, landing: PlannedLanding, time: dt.datetime) -> Iterator[Step]:
        self._site[box.index], self._reports[box.index] = landing.site, True
        yield from ()

    def _falls_silent(self, box: PlannedBox, time: dt.datetime, *, keeps: bool) -> Iterator[Step]:
        self._silent.add(box.index)
        if keeps:
            self._kept[box.index] = []
        yield from ()

    def _is_heard(self, box: PlannedBox, time: dt.datetime) -> Iterator[Step]:
        """Publish the readings that the device kept, oldest first; each still says when it was taken."""
        self._silent.discard(box.index)
        for reading in self._kept.pop(box.index, ()):
            if self._reports[box.index]:
                yield self._recorded(dataclasses.replace(reading, sim_time=time))

    def _recorded(self, reading: Publish) -> Publish:
        self._ends[str(reading.log)] += 1
        self._readings += 1
        return reading

    def _interval(self, time: dt.datetime) -> Iterator[Step]:
        """Let all boxes that can be heard report, each at its own time after the full interval."""
        if time + SPREAD > self.plan.ends:
            return  # the last interval is the last one in which all boxes can still report
        self._at(time + self.scenario.reading_interval, _REPORT, self._interval)
        around = {name: self._ship_surroundings(name, time) for name in self.plan.timetables}
        around |= {name: surroundings(p, p, time, 0.0, at_sea=False) for name, p in self._ports.items()}
        self._sensors.measure(time, around, self._site)
        heap, sites, reports, silent = self._heap, self._site, self._reports, self._silent
        ends, read = self._ends, self._sensors.reading
        for box, repeats, seen in self._sensors.seen():
            moment = time + box.phase
            if heap and heap[0][0] < moment:
                yield from self._until(moment)
            site = sites[box.index]
            if site is None or not reports[box.index]:
                continue
            if box.index in silent:
                if box.index in self._kept:
                    self._kept[box.index].append(read(seen, moment, site))
                continue
            ends[box.log] += 1
            self._readings += 1
            reading = read(seen, moment, site)
            yield reading
            if repeats:
                self._at(moment + self._sensors.repeat_after(seen), _AFTER, partial(self._repeat, box, reading))
            if self._with_bad and self._readings % _BAD_EVERY == 0:
                bad = bad_message(self._readings // _BAD_EVERY, box.number, moment)
                yield Publish(moment, site, bad.topic, bad.payload, MessageKind.BAD, detail=bad.reason)

    def _repeat(self, box: PlannedBox, reading: Publish, time: dt.datetime) -> Iterator[Step]:
        """Publish a reading again, as a device without an acknowledgement does, unless the box has moved since."""
        if self._site[box.index] == reading.site and self._reports[box.index]:
            yield dataclasses.replace(reading, sim_time=time, kind=MessageKind.REPEAT, decides=False)

    def _book(
        self, boxes: list[PlannedBox], status: Literal["CONFIRMED", "COMPLETED"], time: dt.datetime
    ) -> Iterator[Step]:
        office = self.scenario.booking_office
        for box in boxes:
            yield self._message(
                time,
                office,
                BOOKINGS_TOPIC,
                messages.booking(box, status),
                MessageKind.BOOKING,
                key=str(box.booking_reference),
                log=f"bookings.{office}",
                detail=status,
            )

    # -- ships

    def _transport(self, work: CallWork, code: TransportEventType, time: dt.datetime) -> Iterator[Step]:
        table, call = self.plan.timetables[work.ship], work.call
        for site in (call.port, work.ship):
            identity = messages.event_id(self.name, f"{work.ship}/{call.number}/{code}/{site}")
            voyage = f"{call.number + 1:03d}"
            payload = messages.transport_event(identity, site, code, time, call.unlocode, table.imo, voyage)
            yield self._message(
                time,
                site,
                EVENTS_TOPIC,
                payload,
                MessageKind.EVENT,
                key=identity,
                log=f"events.{site}",
                detail=code,
            )

    def _expect(
        self,
        ship: str,
        call: TimetableCall,
        site: str,
        classifier: EventClassifier,
        expected: tuple[dt.datetime, dt.datetime],
        time: dt.datetime,
    ) -> Iterator[Step]:
        """Publish at a port when a ship is expected to arrive at a call and to depart from it."""
        codes: tuple[TransportEventType, ...] = ("ARRI", "DEPA")
        for code, when in zip(codes[: 1 if call.last else 2], expected, strict=False):
            identity = messages.event_id(self.name, f"{ship}/{call.number}/{code}/{site}/{classifier}")
            payload = messages.transport_event(
                identity, site, code, when, call.unlocode, self.plan.timetables[ship].imo, f"{call.number + 1:03d}",
                classifier=classifier, created=time,
            )  # fmt: skip
            yield self._message(
                time,
                site,
                EVENTS_TOPIC,
                payload,
                MessageKind.SCHEDULE,
                key=identity,
                log=f"events.{site}",
                detail=classifier,
            )

    def _seen_of_others(self, move: OtherMove, time: dt.datetime) -> Iterator[Step]:
        identity = messages.event_id(self.name, f"{move.imo}/{move.number}/{move.code}/{time.isoformat()}")
        yield self._message(
            time,
            move.port,
            EVENTS_TOPIC,
            messages.event_of_another_line(identity, move),
            MessageKind.EVENT,
            key=identity,
            log=f"events.{move.port}",
            detail=move.code,
        )

    def _ship_report(self, ship: str, time: dt.datetime) -> Iterator[Step]:
        if ship in self._sunk:
            return
        self._at(time + self.scenario.ship_interval, _REPORT, partial(self._ship_report, ship))
        table = self.plan.timetables[ship]
        fix, status = table.at(time)
        sequence = self._ship_sequence[ship]
        self._ship_sequence[ship] += 1
        noise = self._ship_noise.normal(size=5).tolist()
        power = self._sensors.reefer_power(self._site, ship)
        imo = table.imo
        for topic, payload, kind, log, place in (
            (
                position_topic(imo),
                messages.position(imo, sequence, time, fix, status, noise),
                MessageKind.POSITION,
                f"ships.{imo}.location",
                (round(fix.point.latitude, 4), round(fix.point.longitude, 4)),
            ),
            (
                environment_topic(imo),
                messages.environment(imo, sequence, time, fix, self._storms[ship], power),
                MessageKind.ENVIRONMENT,
                f"ships.{imo}.environment",
                None,
            ),
        ):
            yield self._message(time, ship, topic, payload, kind, key=imo, log=log, place=place)

    def _ship_surroundings(self, ship: str, time: dt.datetime) -> Surroundings:
        table = self.plan.timetables[ship]
        (fix, status), (soon, _) = table.at(time), table.at(time + MINUTE)
        wind = climate.wind_speed(fix.point, time, self._storms[ship])
        return surroundings(fix.point, soon.point, time, wind, at_sea=status == UNDER_WAY, ship=True)

    def _link(self, between: tuple[str, str], time: dt.datetime, *, up: bool) -> Iterator[Step]:
        yield LinkChange(time, between, up)


BarrierMaker = Callable[[dt.datetime, Mapping[str, int]], VoyageBarrier]


def _ends_of(boxes: Iterable[PlannedBox], ends: Mapping[str, int]) -> dict[str, int]:
    return {log: ends[log] for log in sorted(box.log for box in boxes)}


def _booking_barrier(office: str, what: str, time: dt.datetime, ends: Mapping[str, int]) -> VoyageBarrier:
    """Return a barrier: the booking office has stored the bookings. Readings that depend on them come after."""
    log = f"bookings.{office}"
    return VoyageBarrier(time, BarrierKind.RECORDED, f"{what} at {office}", site=office, log_ends={log: ends[log]})


def _discharge_barrier(work: CallWork, time: dt.datetime, ends: Mapping[str, int]) -> VoyageBarrier:
    """Return a barrier: the port has custody of the discharged boxes, so that it may grant it to others."""
    here = [box for box in work.discharged if box.falls is None or box.falls > time]
    return VoyageBarrier(
        time,
        BarrierKind.CUSTODY,
        f"{work.call.port} takes custody of {len(here)} boxes discharged by {work.ship}",
        site=work.call.port,
        peer=work.ship,
        containers=tuple(sorted(box.number for box in here)),
        log_ends=_ends_of(here, ends),
        gives_way=True,
    )


def _departure_barrier(
    work: CallWork, aboard: Iterable[PlannedBox], time: dt.datetime, ends: Mapping[str, int]
) -> VoyageBarrier:
    """Return a barrier: the ship has custody of the boxes it loaded, and ship and port have all logs of the cargo."""
    port = work.call.port
    return VoyageBarrier(
        time,
        BarrierKind.DEPARTURE,
        f"{work.ship} takes custody of {len(work.loaded)} boxes at {port}, both have all logs of its cargo",
        site=port,
        peer=work.ship,
        containers=tuple(sorted(box.number for box in work.loaded)),
        log_ends=_ends_of(aboard, ends),
        gives_way=True,
    )


def _arrival_barrier(
    work: CallWork, aboard: Iterable[PlannedBox], own: Iterable[str], time: dt.datetime, ends: Mapping[str, int]
) -> VoyageBarrier:
    """Return a barrier: the ship has stored all its readings and reports; then what the port has of all is measured."""
    boxes, port = list(aboard), work.call.port
    return VoyageBarrier(
        time,
        BarrierKind.ARRIVAL,
        f"{port} is up to date before {work.ship} arrives",
        site=port,
        peer=work.ship,
        containers=tuple(sorted(box.number for box in boxes)),
        log_ends=_ends_of(boxes, ends) | {log: ends[log] for log in own if log in ends},
        gives_way=True,
    )


def _backlog_barrier(
    ship: str, aboard: Iterable[PlannedBox], time: dt.datetime, ends: Mapping[str, int]
) -> VoyageBarrier:
    """Return a barrier: the ship has stored all its readings.

    A voyage may run thousands of times faster than real time. A ship's bridge may then be weeks of readings behind, and
    an alert would come only after them.
    """
    what = f"{ship} has recorded all readings so far"
    return VoyageBarrier(time, BarrierKind.RECORDED, what, site=ship, log_ends=_ends_of(aboard, ends), gives_way=True)


def _final_barrier(time: dt.datetime, ends: Mapping[str, int]) -> VoyageBarrier:
    """Return a barrier: the voyage is over, and the logs have everything."""
    return VoyageBarrier(
        time, BarrierKind.FINISHED, "all that was published is in the logs", log_ends=dict(sorted(ends.items()))
    )
