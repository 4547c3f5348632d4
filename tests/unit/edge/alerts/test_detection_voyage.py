"""Play a simulated voyage to the alert engine of its ship: it finds every lost container, and raises no false alert."""

from __future__ import annotations

from collections import Counter

from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.messages import BookingMessage, EventMessage, ReadingMessage, ShipMessage
from fairlead.records.alert import Alert
from fairlead.records.ship import Position
from simulators.fleet import scenario_file
from simulators.steps import Publish
from simulators.voyage.voyage import Voyage
from topologies.loader.load import load
from topologies.model import SiteKind


def sailed(name: str) -> tuple[list[Alert], set[str], int]:
    """Return the alerts on board, the containers that were lost, and how many containers have a fault in the
    scenario."""
    scenario = scenario_file.load(name)
    topology = load(scenario.topology)
    voyage = Voyage(scenario, topology, seed=7)
    classifiers = {site: Classifier(topology, site) for site in topology.sites}
    engines = {site: AlertEngine(site) for site, spec in topology.sites.items() if spec.kind is SiteKind.SHIP}
    alerts: list[Alert] = []
    lost: set[str] = set()
    for step in voyage.steps():
        if not isinstance(step, Publish):
            continue
        received = int(step.sim_time.timestamp() * 1000) + 1
        message = classifiers[step.site].classify(step.topic, step.payload, received)
        if step.decides:
            lost.add(step.key)
        if isinstance(message, BookingMessage):  # a link brings bookings aboard
            for engine in engines.values():
                engine.booked(message.booking)
        if step.site not in engines:
            continue
        engine = engines[step.site]
        if isinstance(message, ReadingMessage):
            alerts += engine.judge_reading(message, message.log, received)
        elif isinstance(message, ShipMessage) and isinstance(message.report, Position):
            alerts += engine.ship_reported(message.report, message.device_ms, received)
        elif isinstance(message, EventMessage) and message.event.payload.equipment_event_type_code == "DISC":
            alerts += engine.forget(str(message.event.payload.equipment_reference), received)
    return alerts, lost, sum(getattr(fault, "containers", 1) for fault in scenario.faults)


def test_a_voyage_raises_what_happens_on_it_and_nothing_else() -> None:
    """The alerts of a voyage match the scenario's faults, and no other alert opens."""
    alerts, lost, faulty = sailed("harbour")
    overboard = {alert.equipment_reference for alert in alerts if alert.kind == "OVERBOARD"}
    assert overboard == lost and lost
    assert len({alert.equipment_reference for alert in alerts}) <= faulty  # cargo in good condition raises no alert
    opened = Counter(alert.alert_id for alert in alerts if alert.state == "OPENED")
    assert set(opened.values()) == {1}
