"""A few days of a small fleet: rows of the log tables, and the derived tables that follow from them.

MV Duck Star left Singapore on 2 March at 06:00 for Tokyo, with three boxes. On 3 March the chilled one for Tokyo
(``WARM``) is without power from 02:00 to 05:00 and gets warm; the frozen one (``FROZEN``) is as it should be; the third
(``WRONG``) goes on to Sydney and is set to 5 instead of 2 degrees. A fourth, ``NEVER_HEARD``, is missing since.
``ON_DOCK`` waits at Tokyo. The ship's last message is of 4 March, noon. MV Blue Marlin lies at Sydney. The sites are
those of topology ``big-blue``.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from fairlead.names import container_check_digit
from fairlead.records import encode
from fairlead.records.alert import LEFT_PORT, NOT_HEARD
from fairlead.records.custody import CustodyEntry
from shore.alerts.machine import State, advance
from shore.alerts.rules import COLUMNS, reading_of
from shore.paths import TablePaths
from shore.tables.alerts_ashore import table_of
from shore.tables.graph import DERIVED
from shore.tables.reference import geofence_rows, owner_rows, site_rows
from tests.support.oracle.tables import ORACLES
from tests.support.tables import fill
from topologies.drawing.seachart import ports
from topologies.loader.load import load

Row = dict[str, Any]


def number(index: int, owner: str = "BIGU") -> str:
    """Return a valid container number."""
    ten = f"{owner}{index:06d}"
    return ten + container_check_digit(ten)


def at(day: int, hour: int = 0, minute: int = 0) -> dt.datetime:
    """Return a time in March 2026."""
    return dt.datetime(2026, 3, day, hour, minute, tzinfo=dt.UTC)


WARM, FROZEN, WRONG = number(100001), number(100002), number(200003, "YELU")
ON_DOCK: Final = number(100004)
NEVER_HEARD: Final = number(100005)
SHIP, OTHER_SHIP = "9074729", "9321483"
SAILED, NEWEST = at(2, 6), at(4, 12)
UNPOWERED, POWERED = at(3, 2), at(3, 5)
_INTERVAL: Final = dt.timedelta(minutes=15)
_FROM, _TO = (1.26, 103.84), (35.61, 139.79)


def write(folder: Path) -> None:
    """Write every table of the story into the state folder of a topology; DuckDB makes the derived ones."""
    fill(folder, rows())
    derive(folder)


def derive(folder: Path, *names: str) -> None:
    """Make these derived tables, or all, from the inputs in the folder; missing inputs are created empty."""
    paths = TablePaths.of(folder)
    wanted = [each for each in DERIVED if not names or each.table.name in names]
    fill(folder, {name: () for each in wanted for name in (*each.inputs, each.table.name)})
    for each in wanted:
        name = each.table.name
        if name in ("outlook", "cold_treatments"):
            continue  # Spark alone computes them; they stay empty
        made = _alerts_ashore(paths) if name == "alerts_ashore" else ORACLES[name](paths)
        write_deltalake(DeltaTable(paths.table(name)), made, mode="overwrite")


def _alerts_ashore(paths: TablePaths) -> pa.Table:
    rows = DeltaTable(paths.table("readings")).to_pyarrow_dataset().to_table().to_pylist()
    rows.sort(key=itemgetter("log", "log_offset"))
    states: list[State] = []
    for log, of_log in groupby(rows, key=itemgetter("log")):
        values = ([row[name] for name in COLUMNS] for row in of_log)
        states += advance(log, None, [reading_of([*v[:5], micros(v[5]), *v[6:]]) for v in values])[1]
    return table_of(states)


def micros(time: dt.datetime) -> int:
    """Return microseconds since 1970."""
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def rows() -> dict[str, list[Row]]:
    """Return the rows of the tables that are not derived."""
    readings = [*_readings(WARM, 2.0), *_readings(FROZEN, -18.0), *_readings(WRONG, 5.0, "yellow"), *_on_dock()]
    topology = load("big-blue")
    return {
        "sites": site_rows(topology, ports()).to_pylist(),
        "owners": owner_rows(topology).to_pylist(),
        "geofences": geofence_rows(topology).to_pylist(),
        "readings": readings,
        "readings_rejected": [
            {
                "log": f"containers.{WARM}",
                "log_offset": 4,
                "equipment_reference": WARM,
                "reason": "the payload is no reading: JSON is malformed",
                "record_date_time": at(2, 6, 40),
                "received_date_time": at(2, 6, 40),
                "payload": b"{",
            }
        ],
        "positions": _positions(),
        "booking_changes": _bookings(),
        "custody_entries": _entries(),
        "events": _events(),
        "alerts": _alerts(),
    }


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
    """Return the readings since the departure.

    Offsets 0 and 1 are custody markers, 4 was rejected, the second reading is there twice, and eight are missing on the
    last day.
    """
    sequence, offset, moment = 0, 2, SAILED
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
            offset += offset == 4
            yield _reading(box, stream, offset, moment, sequence, **values)
            offset += 1
        sequence, moment = sequence + 1, moment + _INTERVAL


def _warmth(moment: dt.datetime) -> float:
    """Return the degrees above the usual temperature: two an hour without power, back to none three hours after it."""
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
        share = 16.0 * hour / 2952.0  # knots by the route's nautical miles
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
    common = {"status": "CONFIRMED", "record_date_time": at(1), "valid_from": at(1), "log": "bookings.los-angeles"}
    found = [dict(zip(names, fact, strict=True)) | common | {"log_offset": i} for i, fact in enumerate(facts)]
    found[2] |= {"cold_treatment_temperature": 1.1, "cold_treatment_days": 14.0}
    return found


_ABOARD: Final = ((WARM, "containers"), (FROZEN, "containers"), (WRONG, "yellow"))
_LOADED: Final = SAILED - dt.timedelta(hours=1)


def _entries() -> list[Row]:
    """Return the custody entries: three boxes came in at Singapore's gate (offset 0 of their logs) and were granted to
    the ship (offset 1).
    """
    found = [_grant(log, box, 0, None, "singapore", "GTIN", at(1, 8)) for box, log in _ABOARD]
    found += [_grant(log, box, 1, "singapore", "duck-star", "LOAD", _LOADED) for box, log in _ABOARD]
    found.append(_grant("containers", ON_DOCK, 0, None, "tokyo", "GTIN", at(4)))
    return [
        {"log": f"custody.{entry.granted_by}", "log_offset": offset, "entry_log": entry.log, "payload": encode(entry)}
        for offset, entry in enumerate(found)
    ]


def _grant(
    stream: str, box: str, offset: int, holder: str | None, to: str, event: Any, moment: dt.datetime
) -> CustodyEntry:
    return CustodyEntry(
        log=f"{stream}.{box}", term=offset + 1, marker_offset=offset, from_site=holder, to_site=to, event=event,
        event_id=f"{event}-{box}", event_date_time=moment, granted_date_time=moment, granted_by=holder or to,
        marker_batch=b"",
    )  # fmt: skip


def _events() -> list[Row]:
    found: list[Row] = [
        _call("ARRI", "singapore", "SGSIN", SHIP, at(1, 2)),
        _call("DEPA", "singapore", "SGSIN", SHIP, SAILED),
        _call("ARRI", "tokyo", "JPTYO", OTHER_SHIP, dt.datetime(2026, 2, 10, tzinfo=dt.UTC)),
        _call("DEPA", "tokyo", "JPTYO", OTHER_SHIP, dt.datetime(2026, 2, 15, tzinfo=dt.UTC)),
        _call("ARRI", "sydney", "AUSYD", OTHER_SHIP, at(1, 3)),
        _move("GTIN", "tokyo", "JPTYO", ON_DOCK, at(4)),
        _call("ARRI", "singapore", "JPTYO", SHIP, at(9))
        | {"event_classifier_code": "PLN", "event_created_date_time": SAILED, "voyage_reference": "002"},
    ]
    for box, _ in _ABOARD:
        found.append(_move("GTIN", "singapore", "SGSIN", box, at(1, 8)))
        found.append(_move("LOAD", "singapore", "SGSIN", box, _LOADED) | {"vessel_imo_number": SHIP})
    return [row | {"log_offset": offset} for offset, row in enumerate(found)]


def _call(code: str, site: str, port: str, imo: str, moment: dt.datetime) -> Row:
    return {"log": f"events.{site}", "event_id": f"{code}-{port}-{imo}", "event_type": "TRANSPORT", "publisher": site,
            "transport_event_type_code": code, "un_location_code": port, "vessel_imo_number": imo,
            "event_date_time": moment, "event_created_date_time": moment}  # fmt: skip


def _move(code: str, site: str, port: str, box: str, moment: dt.datetime) -> Row:
    return {"log": f"events.{site}", "event_id": f"{code}-{box}", "event_type": "EQUIPMENT", "publisher": site,
            "equipment_event_type_code": code, "un_location_code": port, "equipment_reference": box,
            "event_date_time": moment, "event_created_date_time": moment}  # fmt: skip


def _alerts() -> list[Row]:
    """Return the alerts on board: power lost, cleared when it was back, and a door that is still open and acknowledged.

    The first reading that caused the power alert was stored; the second has not come ashore.
    """
    sequence = round((UNPOWERED - SAILED) / _INTERVAL)
    stored = next(row for row in _readings(WARM, 2.0) if row["sequence"] == sequence)
    causes = [
        {"log": stored["log"], "offset": stored["log_offset"], "deviceId": stored["device_id"], "bootId": 1,
         "sequence": sequence},
        {"log": stored["log"], "offset": -1, "deviceId": stored["device_id"], "bootId": 1, "sequence": 99_999},
    ]  # fmt: skip
    states = (("OPENED", UNPOWERED), ("CLEARED", POWERED))
    door = {
        "log": "alerts.duck-star",
        "log_offset": 9,
        "alert_id": "door-1",
        "kind": "DOOR_OPEN",
        "state": "OPENED",
        "severity": "WARNING",
        "revision": 0,
        "equipment_reference": WARM,
        "raised_at": "duck-star",
        "event_date_time": at(4, 6),
        "raised_date_time": at(4, 6),
        "vessel_imo_number": SHIP,
        "latitude": 11.0,
        "longitude": 114.0,
        "causes": "[]",
    }
    missed = door | {
        "log_offset": 10,
        "alert_id": "missed-1",
        "kind": NOT_HEARD,
        "severity": "ALARM",
        "equipment_reference": NEVER_HEARD,
        "event_date_time": at(2, 12),
        "raised_date_time": at(2, 12),
        "evidence": json.dumps(
            [{"name": "roll-call", "weight": 1.0, "detail": "not heard since duck-star left SGSIN"},
             {"name": LEFT_PORT, "weight": 0.0, "detail": "SGSIN"}]
        ),
    }  # fmt: skip
    seen = {**door, "log_offset": 11, "state": "UPDATED", "revision": 1, "acknowledged_by": "anna",
            "acknowledged_date_time": at(4, 7)}  # fmt: skip
    return [
        door,
        missed,
        seen,
        *(
        {"log": "alerts.duck-star", "log_offset": i + 1, "alert_id": "power-1", "kind": "POWER_LOST",
         "severity": "ALARM", "state": state, "revision": i, "equipment_reference": WARM, "raised_at": "duck-star",
         "event_date_time": moment, "raised_date_time": moment, "vessel_imo_number": SHIP,
         "causes": json.dumps(causes if state == "OPENED" else [])}
        for i, (state, moment) in enumerate(states)
        ),
    ]  # fmt: skip
