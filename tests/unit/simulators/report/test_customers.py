"""What a customer read is judged by: readings, movements of a port's authority, and alerts, each once."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter

import msgspec
import pytest

from acl.kafka import Received
from fairlead.records import encode
from fairlead.records.alert import Alert
from simulators.report.counting import CustomerReads, RecordIdentity, alerts_due, entitled_to, figures, identity_of
from simulators.steps import MessageKind
from simulators.voyage.truth import Truth
from tests.unit.simulators.worlds import published, voyage

AUTHORITY = "singapore-mpa"
YELLOW, RED = "YELU1234560", "REDU1234566"
NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def movement(event_id: str, revision: int = 0) -> bytes:
    return msgspec.json.encode({"kind": "movement", "eventID": event_id, "line": "Yellow", "revision": revision})


def alert(box: str, alert_id: str, revision: int = 0) -> Alert:
    return Alert(
        alert_id=alert_id,
        kind="TEMPERATURE",
        severity="WARNING",
        state="UPDATED" if revision else "OPENED",
        equipment_reference=box,
        raised_at="tokyo",
        event_date_time=NOW,
        raised_date_time=NOW,
        revision=revision,
    )


def test_an_owner_gets_every_state_of_the_alerts_about_its_boxes() -> None:
    topology = voyage(7, 40).plan.topology
    raised = [alert(YELLOW, "a"), alert(YELLOW, "a", 1), alert(RED, "b"), alert("", "c")]  # c is about a whole site
    assert alerts_due(topology, "yellow", raised) == {("a", 0), ("a", 1)}
    assert alerts_due(topology, "red", raised) == {("b", 0)}
    assert alerts_due(topology, "ducks", raised) is None
    reads = CustomerReads()
    for topic, one in (("feeds.yellow", raised[0]), ("feeds.yellow", raised[0]), ("alerts.tokyo", raised[2])):
        reads("los-angeles", Received(topic, 0, 0, b"", encode(one), ()))
    assert reads.alerts == {"los-angeles": {("a", 0): 2}}
    assert reads.boxes == {("a", 0): YELLOW}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (movement("e1"), "e1"),
        (movement("e1", 1), None),  # said again otherwise, which is no repeat
        (b'{"kind":"conditions","windowStart":"2026-03-01T00:00:00Z","revision":0}', None),
        (b'{"alertID":"a"}', None),
        (b"\xff", None),
    ],
)
def test_a_record_counts_as_a_reading_a_movement_or_nothing(value: bytes, named: str | None) -> None:
    assert identity_of(value) == named


def test_an_authority_gets_the_movements_of_its_port_only() -> None:
    planned = voyage(7, 40)
    topology, truth = planned.plan.topology, Truth(planned.plan)
    port = topology.customers[AUTHORITY].port
    happened: set[str] = set()
    elsewhere: set[str] = set()
    for message in published(planned.steps()):
        truth.record(message, NOW)
        if message.kind is MessageKind.EVENT:
            here = json.loads(message.payload)["payload"]["UNLocationCode"] == port
            (happened if here else elsewhere).add(message.key)
    assert entitled_to(truth, topology, AUTHORITY) == happened
    assert entitled_to(truth, topology, "ducks") == {*truth.entitled["ducks"]}
    assert entitled_to(truth, topology, "toyshop") == set()
    assert happened
    reads = CustomerReads()
    for event_id in (*happened, *elsewhere):
        reads("los-angeles", Received(f"feeds.{AUTHORITY}", 0, 0, b"", movement(event_id), ()))
    told = reads.by_site["los-angeles"]
    assert figures(happened, told) == (len(happened), 0, len(elsewhere))
    assert figures(happened, told + Counter[RecordIdentity](happened)) == (len(happened), len(happened), len(elsewhere))
