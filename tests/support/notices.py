"""Alerts and a topology with routes, for tests of notifications."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fairlead.records.alert import Alert, AlertState, Evidence, Severity
from fairlead.records.booking import Booking
from topologies.model import Topology

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
BOX, OTHER, YELLOW = "BIGU0000016", "BIGU0000021", "YELU0000013"


def alert(name: str, state: AlertState = "OPENED", severity: Severity = "ALARM", **changes: Any) -> Alert:
    """Return a state of an alert. Its revision is 0 where it opens, else 1."""
    values: dict[str, Any] = {
        "alert_id": name,
        "kind": "TEMPERATURE",
        "severity": severity,
        "state": state,
        "equipment_reference": BOX,
        "raised_at": "tokyo",
        "event_date_time": T0,
        "raised_date_time": T0 + dt.timedelta(seconds=2),
        "evidence": (Evidence(name="supply", weight=1.0, detail="-11.2 C for 60 min"),),
        "revision": 0 if state == "OPENED" else 1,
    }
    return Alert(**(values | changes))


def booking(customer: str, **changes: Any) -> Booking:
    """Return a booking of ``BOX`` that holds from ``T0`` on."""
    values: dict[str, Any] = {
        "booking_reference": f"B-{customer}",
        "customer": customer,
        "equipment_reference": BOX,
        "valid_from": T0,
    }
    return Booking(**(values | changes))


def fleet(routes: dict[str, Any], at: str = "tokyo", **site: Any) -> Topology:
    """Return a topology of one port with these routes."""
    alerts = {"insert_point": "site"}
    boxes = {name: {"insert_point": "moves", "owners": [owner]} for name, owner in BOXES.items()}
    return Topology.model_validate(
        {
            "name": "small",
            "sites": {at: {"kind": "port", "unlocode": "JPTYO", **site}},
            "streams": {name: alerts for name in SITE_STREAMS} | boxes,
            "customers": {
                "ducks": {"feed_at": at},
                "beans": {"feed_at": at, "feed": "coarse"},
                "lessor": {"feed_at": at, "feed": "alerts", "owners": ["YELU"]},
                "port-office": {"feed_at": at, "feed": "movements", "port": "JPTYO"},
            },
            "notify": {"at": at, "routes": routes},
        }
    )


BOXES = {"containers": "BIGU", "yellow": "YELU"}
SITE_STREAMS = ("events", "alerts", "custody", "strays", "deadletters", "bookings")
