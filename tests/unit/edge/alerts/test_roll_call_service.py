"""A ship's roll calls with its alert engine: records and alerts, restarts, orders, and a whole simulated voyage."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from edge.alerts.engine import AlertEngine
from edge.alerts.operator import order_for
from edge.alerts.roll_call_service import RollCallService
from edge.alerts.state import is_by_hand
from edge.alerts.thresholds import default_thresholds
from edge.ingest.classifier import Classifier
from edge.messages import EventMessage, ReadingMessage, ShipMessage
from fairlead.records import decoder, encode
from fairlead.records.alert import NOT_HEARD, Alert, AlertOrder
from fairlead.records.event import Event, EventMetadata, EventPayload
from fairlead.records.ship import Position, RollCall, unpack_numbers
from simulators.fleet import scenario_file
from simulators.report.roll_calls import roll_call_figures
from simulators.steps import Publish
from simulators.voyage.truth import Truth
from simulators.voyage.voyage import Voyage
from tests.support.edge.detecting import HOUR, MINUTE, NEIGHBOURS, message, ms, position
from tests.support.edge.samples import BOX, IMO, NOW
from tests.support.raised_alerts import RaisedAlerts
from topologies.loader.load import load

LIMITS = default_thresholds().default
BOXES = (BOX, *NEIGHBOURS)
ROLL_CALL = decoder(RollCall)


def transport(
    code: Any, after_s: int, *, identity: str = "depa-1", imo: str | None = IMO, port: str = "JPTYO"
) -> Event:
    at = NOW + dt.timedelta(seconds=after_s)
    return Event(
        metadata=EventMetadata(
            event_id=identity, event_created_date_time=at, event_type="TRANSPORT", publisher="the bridge of the ship"
        ),
        payload=EventPayload(
            event_date_time=at, transport_event_type_code=code, un_location_code=port, vessel_imo_number=imo
        ),
    )


class Ship:
    """A ship's engine and its roll calls; every box reports each hour until it is in ``dead``."""

    def __init__(self, *, site: str = "star", imo: str = IMO) -> None:
        self.site, self.imo = site, imo
        self.listed = set(BOXES)
        self.dead: set[str] = set()
        self.alerts = RaisedAlerts(site)
        self.writer = MagicMock()
        self.events: list[Event] = []
        self.readings: list[ReadingMessage] = []
        self._sequence = 0
        self._start()

    def _start(self) -> None:
        self.engine = AlertEngine(self.site)
        self.service = RollCallService(
            self.site, self.imo, self.engine.ship, LIMITS, lambda: set(self.listed), self.alerts, self.writer
        )

    def restart(self) -> None:
        self._start()
        for event in self.events:
            self.service.restore_event(event)
        for record in self.records:
            self.service.restore_record(record)
        for alert in self.alerts.raised():
            self.service.restore_alert(alert)
            self.engine.restore(alert)
        for reading in self.readings:
            self.engine.recall(reading, reading.log, reading.device_ms)

    @property
    def records(self) -> list[RollCall]:
        """The roll calls as stored: one of each departure and state."""
        entries = [call.args[0] for call in self.writer.enqueue.call_args_list]
        return [ROLL_CALL.decode(value) for value in {entry.key: entry.record.value for entry in entries}.values()]

    @property
    def missed(self) -> list[tuple[str, str]]:
        """The states of alerts about missing boxes, with the box."""
        return [(each.state, each.equipment_reference) for each in self.alerts.raised() if each.kind == NOT_HEARD]

    def publish(self, event: Event) -> None:
        self.events.append(event)
        self.service.apply_event(event)

    def see(self, number: str, after_s: int, **fields: Any) -> None:
        self._sequence += 1
        reading = message(self._sequence, after_s, number=number, **fields)
        self.readings.append(reading)
        self.alerts.append_alerts(self.engine.judge_reading(reading, reading.log, ms(after_s)))

    def sail(self, from_s: int, until_s: int) -> None:
        """Let each box and the ship report every hour, the ship last."""
        for at in range(from_s, until_s + 1, HOUR):
            for number in BOXES:
                if number not in self.dead:
                    self.see(number, at)
            self.alerts.append_alerts(self.engine.ship_reported(position(), ms(at), ms(at)))
            self.service.tick(ms(at))

    def depart(self, after_s: int = 0) -> None:
        self.sail(after_s - 6 * HOUR, after_s - HOUR)
        self.publish(transport("DEPA", after_s))


def test_a_dead_device_is_missing_and_its_alert_names_the_port() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = {BOX}
    ship.sail(MINUTE, 12 * HOUR)
    [record] = ship.records
    assert (record.state, record.aboard, record.heard, record.un_location_code) == ("CALLED", 5, 4, "JPTYO")
    assert unpack_numbers(record.missing) == {BOX}
    [alert] = ship.alerts.raised()  # and none of the silence rule, though the box is silent
    assert (alert.kind, alert.severity, alert.equipment_reference) == (NOT_HEARD, "ALARM", BOX)
    assert [(each.name, each.detail) for each in alert.evidence[1:]] == [("left-port", "JPTYO")]
    assert "since star left JPTYO at" in alert.evidence[0].detail


