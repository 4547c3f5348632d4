"""A port authority's feed: movements of all lines at its port, each once, and no cargo detail."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from fairlead.kafka.protocol.record import Record
from shore.feeds.readers import FeedReader
from shore.jobs.entitlement import all_touched, entitled
from shore.paths import TablePaths
from shore.tables import TABLES
from shore.tables.reference import OWNERS, SITES
from tests.support.feeds import followed, value_of
from tests.unit.shore.feeds.histories import T0, World

PORT = "port-authority"


def world() -> World:
    sites = [
        {"site": "singapore", "kind": "port", "un_location_code": "SGSIN"},
        {"site": "duck-star", "kind": "ship", "title": "MV Duck Star", "vessel_imo_number": "9074729"},
    ]
    owners = [{"owner_code": "YELU", "stream": "yellow", "line": "Yellow Box Leasing"}]
    return World(
        readers=(FeedReader("ducks"), FeedReader(PORT, "movements", "SGSIN")),
        feeds={"ducks": [], PORT: []},
        names={
            "sites": pa.Table.from_pylist(sites, schema=SITES.plain_schema),
            "owners": pa.Table.from_pylist(owners, schema=OWNERS.plain_schema),
        },
    )


def event(into: World, identity: str, hour: int, *, log: str = "events.tokyo", created: int = 0, **more: Any) -> None:
    """An event as table ``events`` has it, and that it is new."""
    offset = len(into.tables["events"])
    row: dict[str, Any] = {"log": log, "log_offset": offset, "event_id": identity, "un_location_code": "SGSIN"}
    row |= {
        "event_date_time": T0 + dt.timedelta(hours=hour),
        "event_created_date_time": T0 + dt.timedelta(days=created),
    }
    row |= {"vessel_imo_number": "9074729", "booking_reference": "BKG1", "payload": b"secret"} | more
    into.tables["events"].append(row)
    into.touched.append({"equipment_reference": row.get("equipment_reference"), "log": log, "first_offset": offset})


def given(into: World) -> list[Record]:
    before = len(into.feeds[PORT])
    into.deliver(None)
    return into.feeds[PORT][before:]


def test_ships_and_boxes_of_all_lines_at_the_port_and_nowhere_else() -> None:
    port = world()
    event(port, "a", 1, transport_event_type_code="ARRI")
    event(port, "b/1", 2, equipment_event_type_code="DISC", equipment_reference="YELU0000014", voyage_reference="V1")
    event(port, "c", 3, equipment_event_type_code="LOAD", equipment_reference="XXXU0000010", un_location_code="JPTYO")
    event(port, "d", 4, equipment_event_type_code="GTIN", equipment_reference="XXXU0000010", vessel_imo_number=None)
    arrived, unloaded, came = given(port)
    assert arrived.key == b"9074729"
    assert value_of(arrived) == {
        "kind": "movement",
        "eventID": "a",
        "transportEventTypeCode": "ARRI",
        "eventDateTime": "2026-03-01T01:00:00Z",
        "UNLocationCode": "SGSIN",
        "vesselIMONumber": "9074729",
        "vessel": "MV Duck Star",
        "revision": 0,
    }
    assert value_of(unloaded) == {
        "kind": "movement",
        "eventID": "b/1",
        "equipmentEventTypeCode": "DISC",
        "eventDateTime": "2026-03-01T02:00:00Z",
        "UNLocationCode": "SGSIN",
        "vesselIMONumber": "9074729",
        "vessel": "MV Duck Star",
        "voyageReference": "V1",
        "equipmentReference": "YELU0000014",
        "line": "Yellow Box Leasing",
        "revision": 0,
    }
    assert (came.key, value_of(came)["equipmentEventTypeCode"]) == (b"XXXU0000010", "GTIN")
    assert port.feeds["ducks"] == []
    assert given(port) == []


def test_an_event_that_comes_again_is_told_once_unless_an_earlier_copy_says_something_else() -> None:
    port = world()
    event(port, "a", 1, created=1, transport_event_type_code="ARRI")
    assert len(given(port)) == 1
    event(port, "a", 1, created=2, log="events.sydney", transport_event_type_code="ARRI")
    assert given(port) == []
    event(port, "a", 2, created=0, log="events.duck-star", transport_event_type_code="ARRI")
    (corrected,) = given(port)
    assert (value_of(corrected)["eventDateTime"], value_of(corrected)["revision"]) == ("2026-03-01T02:00:00Z", 1)
    event(port, "a", 2, created=-1, un_location_code="JPTYO", transport_event_type_code="ARRI")
    assert "retracts" in value_of(given(port)[0])
    assert followed(port.feeds[PORT]) == []


def test_a_port_authority_sees_nothing_of_a_booked_containers_readings() -> None:
    port = world()
    box = {"equipment_reference": "YELU0000014", "log": "containers.YELU0000014", "log_offset": 1, "payload": b"{}"}
    port.tables["readings"].append(box | {"device_date_time": T0})
    change = {"booking_reference": "B1", "customer": PORT, "equipment_reference": "YELU0000014", "status": "CONFIRMED"}
    port.tables["booking_changes"].append({"log": "bookings.hq", "log_offset": 1, "valid_from": T0} | change)
    port.touched.append({"equipment_reference": "YELU0000014", "log": None, "first_offset": None})
    assert given(port) == []


def test_a_new_port_authority_gets_all_that_the_tables_have(tmp_path: Path) -> None:
    paths, port = TablePaths.of(tmp_path), world()
    event(port, "a", 1, transport_event_type_code="ARRI")
    event(port, "b", 2, transport_event_type_code="ARRI", un_location_code="JPTYO")
    for name, table in TABLES.items():
        table.create(paths.table(name))
    rows = pa.Table.from_pylist(port.tables["events"], schema=TABLES["events"].plain_schema)
    write_deltalake(paths.table("events"), rows, mode="append")
    found = entitled(paths, port.readers, all_touched(paths), limit=10).to_pylist()
    assert [(row["customer"], row["log"], row["revision"]) for row in found] == [(PORT, "movements/a", 0)]
