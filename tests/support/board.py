"""An alert, and positions of a ship, for tests of the board."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fairlead.records.alert import Alert
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Position

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
STAR = "9074729"
START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)


def alert(raised_at: str, **changes: Any) -> Alert:
    values: dict[str, Any] = {
        "alert_id": "x",
        "kind": "OVERBOARD",
        "severity": "CRITICAL",
        "state": "OPENED",
        "equipment_reference": "BIGU1000010",
        "raised_at": raised_at,
        "event_date_time": NOW,
        "raised_date_time": NOW,
    }
    return Alert(**(values | changes))


def at(hour: float) -> dt.datetime:
    return START + dt.timedelta(hours=hour)


def position(hour: float, latitude: float = 35.0, imo: str = STAR) -> Position:
    return Position(
        vessel_imo_number=imo,
        device=Device(device_id="d", boot_id=1, sequence=1, device_date_time=at(hour)),
        geo_location=GeoLocation(latitude=latitude, longitude=139.0),
    )