def test_a_box_that_is_heard_again_ends_its_alert_and_completes_the_call() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = {BOX}
    ship.sail(MINUTE, 5 * HOUR)
    ship.dead.clear()
    ship.sail(6 * HOUR, 9 * HOUR)
    assert ship.missed == [("OPENED", BOX), ("CLEARED", BOX)]
    first, second = ship.records
    assert (first.complete_date_time, second.state) == (None, "COMPLETE")
    assert second.complete_date_time == NOW + dt.timedelta(hours=6)


def test_a_box_that_falls_silent_later_is_for_the_silence_rule() -> None:
    ship = Ship()
    ship.depart()
    ship.sail(MINUTE, 4 * HOUR)
    ship.dead = {BOX}
    ship.sail(5 * HOUR, 20 * HOUR)
    assert [(each.kind, each.equipment_reference) for each in ship.alerts.raised()] == [("SILENCE", BOX)]


def test_a_box_silent_before_the_departure_keeps_that_alert_only() -> None:
    ship = Ship()
    ship.sail(-30 * HOUR, -20 * HOUR)
    ship.dead = {BOX}
    ship.sail(-19 * HOUR, -HOUR)
    ship.publish(transport("DEPA", 0))
    ship.sail(MINUTE, 12 * HOUR)
    assert [(each.kind, each.state) for each in ship.alerts.raised()] == [("SILENCE", "OPENED")]
    assert [unpack_numbers(each.missing) for each in ship.records] == [{BOX}]


def test_a_box_never_heard_aboard_is_missing_too() -> None:
    """The silence rule does not know such a box."""
    ship = Ship()
    ship.listed.add("BIGU1000052")
    ship.depart()
    ship.sail(MINUTE, 12 * HOUR)
    [alert] = ship.alerts.raised()
    assert (alert.equipment_reference, alert.causes) == ("BIGU1000052", ())
    assert "never aboard" in alert.evidence[0].detail


def test_a_box_found_overboard_is_left_to_that_alert() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = {BOX}
    ship.sail(MINUTE, 5 * HOUR)
    ship.see(BOX, -10, motion={"immersed": True, "tiltDegrees": 80.0})  # sent at last, dated before the departure
    ship.sail(6 * HOUR, 8 * HOUR)
    kinds = [(each.kind, each.state) for each in ship.alerts.raised()]
    assert kinds == [(NOT_HEARD, "OPENED"), ("OVERBOARD", "OPENED"), (NOT_HEARD, "CLEARED")]


def test_when_the_gateway_fails_one_alert_stands_for_all() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = set(BOXES)
    ship.sail(MINUTE, 30 * HOUR)
    [alert] = ship.alerts.raised()
    assert (alert.kind, alert.equipment_reference) == (NOT_HEARD, "")
    ship.dead.clear()
    ship.sail(31 * HOUR, 33 * HOUR)
    assert ship.missed == [("OPENED", ""), ("CLEARED", "")]


@pytest.mark.parametrize("at_h", range(9))
def test_a_restart_at_any_time_changes_nothing(at_h: int) -> None:
    def told(ship: Ship) -> tuple[list[RollCall], list[tuple[str, str]]]:
        return ship.records, ship.missed

    ships = Ship(), Ship()
    for ship in ships:
        ship.depart()
        ship.dead = {BOX}
        for hour in range(9):
            if hour == 6:
                ship.dead.clear()
            ship.sail(hour * HOUR + MINUTE, hour * HOUR + MINUTE)
            if hour == at_h and ship is ships[0]:
                ship.restart()
    assert told(ships[0]) == told(ships[1])
    assert ships[0].missed == [("OPENED", BOX), ("CLEARED", BOX)]


def test_a_person_ends_the_alert_and_a_restart_does_not_raise_it_again() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = {BOX}
    ship.sail(MINUTE, 5 * HOUR)
    [opened] = ship.alerts.raised()
    order = AlertOrder(
        order_id="o1",
        alert_id=opened.alert_id,
        equipment_reference=BOX,
        kind=NOT_HEARD,
        at_site="star",
        ordered_date_time=NOW,
        ordered_by="mate",
        reason="seen on deck",
    )
    ship.service.apply_order(order)
    ended: Alert = ship.alerts.raised()[-1]
    assert is_by_hand(ended) and ended.state == "CLEARED" and ended.evidence[-1].detail == "JPTYO"
    ship.restart()
    ship.sail(6 * HOUR, 12 * HOUR)
    assert ship.missed == [("OPENED", BOX), ("CLEARED", BOX)]


