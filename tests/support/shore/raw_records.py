"""One record for each table of operations, raw rows of records, and the ledger entries of one voyage."""

from __future__ import annotations

import datetime as dt

import msgspec
import pyarrow as pa
from deltalake import write_deltalake

from fairlead.records import encode
from fairlead.records.alert import Alert, Evidence
from fairlead.records.booking import Booking
from fairlead.records.custody import CustodyEntry, LedgerEntry
from fairlead.records.digest import Digest, DigestBox, encode_digest
from fairlead.records.event import Event, EventMetadata, EventPayload
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Environment, Position
from shore.paths import TablePaths
from shore.source.operations import rows_of
from shore.tables.model import TIME
from shore.tables.operations import CUSTODY_ENTRIES, OPERATIONS
from tests.support.delta_rs import append_once
from tests.support.ledgers import entry
from tests.support.oracle import custody

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BY_NAME = {operation.table.name: operation for operation in OPERATIONS}
BOX = "BIGU0000016"


def raw(*records: tuple[str, msgspec.Struct | bytes]) -> pa.Table:
    """Return rows as source ``fairlead`` gives them, from topic and value of each record."""
    return pa.table(
        {
            "topic": [topic for topic, _ in records],
            "offset": pa.array(range(1, len(records) + 1), pa.int64()),
            "term": pa.array([1] * len(records), pa.int32()),
            "timestamp": pa.array([T] * len(records), TIME),
            "value": [value if isinstance(value, bytes) else encode(value) for _, value in records],
        }
    )


RECORDS: tuple[tuple[str, msgspec.Struct | bytes], ...] = (
    (
        "alerts.tokyo",
        Alert(
            alert_id="a1",
            kind="OVERBOARD",
            severity="CRITICAL",
            state="OPENED",
            equipment_reference=BOX,
            raised_at="tokyo",
            event_date_time=T,
            raised_date_time=T,
            geo_location=GeoLocation(latitude=1.5, longitude=2.5),
            evidence=(Evidence(name="immersed", weight=0.5),),
        ),
    ),
    (
        "events.tokyo",
        Event(
            metadata=EventMetadata(
                event_id="e1", event_created_date_time=T, event_type="EQUIPMENT", publisher="terminal"
            ),
            payload=EventPayload(
                event_date_time=T, equipment_event_type_code="LOAD", equipment_reference=BOX, un_location_code="JPTYO"
            ),
        ),
    ),
    (
        "ships.9074729.location",
        Position(
            vessel_imo_number="9074729",
            device=Device(device_id="d", boot_id=1, sequence=1, device_date_time=T),
            heading=90,
        ),
    ),
    (
        "ships.9074729.environment",
        Environment(
            vessel_imo_number="9074729",
            device=Device(device_id="d", boot_id=1, sequence=1, device_date_time=T),
            wind_speed=7.5,
        ),
    ),
    ("bookings.hq", Booking(booking_reference="B1", customer="ducks", equipment_reference=BOX, valid_from=T)),
    (
        "custody.tokyo",
        CustodyEntry(
            log=f"containers.{BOX}",
            term=2,
            marker_offset=10,
            from_site="tokyo",
            to_site="duck-star",
            event="LOAD",
            event_id="e1",
            event_date_time=T,
            granted_date_time=T,
            granted_by="tokyo",
            marker_batch=b"xyz",
        ),
    ),
    (
        "ships.9074729.digest",
        encode_digest(
            Digest(
                vessel_imo_number="9074729",
                as_of_date_time=T,
                whole=True,
                boxes=(DigestBox(equipment_reference=BOX, reading_date_time=T, supply_temperature=4.25, in_band=True),),
            )
        ),
    ),
)
LEDGERS = next(operation for operation in OPERATIONS if operation.table is CUSTODY_ENTRIES)
VOYAGE = [entry(1, 0, "tokyo", "GTIN"), entry(2, 10, "star", "LOAD"), entry(3, 20, None, "GTOT")]


def make_custody(paths: TablePaths) -> None:
    """Recompute table ``custody`` without Spark."""
    write_deltalake(paths.table("custody"), custody.everything(paths), mode="overwrite")


def store(paths: TablePaths, batch: int, *entries: LedgerEntry | bytes) -> None:
    """Append entries of a ledger, and recompute table ``custody`` from all of them."""
    rows = rows_of(LEDGERS, raw(*(("custody.tokyo", each) for each in entries)))
    append_once(paths.table("custody_entries"), rows, app="test", version=batch)
    make_custody(paths)
