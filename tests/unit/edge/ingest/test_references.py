"""A booking reference belongs to the office where it was first seen."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from edge.alerts.engine import AlertEngine
from edge.alerts.site_alerts import SiteAlerts
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.references import ALERT_MS, BookingReferences
from edge.ingest.router import MessageRouter
from edge.logwriter import records
from edge.metrics import Metrics
from edge.mqtt.session import Delivery
from fairlead.kafka.protocol.record import Record
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.edge import DeadLetter
from tests.support.edge.samples import BOX, NOW, NOW_MS, topology
from tests.support.raised_alerts import RaisedAlerts

TOPIC = "fairlead/v1/bookings"


def booking(reference: str = "B1", **more: Any) -> bytes:
    body = {"bookingReference": reference, "customer": "ducks", "equipmentReference": BOX, "validFrom": NOW, **more}
    return msgspec.json.encode(body)


def stored(payload: bytes, received_ms: int = NOW_MS) -> Record:
    made = records.published(payload, key=BOX, at_ms=received_ms, received_ms=received_ms)
    return Record(0, made.timestamp_ms, made.key, made.value, made.headers)


class Office:
    """Tokyo's router, with the messages it stores and those it refuses."""

    def __init__(self) -> None:
        self.writers: Any = MagicMock()
        self.metrics = Metrics()
        self.writers.metrics = self.metrics
        engine = AlertEngine("tokyo", ashore=True)
        letters = DeadLetters(self.writers, engine)
        self.router = MessageRouter(Classifier(topology(), "tokyo"), self.writers, MagicMock(), letters, engine)
        self.references = self.router.references

    def publish(self, payload: bytes, topic: str = TOPIC) -> None:
        self.router.route_message(Delivery(topic, payload, False, None))

    def bookings(self) -> list[bytes]:
        return [call.args[0].record.value for call in self.writers.bookings.enqueue.call_args_list]

    def letters(self) -> list[DeadLetter]:
        decode = decoder(DeadLetter).decode
        return [decode(call.args[0].record.value) for call in self.writers.letters.enqueue.call_args_list]


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.mark.parametrize("status", ["CONFIRMED", "COMPLETED", "CANCELLED"])
def test_a_change_of_another_offices_booking_is_a_dead_letter(office: Office, status: str) -> None:
    """A change to another office's booking becomes a dead letter."""
    office.references.add_record("bookings.sydney", stored(booking()), True)
    change = booking(status=status)
    office.publish(change)
    assert office.bookings() == []
    [letter] = office.letters()
    assert (letter.reason, letter.payload) == ("foreign-booking", change)
    assert "belongs to sydney" in letter.detail


def test_an_office_changes_its_own_bookings_and_makes_new_ones(office: Office) -> None:
    office.references.add_record("bookings.sydney", stored(booking("B2")))
    changes = [booking(), booking(status="CANCELLED"), booking("B3")]
    for change in changes:
        office.publish(change)
    assert office.bookings() == changes
    assert office.letters() == []


def test_a_replayed_dead_letter_is_refused_again(office: Office) -> None:
    """A replayed dead letter of such a change is refused again."""
    office.references.add_record("bookings.sydney", stored(booking()))
    office.publish(booking(), f"fairlead/v1/replays/7/{TOPIC}")
    assert [letter.replay_of for letter in office.letters()] == [7]


def test_of_two_offices_the_one_that_had_a_reference_first_owns_it() -> None:
    """If two offices use one reference, the one that had it first owns it."""
    for logs in (("tokyo", "sydney"), ("sydney", "tokyo")):  # independent of which log is read first
        references = BookingReferences()
        received = {"tokyo": NOW_MS, "sydney": NOW_MS + 1}
        for name in logs:
            references.add_record(f"bookings.{name}", stored(booking(), received[name]))
        assert references.owner("B1") == "tokyo"
    assert references.owner("B2") is None


def test_records_that_are_no_bookings_are_passed_over() -> None:
    """Records that are no bookings are skipped."""
    references = BookingReferences()
    for payload in (b"", b"{}", b"\xff", booking()[:-5]):
        references.add_record("bookings.sydney", stored(payload))
    references.add_record("bookings.sydney", Record(0, NOW_MS, None, None, ()))
    assert references.owner("B1") is None


def test_an_attempt_raises_one_alert_which_ends_when_nobody_tries_for_a_day(office: Office) -> None:
    """An attempt raises one alert, which clears after a day without attempts."""
    office.references.add_record("bookings.sydney", stored(booking()))
    office.publish(booking())
    office.publish(booking())
    alerts: Any = MagicMock(alerts=RaisedAlerts("tokyo"))
    now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    site = SiteAlerts("tokyo", alerts, [office.references.source()])
    for moment in (now_ms, now_ms + 1000):
        site.update_alerts(moment)
    [opened] = raised(alerts)
    assert (opened.kind, opened.state, opened.equipment_reference) == ("BOOKING_REUSED", "OPENED", BOX)
    assert "booking B1, which belongs to sydney" in opened.evidence[0].detail
    again = SiteAlerts("tokyo", alerts, [BookingReferences().source()])  # the bridge was restarted
    again.restore(opened)
    again.update_alerts(now_ms + ALERT_MS // 2)
    assert len(raised(alerts)) == 1
    again.update_alerts(now_ms + ALERT_MS + 1000)
    assert [alert.state for alert in raised(alerts)] == ["OPENED", "CLEARED"]


def raised(writers: Any) -> list[Alert]:
    return list(writers.alerts.raised())
