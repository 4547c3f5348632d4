"""Some days of a small fleet, as rows of the tables: for tests of reports, and for the notebook.

MV Duck Star left Singapore on 2 March at 06:00 for Tokyo, with three boxes. On 3 March the chilled one for Tokyo
(``WARM``) is without power from 02:00 to 05:00 and gets warm; the frozen one (``FROZEN``) is as it should be; the third
(``WRONG``) goes on to Sydney and is set to 5 instead of 2 degrees. ``ON_DOCK`` waits at Tokyo. The newest word from the
ship is of 4 March, noon. MV Blue Marlin lies at Sydney.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fairlead.names import container_check_digit
from tests.support.tables import fill

Row = dict[str, Any]


def number(index: int, owner: str = "BIGU") -> str:
    """A valid container number."""
    ten = f"{owner}{index:06d}"
    return ten + container_check_digit(ten)


def at(day: int, hour: int = 0, minute: int = 0) -> dt.datetime:
    """A time in March 2026."""
    return dt.datetime(2026, 3, day, hour, minute, tzinfo=dt.UTC)


WARM, FROZEN, WRONG = number(100001), number(100002), number(200003, "YELU")
ON_DOCK: Final = number(100004)
SHIP, OTHER_SHIP = "9074729", "9321483"
SAILED, NEWEST = at(2, 6), at(4, 12)
UNPOWERED, POWERED = at(3, 2), at(3, 5)
_INTERVAL: Final = dt.timedelta(minutes=15)
_FROM, _TO = (1.26, 103.84), (35.61, 139.79)


def write(folder: Path) -> None:
    """Write every table of the story below the state folder of a topology."""
    fill(folder, rows())


def rows() -> dict[str, list[Row]]:
    """The rows of every table that the story has."""
    readings = [*_readings(WARM, 2.0), *_readings(FROZEN, -18.0), *_readings(WRONG, 5.0, "yellow"), *_on_dock()]
    return {
        "sites": _sites(),
        "owners": [
            {"owner_code": "BIGU", "stream": "containers", "line": "Big Blue"},
            {"owner_code": "YELU", "stream": "yellow", "line": "Yellow Box Leasing"},
        ],
        "readings": readings,
        "readings_rejected": [
            {
                "log": f"containers.{WARM}",
                "log_offset": 3,
                "equipment_reference": WARM,
                "reason": "the payload is no reading: JSON is malformed",
                "record_date_time": at(2, 6, 40),
                "payload": b"{",
            }
        ],
        "positions": _positions(),
        "bookings": _bookings(),
        "custody": [*_aboard(WARM), *_aboard(FROZEN), *_aboard(WRONG, "yellow"), *_docked()],
        "dock_movements": _movements(),
        "port_calls": [
            _call(SHIP, "MV Duck Star", "SGSIN", at(1, 2), SAILED),
            _call(OTHER_SHIP, "MV Blue Marlin", "AUSYD", at(1, 3), None),
            _call(OTHER_SHIP, "MV Blue Marlin", "JPTYO", dt.datetime(2026, 2, 10, tzinfo=dt.UTC), at(1) - 14 * _DAY),
        ],
        "voyages": [],
        "excursions": [_excursion("TEMPERATURE", 8.0), _excursion("POWER", None)],
        "mkt": [_mkt(day, 24, WARM, 2.4 + 2.2 * (day == 3)) for day in (2, 3)] + [_mkt(1, 720, WARM, 3.1)],
        "alerts": _alerts(),
        "alerts_ashore": [_ashore()],
        "alerts_now": [_alert_now("site", "POWER_LOST"), _alert_now("shore", "TEMPERATURE")],
        "quality": [
            {"equipment_reference": WARM, "device_id": f"sensor-{WARM}", "day": at(day), "readings": 96 - (day == 2),
             "repeats": int(day == 2), "missing": 8 * (day == 4), "gaps": int(day == 4), "late": 0, "out_of_order": 0,
             "boots": 1, "clock_ahead": 0, "delayed": 0, "rejected": 0, "first_date_time": at(day),
             "last_date_time": at(day, 12)}
            for day in (2, 3, 4)
        ],
        "containers_now": [
            _now(WARM, 2.1, alerts=1), _now(FROZEN, -18.1), _now(WRONG, 5.2), _now(ON_DOCK, 4.8, ship=False),
        ],
    }  # fmt: skip


_DAY: Final = dt.timedelta(days=1)


def _sites() -> list[Row]:
    ports = [
        ("singapore", "port", "Port of Singapore", "SGSIN", *_FROM),
        ("tokyo", "port", "Port of Tokyo", "JPTYO", *_TO),
        ("sydney", "port", "Port of Sydney", "AUSYD", -33.86, 151.2),
    ]
    ships = [("duck-star", "MV Duck Star", SHIP), ("blue-marlin", "MV Blue Marlin", OTHER_SHIP)]
    names = ("site", "kind", "title", "un_location_code", "latitude", "longitude")
    return [
        *(dict(zip(names, port, strict=True)) for port in ports),
        *({"site": site, "kind": "ship", "title": title, "vessel_imo_number": imo} for site, title, imo in ships),
    ]


def _reading(box: str, stream: str, offset: int, moment: dt.datetime, sequence: int, **values: Any) -> Row:
    return {
        "log": f"{stream}.{box}", "log_offset": offset, "term": 1, "equipment_reference": box,
        "device_id": f"sensor-{box}", "boot_id": 1, "sequence": sequence, "device_date_time": moment,
        "ambient_temperature": round(24 + 4 * math.sin(sequence / 15), 1), "relative_humidity": 88.0,
        "is_defrosting": False, "is_pre_trip_inspection": False, "is_connected_to_power_source": True,
        "is_powered": True, "door_open": False, "immersed": False,
        "received_date_time": moment + dt.timedelta(seconds=2), "late": False,
        "payload": json.dumps({"equipmentReference": box, "device": {"sequence": sequence}}).encode(),
    } | values  # fmt: skip


def _readings(box: str, setpoint: float, stream: str = "containers") -> Iterator[Row]:
    """From the departure on. Offset 0 is the marker of the term, 3 was rejected; the second reading stands there twice;
    eight are missing on the last day."""
    sequence, offset, moment = 0, 1, SAILED
    while moment <= NEWEST:
        missing = at(4, 3) <= moment < at(4, 5)
        defrost = sequence % 24 < 2 and moment < UNPOWERED
        unpowered = box == WARM and UNPOWERED <= moment < POWERED
        warmth = _warmth(moment) if box == WARM else 0.0
        values = {
            "supply_temperature": round(setpoint - 0.3 + 2.5 * defrost + warmth + 0.1 * (sequence % 3), 1),
            "return_temperature": round(setpoint + 0.4 + 4.0 * defrost + warmth + 0.1 * (sequence % 4), 1),
            "setpoint_temperature": setpoint,
            "is_defrosting": defrost,
            "is_connected_to_power_source": not unpowered,
            "is_powered": not unpowered,
        }
        for _ in range(0 if missing else 2 if sequence == 1 else 1):
            offset += offset == 3
            yield _reading(box, stream, offset, moment, sequence, **values)
            offset += 1
        sequence, moment = sequence + 1, moment + _INTERVAL


def _warmth(moment: dt.datetime) -> float:
    """Degrees above the usual: two an hour without power, gone three hours after it."""
    if moment < UNPOWERED or moment >= POWERED + dt.timedelta(hours=3):
        return 0.0
    hours = (min(moment, POWERED) - UNPOWERED) / dt.timedelta(hours=1)
    return 2 * hours if moment < POWERED else 6 - 2 * ((moment - POWERED) / dt.timedelta(hours=1))


def _on_dock() -> Iterator[Row]:
    for index in range(40):
        values = {"supply_temperature": 4.8, "return_temperature": 5.3, "setpoint_temperature": 5.0,
                  "latitude": _TO[0], "longitude": _TO[1]}  # fmt: skip
        yield _reading(ON_DOCK, "containers", index + 1, at(4) + index * _INTERVAL, index, **values)


def _positions() -> list[Row]:
    hours = round((NEWEST - SAILED) / dt.timedelta(hours=1))
    found = []
    for hour in range(hours + 1):
        share = 16.0 * hour / 2952.0  # knots by the way's nautical miles
        found.append(
            {"log": f"ships.{SHIP}.location", "log_offset": hour, "vessel_imo_number": SHIP,
             "device_date_time": SAILED + dt.timedelta(hours=hour),
             "latitude": _FROM[0] + share * (_TO[0] - _FROM[0]), "longitude": _FROM[1] + share * (_TO[1] - _FROM[1]),
             "speed_over_ground": 16.0, "course_over_ground": 45.0, "navigation_status": 0}
        )  # fmt: skip
    found.append(
        {"log": f"ships.{OTHER_SHIP}.location", "log_offset": 0, "vessel_imo_number": OTHER_SHIP,
         "device_date_time": NEWEST, "latitude": -33.86, "longitude": 151.2, "speed_over_ground": 0.0,
         "course_over_ground": 0.0, "navigation_status": 5}
    )  # fmt: skip
    return found


def _bookings() -> list[Row]:
    facts = [
        (WARM, "BK1", "ducks", "toy ducks of wax", 2.0, "SGSIN", "JPTYO"),
        (FROZEN, "BK2", "fishers", "tuna", -18.0, "SGSIN", "JPTYO"),
        (WRONG, "BK3", "yellow", "lettuce", 2.0, "SGSIN", "AUSYD"),
        (ON_DOCK, "BK4", "ducks", "chocolate ducks", 5.0, "JPTYO", "SGSIN"),
    ]
    names = ("equipment_reference", "booking_reference", "customer", "commodity", "setpoint_temperature",
             "port_of_loading", "port_of_discharge")  # fmt: skip
    common = {"status": "CONFIRMED", "is_current": True, "recorded_from": at(1), "valid_from": at(1), "log_offset": 0,
              "log": "bookings.los-angeles"}  # fmt: skip
    return [dict(zip(names, fact, strict=True)) | common | {"log_offset": i} for i, fact in enumerate(facts)]


def _aboard(box: str, stream: str = "containers") -> list[Row]:
    """Held by Singapore from the gate, by the ship from the departure on."""
    common = {"log": f"{stream}.{box}", "equipment_reference": box, "ordered_by": "", "reason": "", "lost": False}
    loaded = SAILED - dt.timedelta(hours=1)
    return [
        common | {"term": 0, "holder": "singapore", "marker_offset": 0, "from_offset": 1, "to_offset": 1,
                  "from_date_time": at(1, 8), "to_date_time": loaded, "event": "GTIN", "event_id": f"gtin-{box}",
                  "granted_by": "singapore", "granted_date_time": at(1, 8)},
        common | {"term": 1, "holder": "duck-star", "marker_offset": 0, "from_offset": 1, "from_date_time": loaded,
                  "event": "LOAD", "event_id": f"load-{box}", "from_site": "singapore", "granted_by": "singapore",
                  "granted_date_time": loaded},
    ]  # fmt: skip


def _docked() -> list[Row]:
    return [
        {"log": f"containers.{ON_DOCK}", "equipment_reference": ON_DOCK, "ordered_by": "", "reason": "", "lost": False,
         "term": 0, "holder": "tokyo", "marker_offset": 0, "from_offset": 1, "from_date_time": at(4), "event": "GTIN",
         "event_id": f"gtin-{ON_DOCK}", "granted_by": "tokyo", "granted_date_time": at(4)}
    ]  # fmt: skip


def _movements() -> list[Row]:
    loaded = SAILED - dt.timedelta(hours=1)
    found: list[tuple[str, str, dt.datetime, str, str | None, str | None]]
    found = [("ARRI-1", "SGSIN", at(1, 2), "ARRI", SHIP, None), ("DEPA-1", "SGSIN", SAILED, "DEPA", SHIP, None)]
    found += [(f"gtin-{box}", "SGSIN", at(1, 8), "GTIN", None, box) for box in (WARM, FROZEN, WRONG)]
    found += [(f"load-{box}", "SGSIN", loaded, "LOAD", SHIP, box) for box in (WARM, FROZEN, WRONG)]
    found.append((f"gtin-{ON_DOCK}", "JPTYO", at(4), "GTIN", None, ON_DOCK))
    names = ("event_id", "un_location_code", "event_date_time", "movement", "vessel_imo_number", "equipment_reference")
    lines = {"BIGU": "Big Blue", "YELU": "Yellow Box Leasing", "": None}
    return [
        dict(zip(names, each, strict=True))
        | {"vessel": "MV Duck Star" if each[4] else None, "line": lines[(each[5] or "")[:4]], "copies": 1,
           "owner_code": (each[5] or "")[:4] or None}
        for each in found
    ]  # fmt: skip


def _call(imo: str, vessel: str, port: str, came: dt.datetime, left: dt.datetime | None) -> Row:
    return {"vessel_imo_number": imo, "vessel": vessel, "un_location_code": port, "call_date_time": came,
            "arrival_date_time": came, "departure_date_time": left, "arrival_source": "EVENT",
            "departure_source": "EVENT" if left else None, "in_port": left is None}  # fmt: skip


def _excursion(quantity: str, worst: float | None) -> Row:
    begin = UNPOWERED + dt.timedelta(hours=1, minutes=15) if worst is not None else UNPOWERED
    end = POWERED + dt.timedelta(hours=2) if worst is not None else POWERED
    minutes = (end - begin) / dt.timedelta(minutes=1)
    return {"excursion_id": f"{WARM}/{quantity}/{begin:%Y-%m-%dT%H:%M:%SZ}", "equipment_reference": WARM,
            "quantity": quantity, "start_date_time": begin, "last_date_time": end - _INTERVAL, "end_date_time": end,
            "recovered_date_time": end, "minutes": minutes, "minutes_out_of_band": minutes,
            "readings": round(minutes / 15), "worst_value": worst,
            "worst_deviation": None if worst is None else worst - 2.0, "direction": None if worst is None else "HIGH",
            "setpoint": 2.0, "deviation_minutes": None if worst is None else 4.0 * minutes}  # fmt: skip


def _mkt(day: int, hours: int, box: str, kinetic: float) -> Row:
    return {"equipment_reference": box, "window_hours": hours, "window_start": at(day),
            "window_end": at(day) + dt.timedelta(hours=hours), "whole_day": hours == 24, "activation_energy": 83.144,
            "air_readings": 96, "air_minutes_observed": 1440.0, "air_temperature_min": 1.7,
            "air_temperature_mean": 2.3, "air_temperature_max": 8.0, "air_mean_kinetic_temperature": kinetic,
            "cargo_readings": 0}  # fmt: skip


def _alerts() -> list[Row]:
    """On board: power lost, cleared when it was back. Its first cause was stored, the second has not come ashore."""
    sequence = round((UNPOWERED - SAILED) / _INTERVAL)
    stored = next(row for row in _readings(WARM, 2.0) if row["sequence"] == sequence)
    causes = [
        {"log": stored["log"], "offset": stored["log_offset"], "deviceId": stored["device_id"], "bootId": 1,
         "sequence": sequence},
        {"log": stored["log"], "offset": -1, "deviceId": stored["device_id"], "bootId": 1, "sequence": 99_999},
    ]  # fmt: skip
    states = (("OPENED", UNPOWERED), ("CLEARED", POWERED))
    return [
        {"log": "alerts.duck-star", "log_offset": i + 1, "alert_id": "power-1", "kind": "POWER_LOST",
         "severity": "ALARM", "state": state, "revision": i, "equipment_reference": WARM, "raised_at": "duck-star",
         "event_date_time": moment, "raised_date_time": moment, "vessel_imo_number": SHIP,
         "causes": json.dumps(causes if state == "OPENED" else [])}
        for i, (state, moment) in enumerate(states)
    ]  # fmt: skip


def _ashore() -> Row:
    warm = [row for row in _readings(WARM, 2.0) if row["supply_temperature"] > 4.0 and not row["is_defrosting"]]
    first, worst = warm[0], max(warm, key=lambda row: float(row["supply_temperature"]))
    return {"alert_id": f"TEMPERATURE.{WARM}@{first['log_offset']}", "revision": 0, "kind": "TEMPERATURE",
            "severity": "CRITICAL", "state": "OPENED", "equipment_reference": WARM, "log": first["log"],
            "first_offset": first["log_offset"], "worst_offset": worst["log_offset"],
            "log_offset": worst["log_offset"], "term": 1, "since_date_time": first["device_date_time"],
            "event_date_time": worst["device_date_time"], "detail": "supply air 6 K above 2 Cel"}  # fmt: skip


def _alert_now(source: str, kind: str) -> Row:
    ashore = _ashore()
    return {"source": source, "alert_id": ashore["alert_id"] if source == "shore" else "power-1", "kind": kind,
            "state": "OPENED" if source == "shore" else "CLEARED",
            "severity": "CRITICAL" if source == "shore" else "ALARM",
            "highest_severity": "CRITICAL" if source == "shore" else "ALARM", "equipment_reference": WARM,
            "opened_date_time": UNPOWERED, "updated_date_time": POWERED,
            "cleared_date_time": None if source == "shore" else POWERED,
            "minutes_open": None if source == "shore" else 180.0, "revisions": 1 if source == "shore" else 2,
            "raised_at": None if source == "shore" else "duck-star", "log": f"containers.{WARM}",
            "holder": "duck-star", "vessel_imo_number": SHIP, "booking_reference": "BK1", "customer": "ducks",
            "detail": "supply air 6 K above 2 Cel" if source == "shore" else "no power"}  # fmt: skip


def _now(box: str, supply: float, *, alerts: int = 0, ship: bool = True) -> Row:
    booking = next(row for row in _bookings() if row["equipment_reference"] == box)
    last = NEWEST if ship else at(4, 9, 45)
    place = {
        "holder": "duck-star", "holder_kind": "ship", "vessel_imo_number": SHIP, "vessel": "MV Duck Star",
        "held_since": SAILED - dt.timedelta(hours=1), "custody_event": "LOAD", "position_source": "SHIP",
    } if ship else {
        "holder": "tokyo", "holder_kind": "port", "un_location_code": "JPTYO", "held_since": at(4),
        "custody_event": "GTIN", "position_source": "OWN",
    }  # fmt: skip
    lines = {"BIGU": "Big Blue", "YELU": "Yellow Box Leasing"}
    return place | {
        "equipment_reference": box, "owner_code": box[:4], "line": lines[box[:4]], "seen_date_time": last,
        "reading_date_time": last, "device_date_time": last, "supply_temperature": supply,
        "return_temperature": supply + 0.5, "setpoint_temperature": {WRONG: 5.0}.get(
            box, booking["setpoint_temperature"]), "is_powered": True, "is_connected_to_power_source": True,
        "door_open": False, "open_alerts": alerts, "worst_severity": "CRITICAL" if alerts else None,
        "booking_reference": booking["booking_reference"], "customer": booking["customer"],
    }  # fmt: skip
