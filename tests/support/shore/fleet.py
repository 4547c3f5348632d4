"""Log tables filled without Kafka or Spark, batch by batch, and the tables that follow from them."""

from __future__ import annotations

import atexit
import datetime as dt
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from fairlead.records import encode
from fairlead.records.custody import CustodyEntry, LedgerEntry
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.delta_rs import create, refresh
from tests.support.ledgers import entry
from tests.support.oracle import bookings, dock_movements, milestones, now, schedules, ships
from topologies.model import (
    DEFAULT_STREAMS,
    Customer,
    Geofence,
    InsertPoint,
    Place,
    Shore,
    Site,
    SiteKind,
    Stream,
    Topology,
)

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
BOX, OTHER, YELLOW, STRANGER = "BIGU0000016", "BIGU0000021", "YELU0000013", "ZZZU0000010"
STAR, MARLIN = "9074729", "9321483"
TOKYO, SINGAPORE = (35.6492, 139.7916), (1.2392, 103.8325)

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

INPUTS = (
    "readings",
    "readings_rejected",
    "alerts",
    "alerts_ashore",
    "events",
    "positions",
    "digests",
    "booking_changes",
    "custody_entries",
)
DERIVED = {
    "bookings": bookings.everything,
    "milestones": milestones.everything,
    "shipments": milestones.shipments,
    "schedules": schedules.everything,
    "dock_movements": dock_movements.everything,
    "port_calls": ships.port_calls,
    "voyages": ships.voyages,
    "containers_now": now.containers_now,
    "quality": now.quality,
}
"""Tables that readers' tests need, in the order in which they follow from each other; each batch recomputes them."""


def at(hours: float) -> dt.datetime:
    return T0 + hours * HOUR


def topology() -> Topology:
    return Topology(
        name="fleet",
        sites={
            "tokyo": Site(kind=SiteKind.PORT, title="Port of Tokyo", unlocode="JPTYO"),
            "singapore": Site(kind=SiteKind.PORT, unlocode="SGSIN"),
            "star": Site(kind=SiteKind.SHIP, title="MV Duck Star", imo=STAR),
            "marlin": Site(kind=SiteKind.SHIP, title="MV Blue Marlin", imo=MARLIN),
        },
        streams=DEFAULT_STREAMS
        | {
            "containers": Stream(title="Our own", insert_point=InsertPoint.MOVES, owners=("BIGU",)),
            "yellow": Stream(insert_point=InsertPoint.MOVES, owners=("YELU",)),
        },
        customers={"yellow": Customer(title="Yellow Box Leasing"), "ducks": Customer(feed_at="tokyo")},
        shore=Shore(at="tokyo"),
        geofences={
            "tokyo-bay": Geofence(at=Place(latitude=35.5, longitude=139.8), within_km=30),
            "high-sea": Geofence(at=Place(latitude=22.0, longitude=122.0), within_km=100),
        },
    )


@cache
def _empty() -> Path:
    """Create the tables without rows; tests copy them, because creating takes far longer."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    paths = TablePaths.of(folder)
    for name in (*INPUTS, *DERIVED, "sites", "owners", "geofences"):
        create(TABLES[name], paths.table(name))
    refresh(paths, topology())
    return folder


class Fleet:
    """Tables in a folder. ``add`` appends a batch of records and recomputes the derived tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = TablePaths.of(folder)
        shutil.copytree(_empty() / "delta", folder / "delta")

    def append(self, rows: Rows) -> None:
        for name, found in rows.items():
            content = pa.Table.from_pylist([dict(row) for row in found], schema=TABLES[name].plain_schema)
            write_deltalake(self.paths.table(name), content, mode="append")

    def add(self, **rows: Sequence[Mapping[str, Any]]) -> None:
        self.append(rows)
        for name, everything in DERIVED.items():
            write_deltalake(self.paths.table(name), everything(self.paths), mode="overwrite")

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Return rows by key: values of one column, tuples of several, or whole rows as dictionaries."""
        key = [(name, "ascending") for name in TABLES[table].key]
        stored = DeltaTable(self.paths.table(table)).to_pyarrow_dataset().to_table()
        found: list[Any] = stored.sort_by(key).to_pylist()
        if not columns:
            return found
        return [row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in found]

    def now(self, box: str = BOX) -> dict[str, Any]:
        (found,) = (row for row in self.rows("containers_now") if row["equipment_reference"] == box)
        return dict(found)


def merged(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for table, row in rows:
        found.setdefault(table, []).append(row)
    return found


# -- rows as the logs' jobs write them


def reading(offset: int, hours: float, box: str = BOX, **more: Any) -> dict[str, Any]:
    return {
        "log": f"containers.{box}",
        "log_offset": offset,
        "equipment_reference": box,
        "device_id": f"dev-{box}",
        "boot_id": 1,
        "sequence": offset,
        "device_date_time": at(hours),
        "received_date_time": at(hours) + dt.timedelta(seconds=2),
        "supply_temperature": float(offset),
        "late": False,
    } | more


def event(
    offset: int, hours: float, code: str, box: str | None = BOX, site: str = "tokyo", **more: Any
) -> dict[str, Any]:
    kind = "transport_event_type_code" if code in ("ARRI", "DEPA") else "equipment_event_type_code"
    return {
        "log": f"events.{site}",
        "log_offset": offset,
        "event_id": f"{code}-{hours}-{box}",
        "event_type": "TRANSPORT" if code in ("ARRI", "DEPA") else "EQUIPMENT",
        "publisher": site,
        "event_created_date_time": at(hours),
        "event_date_time": at(hours),
        kind: code,
        "equipment_reference": box,
        "un_location_code": {"tokyo": "JPTYO", "singapore": "SGSIN"}.get(site),
        "booking_reference": "B1",
    } | more


def docked(offset: int, hours: float, code: str, site: str = "tokyo", ship: str = STAR, **more: Any) -> dict[str, Any]:
    """Return a ship's ARRI or DEPA."""
    event_id = f"{code}-{hours}-{ship}"
    found = event(offset, hours, code, None, site, event_id=event_id, vessel_imo_number=ship, voyage_reference="V1")
    return found | more


