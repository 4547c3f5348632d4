"""Feed readings of one ship's boxes to an alert engine, for the tests of detection."""

from __future__ import annotations

import datetime as dt
from typing import Any

from edge.alerts.engine import AlertEngine
from edge.alerts.thresholds import Thresholds
from edge.ingest.classifier import Classifier
from edge.logwriter import records
from edge.messages import ReadingMessage
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Environment, Position
from tests.support.edge.samples import BOX, IMO, NOW, NOW_MS, reading, readings_topic, topology

SHIP = Classifier(topology(), "star")
MINUTE = 60
HOUR = 3600
AT_SEA = GeoLocation(latitude=-30.0, longitude=155.0)
NEIGHBOURS = ("BIGU1000010", "BIGU1000026", "BIGU1000031", "BIGU1000047")

FALL: dict[str, Any] = {"motion": {"freeFallSeconds": 1.9, "peakG": 12.0, "tiltDegrees": 70.0}}
TILT: dict[str, Any] = {"motion": {"tiltDegrees": 70.0}}
REEFER: dict[str, Any] = {"setpoints": {"temperature": 4.0}}


def ms(after_s: int) -> int:
    return NOW_MS + 1000 * after_s


def message(sequence: int, after_s: int = 0, *, number: str = BOX, boot: int = 1, **fields: Any) -> ReadingMessage:
    """Return a reading as the classifier passes it on; each box has its own device unless ``name`` gives another."""
    fields.setdefault("name", "d1" if number == BOX else f"d-{number}")
    payload = reading(sequence, number=number, boot=boot, at=NOW + dt.timedelta(seconds=after_s), **fields)
    found = SHIP.classify(readings_topic(number), payload, ms(after_s))
    assert isinstance(found, ReadingMessage)
    return found


def position(speed: float = 18.0, place: GeoLocation = AT_SEA, status: int = 0) -> Position:
    return Position(
        vessel_imo_number=IMO,
        device=Device(device_id="gps", boot_id=1, sequence=0, device_date_time=NOW),
        geo_location=place,
        speed_over_ground=speed,
        navigation_status=status,
    )


def booking(number: str = BOX, **fields: Any) -> Booking:
    given: dict[str, Any] = {"setpoint_temperature": 4.0, "valid_from": NOW - dt.timedelta(days=1), **fields}
    return Booking(booking_reference="B1", customer="ducks", equipment_reference=number, **given)


class Voyage:
    """Readings one after another; each box counts its own sequences."""

    def __init__(self, *, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds
        self.engine = AlertEngine("star", thresholds=thresholds)
        self.sequences: dict[str, int] = {}
        self.said: list[Alert] = []

    def ship(self, after_s: int = 0, **fields: Any) -> list[Alert]:
        return self._keep(self.engine.ship_reported(position(**fields), ms(after_s), ms(after_s)))

    def see(self, after_s: int = 0, *, number: str = BOX, strays: bool = False, **fields: Any) -> list[Alert]:
        self.sequences[number] = self.sequences.get(number, -1) + 1
        found = message(self.sequences[number], after_s, number=number, **fields)
        return self._keep(self.engine.judge_reading(found, "strays.star" if strays else found.log, ms(after_s)))

    def every(self, step_s: int, upto_s: int, *, start_s: int = 0, **fields: Any) -> list[Alert]:
        """Feed a reading every ``step_s`` seconds, up to and including ``upto_s``; return all alerts."""
        return [alert for at in range(start_s, upto_s + 1, step_s) for alert in self.see(at, **fields)]

    def _keep(self, alerts: list[Alert]) -> list[Alert]:
        self.said += alerts
        return alerts


def environment(after_s: int) -> Environment:
    """Return a weather report; the waves rise by a metre an hour."""
    at = NOW + dt.timedelta(seconds=after_s)
    return Environment(
        vessel_imo_number=IMO,
        device=Device(device_id="env", boot_id=1, sequence=0, device_date_time=at),
        wind_speed=21.5,
        significant_wave_height=7.0 + after_s / HOUR,
    )


def new_record(sequence: int, after_s: int, *, number: str = BOX, **fields: Any) -> NewRecord:
    """Return a reading as the bridge appends it to its container's log."""
    payload = reading(sequence, number=number, at=NOW + dt.timedelta(seconds=after_s), **fields)
    return records.published(payload, key=number, at_ms=ms(after_s), received_ms=ms(after_s))
