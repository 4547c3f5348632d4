"""What the intake does with what the watch finds: alerts go first, and their message is acknowledged with them."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import msgspec

from edge.acks import Ticket
from edge.classifier import Classifier
from edge.detection.watch import Watch
from edge.holdings import Holdings
from edge.intake import Intake
from edge.metrics import Metrics
from edge.mqtt import Delivery
from fairlead.custody import CustodyView
from fairlead.records import decoder
from fairlead.records.alert import Alert
from tests.unit.edge.detecting import FALL, MINUTE, TILT
from tests.unit.edge.samples import BOX, BOX_LOG, IMO, NOW, device, reading, readings_topic, topology

ALERTS = decoder(Alert)
POSITION = f"fairlead/v1/ships/{IMO}/position"
LOCATION = f"ships.{IMO}.location"


def parts() -> tuple[Intake, Any]:
    lanes = MagicMock()
    lanes.alerts.busy = False
    lanes.strays.log = "strays.star"
    lanes.ship = {LOCATION: MagicMock()}
    holdings = Holdings("star", CustodyView())
    holdings.hold(BOX_LOG, 2)
    intake = Intake(
        "star",
        Classifier(topology(), "star"),
        lanes,
        MagicMock(),
        holdings,
        Metrics(),
        watch=Watch("star"),
        finish=MagicMock(),
    )
    return intake, lanes


def alerts(lanes: Any) -> list[Alert]:
    return [ALERTS.decode(call.args[0].record.value) for call in lanes.alerts.put.call_args_list]


def at_sea(minutes: int, **more: Any) -> bytes:
    own = device(minutes, at=NOW + dt.timedelta(minutes=minutes), name="gps")
    place = {"latitude": -30.0, "longitude": 155.0}
    return msgspec.json.encode(
        {"vesselIMONumber": IMO, "device": own, "geoLocation": place, "speedOverGround": 15.0, **more}
    )


def test_a_message_waits_for_its_alert_and_the_reading() -> None:
    intake, lanes = parts()
    ticket = Ticket(1, 1)
    intake.take(Delivery(readings_topic(), reading(0, **FALL), False, ticket))
    [alert] = alerts(lanes)
    assert (alert.kind, alert.causes[0].log) == ("OVERBOARD", BOX_LOG)
    assert ticket.parts == 2


def test_what_the_ship_s_clock_shows_waits_for_its_alert_too() -> None:
    intake, lanes = parts()
    intake.take(Delivery(POSITION, at_sea(0), False, None))
    intake.take(Delivery(readings_topic(), reading(0, **FALL), False, None))
    intake.take(Delivery(readings_topic(), reading(1, motion={"immersed": True}), False, None))
    ticket = Ticket(1, 1)
    intake.take(Delivery(POSITION, at_sea(MINUTE), False, ticket))
    assert [alert.state for alert in alerts(lanes)] == ["OPENED", "UPDATED"]
    assert ticket.parts == 2
    keys = [call.args[0].key for call in lanes.alerts.put.call_args_list]
    assert keys == [(alerts(lanes)[0].alert_id, "OPENED"), (alerts(lanes)[0].alert_id, "UPDATED 1")]


def test_a_position_s_sentinels_are_stored_as_null() -> None:
    intake, lanes = parts()
    intake.take(Delivery(POSITION, at_sea(0, heading=511), False, None))
    [call] = lanes.ship[LOCATION].put.call_args_list
    assert msgspec.json.decode(call.args[0].record.value)["heading"] is None


def test_a_reading_without_a_finding_raises_nothing() -> None:
    intake, lanes = parts()
    intake.take(Delivery(readings_topic(BOX), reading(0, **TILT), False, None))
    assert alerts(lanes) == []