def test_an_acknowledged_alert_says_so_until_its_end() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = {BOX}
    ship.sail(MINUTE, 5 * HOUR)
    [opened] = ship.alerts.raised()
    order = order_for(opened, "the mate looks", NOW, acknowledge=True)
    for _ in range(2):
        ship.service.apply_order(order)
    [_, seen] = ship.alerts.raised()
    assert (seen.state, seen.revision, seen.acknowledged_by) == ("UPDATED", 1, order.ordered_by)
    clear = order_for(seen, "seen on deck", NOW)
    ship.service.apply_order(clear)
    [_, _, ended] = ship.alerts.raised()
    assert (ended.state, ended.revision, ended.acknowledged_by) == ("CLEARED", 2, order.ordered_by)


def test_events_of_other_ships_and_of_boxes_change_nothing() -> None:
    ship = Ship()
    ship.sail(-3 * HOUR, -HOUR)
    ship.publish(transport("DEPA", 0, imo="9321483"))
    ship.sail(0, 12 * HOUR)
    assert ship.records == []


@pytest.mark.parametrize("classifier", ["PLN", "EST"])
def test_a_schedule_calls_no_roll(classifier: Any) -> None:
    planned = transport("DEPA", 0)
    payload = msgspec.structs.replace(planned.payload, event_classifier_code=classifier)
    ship = Ship()
    ship.sail(-3 * HOUR, -HOUR)
    ship.publish(msgspec.structs.replace(planned, payload=payload))
    ship.sail(0, 12 * HOUR)
    assert ship.records == []


def test_an_arrival_before_the_call_is_recorded_without_alerts() -> None:
    ship = Ship()
    ship.depart()
    ship.dead = {BOX}
    ship.sail(MINUTE, MINUTE)
    ship.publish(transport("ARRI", HOUR, identity="arri-1", port="SGSIN"))
    ship.sail(2 * HOUR, 3 * HOUR)
    [record] = ship.records
    assert (record.state, unpack_numbers(record.missing)) == ("CUT_SHORT", frozenset({BOX}))
    assert ship.missed == []


def test_a_call_of_2000_boxes_is_small() -> None:
    """A few hundred bytes when all are there, and eight for each one missing."""
    ship = Ship()
    ship.listed = {f"BIGU{number:07d}" for number in range(2_000)}
    ship.publish(transport("DEPA", 0))
    for number in ship.listed:
        ship.engine.ship.roll_call.hear(number, ms(MINUTE), 0)
    ship.sail(MINUTE, 7 * HOUR)
    [record] = ship.records
    assert (record.aboard, record.heard) == (2_000, 2_000)
    assert len(encode(msgspec.structs.replace(record, unlisted={}))) < 400

    dark = Ship()
    dark.listed, dark.dead = set(ship.listed), set(BOXES)
    dark.publish(transport("DEPA", 0))
    dark.sail(MINUTE, 7 * HOUR)
    [record] = dark.records
    assert len(unpack_numbers(record.missing)) == 2_000
    assert len(encode(record)) < 2_000 * 8 + 400


@pytest.mark.parametrize("name", ["harbour", "reefer-claim"])
def test_the_calls_of_a_voyage_name_what_its_truth_says(name: str) -> None:
    scenario = scenario_file.load(name)
    topology = load(scenario.topology)
    voyage = Voyage(scenario, topology, seed=7)
    truth = Truth(voyage.plan)
    classifiers = {site: Classifier(topology, site) for site in topology.sites}
    ships = {site: Ship(site=site, imo=table.imo) for site, table in voyage.plan.timetables.items()}
    for ship in ships.values():
        ship.listed.clear()
    for step in voyage.steps():
        if not isinstance(step, Publish):
            continue
        truth.record(step, step.sim_time)
        received = int(step.sim_time.timestamp() * 1000) + 1
        found = classifiers[step.site].classify(step.topic, step.payload, received)
        if isinstance(found, EventMessage) and found.log is not None and found.to_site in ships:
            ships[found.to_site].listed.add(str(found.event.payload.equipment_reference))
        if step.site not in ships:
            continue
        afloat = ships[step.site]
        match found:
            case ReadingMessage():
                afloat.alerts.append_alerts(afloat.engine.judge_reading(found, found.log, received))
            case ShipMessage(report=Position() as report):
                afloat.alerts.append_alerts(afloat.engine.ship_reported(report, found.device_ms, received))
                afloat.service.tick(received)
            case EventMessage(log=None):
                afloat.publish(found.event)
            case EventMessage():
                number = str(found.event.payload.equipment_reference)
                afloat.listed.discard(number)
                afloat.engine.forget(number)
    raised = [alert for ship in ships.values() for alert in ship.alerts.raised()]
    ports = {spec.unlocode: raised for spec in topology.sites.values() if spec.unlocode}
    calls = roll_call_figures(
        truth.departures, truth.losses, [r for ship in ships.values() for r in ship.records], {"": raised, **ports}
    )
    assert calls and all(call.ok for call in calls), [call.text for call in calls]
    assert any(call.aboard for call in calls)
    if name == "harbour":
        assert [len(call.missing) for call in calls if call.due] == [1]
        assert calls[0].state == "COMPLETE" and calls[0].minutes is not None and calls[0].minutes >= 11 * 60
