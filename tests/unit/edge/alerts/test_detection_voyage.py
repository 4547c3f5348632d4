"""Play simulated voyages to the alert engines of all sites: they find what goes wrong, and raise no false alert."""

from __future__ import annotations

from collections import Counter
from functools import cache

import msgspec
import pytest

from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.messages import BookingMessage, EventMessage, ReadingMessage, ShipMessage
from fairlead.records.alert import Alert
from fairlead.records.ship import Position
from simulators.fleet import scenario_file
from simulators.report.yard import YardFigures, judge_yards
from simulators.steps import Publish
from simulators.voyage.voyage import Voyage
from topologies.loader.load import load
from topologies.model import SiteKind


@cache
def sailed(name: str) -> tuple[list[Alert], set[str], int]:
    """Return the alerts of all sites, the containers that were lost, and how many containers have a fault in the
    scenario."""
    scenario = scenario_file.load(name)
    topology = load(scenario.topology)
    voyage = Voyage(scenario, topology, seed=7)
    classifiers = {site: Classifier(topology, site) for site in topology.sites}
    engines = {site: AlertEngine(site, ashore=spec.kind is not SiteKind.SHIP) for site, spec in topology.sites.items()}
    holder: dict[str, str | None] = {}
    alerts: list[Alert] = []
    lost: set[str] = set()
    for step in voyage.steps():
        if not isinstance(step, Publish):
            continue
        received = int(step.sim_time.timestamp() * 1000) + 1
        message = classifiers[step.site].classify(step.topic, step.payload, received)
        engine = engines[step.site]
        if step.decides:
            lost.add(step.key)
        if isinstance(message, BookingMessage):  # links bring bookings to all sites
            for each in engines.values():
                each.booked(message.booking)
        elif isinstance(message, ReadingMessage):
            if engine.yard is None or holder.get(message.number) == step.site:
                alerts += engine.judge_reading(message, message.log, received)
        elif isinstance(message, ShipMessage) and isinstance(message.report, Position):
            alerts += engine.ship_reported(message.report, message.device_ms, received)
        elif isinstance(message, EventMessage):
            payload = message.event.payload
            number, code = payload.equipment_reference, payload.equipment_event_type_code
            if number is None or code is None:
                continue
            giver, ship = holder.get(number), topology.ship_with(payload.vessel_imo_number or "")
            port = topology.port_at(payload.un_location_code or "")
            holder[number] = {"GTIN": port, "LOAD": ship, "DISC": port, "GTOT": None}[code]
            if giver is not None and giver != holder[number]:
                alerts += engines[giver].forget(number, received)
    return alerts, lost, sum(getattr(fault, "containers", 1) for fault in scenario.faults)


def test_a_voyage_raises_what_happens_on_it_and_nothing_else() -> None:
    """The alerts of a voyage match the scenario's faults, and no other alert opens."""
    alerts, lost, faulty = sailed("harbour")
    overboard = {alert.equipment_reference for alert in alerts if alert.kind == "OVERBOARD"}
    assert overboard == lost and lost
    assert len({alert.equipment_reference for alert in alerts}) <= faulty  # cargo in good condition raises no alert
    opened = Counter(alert.alert_id for alert in alerts if alert.state == "OPENED")
    assert set(opened.values()) == {1}


@pytest.mark.parametrize(("name", "faults"), [("yard-trouble", 7), ("port-strike", 0)])
def test_ports_find_what_goes_wrong_in_their_yards_and_nothing_else(name: str, faults: int) -> None:
    """Every fault in a yard that lasts long enough is found in time; plugs changed at gate and crane raise nothing."""
    scenario = scenario_file.load(name)
    plan = Voyage(scenario, load(scenario.topology), seed=7).plan
    alerts, _, _ = sailed(name)
    assert judge_yards(plan, alerts) == YardFigures(faults, faults)
    if faults:
        some = alerts[0]
        assert judge_yards(plan, []).found == 0
        elsewhere = msgspec.structs.replace(some, equipment_reference="BIGU1000005", kind="POWER_LOST")
        assert judge_yards(plan, [*alerts, elsewhere]).false_alerts == (some.alert_id,)


def test_a_reefers_own_alarms_keep_their_severity_and_those_for_its_log_alert_nobody() -> None:
    scenario = scenario_file.load("yard-trouble")
    plan = Voyage(scenario, load(scenario.topology), seed=7).plan
    alerts, _, _ = sailed("yard-trouble")
    planned = {box.number: alarm.alarm_severity for box in plan.boxes for _, alarm in box.alarms}
    assert sorted(planned.values()) == ["ALARM", "CRITICAL", "LOG", "WARNING"]
    own = [alert for alert in alerts if alert.kind == "UNIT_ALARM"]
    opened = {alert.equipment_reference: alert.severity for alert in own if alert.state == "OPENED"}
    assert opened == {number: severity for number, severity in planned.items() if severity != "LOG"}
    assert {alert.equipment_reference for alert in own if alert.state == "CLEARED"} == opened.keys()
    milder = [msgspec.structs.replace(alert, severity="WARNING") for alert in alerts]
    assert judge_yards(plan, milder).found == judge_yards(plan, alerts).found - 2
    silent = next(number for number, severity in planned.items() if severity == "LOG")
    false = msgspec.structs.replace(own[0], equipment_reference=silent, state="OPENED")
    assert judge_yards(plan, [*alerts, false]).false_alerts == (false.alert_id,)