def scheduled(
    offset: int, written: float, expected: float, code: str = "ARRI", site: str = "singapore", **more: Any
) -> dict[str, Any]:
    """Return an estimate of a ship's ARRI or DEPA at hour ``expected``, written down at hour ``written``."""
    found = docked(offset, expected, code, site, event_id=f"EST-{code}-{site}-{written}")
    return found | {"event_classifier_code": "EST", "event_created_date_time": at(written)} | more


def position(
    offset: int, hours: float, place: tuple[float, float], speed: float = 14.0, ship: str = STAR, **more: Any
) -> dict[str, Any]:
    return {
        "log": f"ships.{ship}.location",
        "log_offset": offset,
        "vessel_imo_number": ship,
        "device_date_time": at(hours),
        "latitude": place[0],
        "longitude": place[1],
        "speed_over_ground": speed,
        "navigation_status": 5 if speed == 0 else 0,
    } | more


def digest(
    offset: int, hours: float, *boxes: tuple[str, float, float], ship: str = STAR, **more: Any
) -> dict[str, Any]:
    """Return a ship's digest; of each box its number, when it was read, and the temperature of its supply air.
    ``more`` is said of each."""
    plain = {"is_connected_to_power_source": True, "is_powered": True, "open_alerts": 0}
    return {
        "log": f"ships.{ship}.digest",
        "log_offset": offset,
        "vessel_imo_number": ship,
        "as_of_date_time": at(hours),
        "boxes": [
            {"equipment_reference": box, "reading_date_time": at(read), "supply_temperature": supply} | plain | more
            for box, read, supply in boxes
        ],
    }


def change(offset: int, hours: float, site: str = "hq", **more: Any) -> dict[str, Any]:
    """Return a change of a booking, recorded at ``hours``."""
    return {
        "log": f"bookings.{site}",
        "log_offset": offset,
        "booking_reference": "B1",
        "customer": "ducks",
        "equipment_reference": BOX,
        "status": "CONFIRMED",
        "commodity": "toy-ducks",
        "setpoint_temperature": 4.0,
        "port_of_loading": "JPTYO",
        "port_of_discharge": "SGSIN",
        "valid_from": at(0),
        "record_date_time": at(hours),
    } | more


def alert(offset: int, hours: float, state: str = "OPENED", alert_id: str = "a1", **more: Any) -> dict[str, Any]:
    return {
        "log": "alerts.star",
        "log_offset": offset,
        "alert_id": alert_id,
        "kind": "POWER_LOST",
        "severity": "ALARM",
        "state": state,
        "revision": 0 if state == "OPENED" else 1,
        "equipment_reference": BOX,
        "event_date_time": at(hours),
    } | more


def ledger(offset: int, entry: LedgerEntry) -> dict[str, Any]:
    """Return the row of an entry in the ledger of the site that wrote it."""
    if isinstance(entry, CustodyEntry):
        site, entry = entry.granted_by, msgspec.structs.replace(entry, marker_batch=b"")
    else:
        site = "tokyo"
    return {"log": f"custody.{site}", "log_offset": offset, "entry_log": entry.log, "payload": encode(entry)}


def story() -> list[tuple[str, dict[str, Any]]]:
    """Return a ship's voyage with a box, another ship, two offices and an alert, with ties and contradictions."""
    return [
        *(("booking_changes", row) for row in (change(1, 0), change(2, 5), change(3, 9, status="COMPLETED"))),
        ("booking_changes", change(1, 5, "tokyo", customer="toyshop")),
        *(("events", docked(i, hours, code)) for i, hours, code in ((1, 0, "ARRI"), (2, 10, "DEPA"), (3, 11, "DEPA"))),
        ("events", docked(1, 0, "ARRI") | {"log": "events.star", "event_date_time": at(0.5)}),
        ("events", docked(4, 60, "ARRI", "singapore")),
        ("events", docked(5, 30, "DEPA", ship=MARLIN)),
        ("events", event(6, 2, "LOAD")),
        *(("positions", position(i, 10 + 3 * i, (35.0 - 2 * i, 139.0 - 2 * i))) for i in range(1, 12)),
        *(("positions", position(20 + i, 30 + i, SINGAPORE, 0.0)) for i in range(2)),
        *(("positions", position(i, 26 + i, TOKYO, 0.0, MARLIN)) for i in range(3)),
        *(("readings", reading(i, i / 2)) for i in range(4)),
        ("readings", reading(7, 0.5, sequence=1)),
        ("readings", reading(8, 26, boot_id=2)),
        ("readings", reading(1, 3, OTHER, latitude=1.0, longitude=2.0)),
        *(("alerts", row) for row in (alert(1, 1), alert(2, 2, "CLEARED"), alert(3, 2, alert_id="a2"))),
        *(
            ("custody_entries", ledger(i, each))
            for i, each in enumerate((entry(1, 0, "tokyo", "GTIN"), entry(2, 7, "star", "LOAD")))
        ),
    ]
