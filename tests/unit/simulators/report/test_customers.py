"""What a customer read is judged by: readings, alerts of its boxes, and movements of a port's authority, each once."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter

import msgspec
import pytest

from acl.kafka import Received
from fairlead.records import encode, headers
from fairlead.records.alert import Alert
from simulators.report.counting import (
    CustomerReads,
    RecordIdentity,
    alert_figures,
    entitled_alerts,
    entitled_to,
    figures,
    identity_of,
)
from simulators.report.model import CustomerAlertFigures
from simulators.steps import MessageKind
from simulators.voyage.truth import Truth
from tests.support.simulators.worlds import published, voyage

AUTHORITY = "singapore-mpa"
NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def movement(event_id: str, revision: int = 0) -> bytes:
    return msgspec.json.encode({"kind": "movement", "eventID": event_id, "line": "Yellow", "revision": revision})


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


def alert(box: str, at: dt.datetime) -> Alert:
    return Alert(
        alert_id=f"POWER_LOST.{box}", kind="POWER_LOST", severity="ALARM", state="OPENED", equipment_reference=box,
        raised_at="tokyo", event_date_time=at, raised_date_time=at,
    )  # fmt: skip


def test_customers_get_alerts_of_boxes_that_they_own_or_have_booked_then() -> None:
    plan = voyage(7, 40).plan
    big_blue = plan.topology
    of_lot = {box.lot_name: box for box in plan.boxes if box.released}
    local, yellow = of_lot["ducks-for-local-shops"], next(box for box in plan.boxes if box.number.startswith("YELU"))
    starts, ends = local.first_load.time, local.released
    assert ends is not None
    states = {
        "alerts.tokyo@1": alert(local.number, starts - dt.timedelta(milliseconds=1)),
        "alerts.tokyo@2": alert(local.number, starts),
        "alerts.singapore@3": alert(local.number, ends),
        "alerts.singapore@4": alert(yellow.number, plan.starts),
        "alerts.duck-star@5": alert("", starts),  # about all boxes of a site
    }

    def due(customer: str) -> set[str] | None:
        found = entitled_alerts(plan, big_blue, customer, states)
        return None if found is None else set(found)

    assert due("ducks") == due("toyshop") == {"alerts.tokyo@2"}
    assert due("yellow") == {"alerts.singapore@4"}
    assert due("red") == set()
    assert due("singapore-mpa") is None
    assert big_blue.customers["yellow"].feed_at == "los-angeles"


def test_a_feeds_alerts_are_counted_by_origin_less_those_taken_back() -> None:
    states = {f"alerts.tokyo@{n}": alert("YELU1000002", NOW) for n in range(3)}
    reads = CustomerReads()

    def give(origin: str, header: str = headers.ORIGIN) -> None:
        record = Received("feeds.yellow", 0, 0, b"", encode(states["alerts.tokyo@0"]), ((header, origin.encode()),))
        reads("los-angeles", record)

    def found() -> CustomerAlertFigures:
        return alert_figures(states, [reads.alerts["los-angeles"]])

    for origin in states:
        give(origin)
    assert found() == CustomerAlertFigures(raised=1, due=3, read=3) and found().ok
    give("alerts.tokyo@0", headers.RETRACTS)
    assert (found().read, found().ok) == (2, False)
    give("alerts.tokyo@0")
    give("alerts.tokyo@0")
    give("alerts.tokyo@9")
    assert (found().read, found().repeated, found().foreign, found().ok) == (3, 1, 1, False)
    assert alert_figures(states, []).read == 0
    assert reads.by_site == {}
