"""The router stores alerts before their readings, and acknowledges a message after both."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import msgspec

from edge.alerts.engine import AlertEngine
from edge.holdings import CustodyState
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.router import MessageRouter
from edge.metrics import Metrics
from edge.mqtt.session import Delivery
from edge.writer_registry import AlertWriter, Settlement
from fairlead.kafka.protocol.types import Appended
from fairlead.records import decoder
from fairlead.records.alert import Alert
from tests.support.acknowledging import AckSession
from tests.support.edge.detecting import FALL, MINUTE, TILT
from tests.support.edge.samples import BOX, BOX_LOG, IMO, NOW, device, reading, readings_topic, topology
from tests.support.raised_alerts import RaisedAlerts

ALERTS = decoder(Alert)
POSITION = f"fairlead/v1/ships/{IMO}/position"
LOCATION = f"ships.{IMO}.location"
IN_WATER: dict[str, Any] = {"motion": {"freeFallSeconds": 1.2, "peakG": 6.0, "tiltDegrees": 70.0, "immersed": True}}


def parts(*, ashore: bool = False) -> tuple[MessageRouter, Any]:
    writers = MagicMock()
    writers.alerts = RaisedAlerts()
    writers.strays.log = "strays.star"
    writers.ship = {LOCATION: MagicMock()}
    writers.holdings.state.return_value = CustodyState.HELD
    writers.metrics = Metrics()
    engine = AlertEngine("star", ashore=ashore)
    router = MessageRouter(
        Classifier(topology(), "star"),
        writers,
        MagicMock(),
        DeadLetters(writers, engine),
        engine,
    )
    return router, writers


def alerts(writers: Any) -> list[Alert]:
    return list(writers.alerts.raised())


def at_sea(minutes: int, **more: Any) -> bytes:
    own = device(minutes, at=NOW + dt.timedelta(minutes=minutes), name="gps")
    place = {"latitude": -30.0, "longitude": 155.0}
    return msgspec.json.encode(
        {"vesselIMONumber": IMO, "device": own, "geoLocation": place, "speedOverGround": 15.0, **more}
    )


def test_a_message_waits_for_its_alert_and_the_reading() -> None:
    """A message is acknowledged only when its alert and its reading are stored."""
    router, writers = parts()
    ack = AckSession().ack()
    router.route_message(Delivery(readings_topic(), reading(0, **FALL), False, ack))
    [alert] = alerts(writers)
    assert (alert.kind, alert.causes[0].log) == ("OVERBOARD", BOX_LOG)
    assert ack.parts == 2


async def test_a_message_sent_again_waits_for_the_alert_of_its_first_delivery() -> None:
    """The second delivery of a reading raises no second alert, and its PUBACK waits until the first one is stored."""
    router, writers = parts()
    stored = asyncio.get_running_loop().create_future()
    sink, failures = MagicMock(), list[BaseException]()
    sink.submit.return_value = stored
    writers.alerts = AlertWriter("alerts.star", sink, Settlement(Metrics(), failures.append))
    session = AckSession()
    first, again = session.ack(), session.ack()
    router.route_message(Delivery(readings_topic(), reading(0, **FALL), False, first))
    router.route_message(Delivery(readings_topic(), reading(0, **FALL), True, again))
    assert (first.parts, again.parts) == (2, 2)
    stored.set_result(Appended(0, 1))
    await writers.alerts.idle()
    assert (first.parts, again.parts) == (1, 1)  # the reading
    sink.submit.assert_called_once()
    assert failures == []


def test_what_the_ship_s_clock_shows_waits_for_its_alert_too() -> None:
    """An alert that the ship's clock brings about delays the acknowledgement, too."""
    router, writers = parts()
    router.route_message(Delivery(POSITION, at_sea(0), False, None))
    router.route_message(Delivery(readings_topic(), reading(0, **FALL), False, None))
    router.route_message(Delivery(readings_topic(), reading(1, motion={"immersed": True}), False, None))
    ack = AckSession().ack()
    router.route_message(Delivery(POSITION, at_sea(MINUTE), False, ack))
    assert [alert.state for alert in alerts(writers)] == ["OPENED", "UPDATED"]
    assert ack.parts == 2
    keys = [entry.key for entry in writers.alerts.entries()]
    assert keys == [(alerts(writers)[0].alert_id, "OPENED"), (alerts(writers)[0].alert_id, "UPDATED 1")]


def test_a_position_s_sentinels_are_stored_as_null() -> None:
    """AIS's "not available" values in a position are stored as null."""
    router, writers = parts()
    router.route_message(Delivery(POSITION, at_sea(0, heading=511), False, None))
    [call] = writers.ship[LOCATION].enqueue.call_args_list
    assert msgspec.json.decode(call.args[0].record.value)["heading"] is None


def test_a_reading_without_a_finding_raises_nothing() -> None:
    router, writers = parts()
    router.route_message(Delivery(readings_topic(BOX), reading(0, **TILT), False, None))
    assert alerts(writers) == []


def test_a_yard_watches_only_boxes_in_its_care() -> None:
    """A reading ashore is judged only if the ledgers give the box to the site; it is stored in any case."""
    router, writers = parts(ashore=True)
    router.route_message(Delivery(readings_topic(), reading(0, **IN_WATER), False, None))
    assert [alert.kind for alert in alerts(writers)] == ["OVERBOARD"]
    router, writers = parts(ashore=True)
    writers.holdings.state.return_value = CustodyState.ELSEWHERE
    router.route_message(Delivery(readings_topic(), reading(0, **IN_WATER), False, None))
    assert alerts(writers) == []
    writers.box.return_value.enqueue.assert_called_once()
