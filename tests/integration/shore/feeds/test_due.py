"""What a batch makes due where the rules for ledger entries, or the retention of digests, decide."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fairlead.records import encode
from fairlead.records.custody import CustodyEntry
from shore.feeds import look as looking
from shore.feeds.entitlement import customer_rows, due, order_of_feeds
from shore.feeds.kinds import Ledgers
from shore.feeds.look import AtSea, keys_of, look_of
from shore.feeds.periods import periods
from shore.feeds.readers import FeedReader
from shore.tables import TABLES
from shore.tables.model import LAST
from tests.integration.shore.feeds.scenarios import INPUTS, changed, hours, spark_inputs
from tests.support.honest_ledgers import grant
from topologies.model import Grain

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

BOX: Final = "BIGU0000016"
LOG: Final = f"containers.{BOX}"
Rows = Mapping[str, Sequence[Mapping[str, Any]]]
RULES: Final = ({"tokyo": "port", "singapore": "port", "star": "ship"}, {"BIGU": "containers"})
BOOKED: Final = {"log": "bookings.hq", "log_offset": 1, "booking_reference": "B1", "customer": "ducks"} | {
    "equipment_reference": BOX, "status": "CONFIRMED", "valid_from": hours(0), "valid_to": hours(100),
}  # fmt: skip


def lacking(
    spark: SparkSession,
    rows: Rows,
    changes: Sequence[Mapping[str, Any]],
    ledgers: Ledgers | None = None,
    digests_since: dt.datetime | None = None,
    grain: Grain = "detailed",
) -> list[dict[str, Any]]:
    """Return the rows that a batch of changes makes due to customer ducks."""
    tables = {
        name: pa.Table.from_pylist(list(rows.get(name, ())), schema=TABLES[name].plain_schema)
        for name in (*INPUTS, "feeds")
    }
    inputs = spark_inputs(spark, tables)
    readers = [FeedReader("ducks", grain)]
    held = periods(inputs["bookings"], customer_rows(spark, readers))
    batch = changed(spark, changes)
    at_sea = AtSea.of(inputs["feeds"]).times
    look = look_of(batch, keys_of(batch), inputs, held, {grain}, ledgers, at_sea)
    kept = {} if digests_since is None else {"digests": digests_since}
    ordered = due(inputs, readers, held, look, kept).orderBy(*order_of_feeds())
    found: list[dict[str, Any]] = ordered.toArrow().to_pylist()
    return found


def brief(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, bool]]:
    """Return of each row its log, its offset, and whether it is taken back."""
    return [(row["log"], row["log_offset"], row["retracts"] is not None) for row in rows]


def given(log: str, offset: int, hour: float, feed_offset: int, box: str = BOX) -> dict[str, Any]:
    row = {"customer": "ducks", "feed_offset": feed_offset, "log": log, "log_offset": offset, "retracts": False}
    made = {"revision": 0, "digest": "d"} if "/" in log else {}
    return row | {"equipment_reference": box, "device_date_time": hours(hour)} | made


def test_an_entry_that_comes_late_decides_about_grants_that_were_there(spark: SparkSession) -> None:
    def entry(site: str, offset: int, term: int, to: str) -> dict[str, Any]:
        told: CustodyEntry = grant(site, LOG, term, to, event_date_time=hours(term))
        row = {"log": f"custody.{site}", "log_offset": offset, "payload": encode(told), "entry_type": "grant"}
        return row | {"entry_log": LOG, "event_date_time": told.event_date_time}

    def batch(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        change = {"kind": "custody", "equipment_reference": BOX, "device_date_time": row["event_date_time"]}
        return [change | {"late": False} | {name: row[name] for name in ("log", "log_offset", "payload")}]

    opened, waits = entry("tokyo", 1, 1, "tokyo"), entry("star", 1, 3, "singapore")
    doubted, loaded = entry("singapore", 1, 3, "star"), entry("tokyo", 2, 2, "star")
    rows = {"booking_changes": [BOOKED], "custody_entries": [opened, waits, doubted]}
    assert brief(lacking(spark, rows, batch(doubted), RULES)) == [
        ("custody.singapore", 1, False), ("custody.tokyo", 1, False),
    ]  # fmt: skip
    rows["custody_entries"].append(loaded)
    rows["feeds"] = [given("custody.singapore", 1, 3, 0), given("custody.tokyo", 1, 1, 1)]
    assert brief(lacking(spark, rows, batch(loaded), RULES)) == [
        ("custody.singapore", 1, True), ("custody.star", 1, False), ("custody.tokyo", 2, False),
    ]  # fmt: skip


def test_a_digest_stays_that_retention_has_deleted_and_no_reading_has_reached(spark: SparkSession) -> None:
    def reading(hour: float) -> dict[str, Any]:
        times = {"device_date_time": hours(hour), "received_date_time": hours(hour + 1)}
        return {"log": LOG, "log_offset": 1, "equipment_reference": BOX, "payload": b"", "late": False} | times

    def batch(kind: str, hour: float | None = None) -> list[dict[str, Any]]:
        return [{"kind": kind, "equipment_reference": BOX, "device_date_time": None if hour is None else hours(hour)}]

    standing = ("digests/" + BOX, 0, True)
    rows: dict[str, Any] = {"booking_changes": [BOOKED], "feeds": [given("digests/" + BOX, 0, 10, 0)]}
    assert brief(lacking(spark, rows, batch("bookings"), None, hours(10))) == [standing], "its row would be there"
    assert brief(lacking(spark, rows, batch("bookings"), None, hours(11))) == []
    rows["readings"] = [reading(9)]
    rows["feeds"].append(given(LOG, 1, 9, 1))
    assert brief(lacking(spark, rows, batch("bookings"), None, hours(11))) == []
    said = {"equipment_reference": BOX, "reading_date_time": hours(12)}
    digest = {"log": "ships.1.digest", "log_offset": 9, "vessel_imo_number": "1", "as_of_date_time": hours(13)}
    newer = rows | {"digests": [digest | {"boxes": [said]}]}
    assert brief(lacking(spark, newer, batch("digests", 12), None, hours(11))) == [("digests/" + BOX, 0, False)]
    ended = rows | {"booking_changes": [BOOKED | {"valid_to": hours(10)}]}
    assert brief(lacking(spark, ended, batch("bookings"), None, hours(11))) == [standing], "the customer may not see it"
    rows["readings"] = [reading(10)]
    rows["feeds"][1] = given(LOG, 1, 10, 1)
    came = [reading(10) | {"kind": "readings"}]
    assert brief(lacking(spark, rows, came, None, hours(11))) == [standing], "a reading has reached it"


def test_a_digest_counts_whose_ship_has_a_clock_behind_that_of_a_box(spark: SparkSession) -> None:
    """A ship's clock is the time of its newest position, and the reading of a box may be newer."""
    said = {"equipment_reference": BOX, "reading_date_time": hours(12)}
    digest = {"log": "ships.1.digest", "log_offset": 1, "vessel_imo_number": "1", "as_of_date_time": hours(11.5)}
    rows: Rows = {"booking_changes": [BOOKED], "digests": [digest | {"boxes": [said]}]}
    change = {"kind": "digests", "equipment_reference": BOX, "device_date_time": hours(12)}
    assert brief(lacking(spark, rows, [change])) == [("digests/" + BOX, 0, False)]


def test_many_changed_bookings_take_no_hours_from_a_container_whose_name_is_between_theirs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MOST_LITERALS", 1)
    before, between, after = "BIGU0000016", "BIGU0000021", "BIGU0000037"
    booked = [BOOKED | {"log_offset": at, "booking_reference": f"B{at}"} for at in (1, 2, 3)]
    booked = [row | {"equipment_reference": box} for row, box in zip(booked, (before, between, after), strict=True)]
    read = [
        {"log": f"containers.{between}", "log_offset": at, "equipment_reference": between, "late": False}
        | {"device_date_time": hours(hour), "device_id": "d", "boot_id": 1, "sequence": at, "payload": b"{}"}
        for at, hour in enumerate((1, 2, 5))
    ]
    begin = int(hours(0).timestamp()) // 3600
    rows = {
        "booking_changes": booked,
        "readings": read,
        "feeds": [given(f"hours/{between}", begin + 1, 1, 0, between)],
    }
    changes = [{"kind": "bookings", "equipment_reference": box} for box in (before, after)]
    new = {name: read[-1][name] for name in ("log", "log_offset", "equipment_reference", "device_date_time", "late")}
    assert brief(lacking(spark, rows, [*changes, {"kind": "readings", **new}], grain="coarse")) == [
        (f"hours/{between}", begin + 2, False)
    ]


def test_a_milestone_that_names_no_port_has_that_of_the_site_that_published_it(spark: SparkSession) -> None:
    told = {"log_offset": 1, "event_id": "e", "event_date_time": hours(1), "equipment_event_type_code": "GTIN"}
    rows: Rows = {
        "booking_changes": [BOOKED],
        "sites": [{"site": "tokyo", "kind": "port", "un_location_code": "JPTYO"}],
        "events": [told | {"log": "events.tokyo", "equipment_reference": BOX}],
    }
    (row,) = lacking(spark, rows, [{"kind": "events", "equipment_reference": BOX, "event_id": "e"}], grain="coarse")
    assert json.loads(row["payload"])["UNLocationCode"] == "JPTYO"


def test_a_reading_beyond_the_calendar_is_delivered_with_a_time_within_it(spark: SparkSession) -> None:
    def reading(offset: int, time: Any) -> dict[str, Any]:
        row = {"log": LOG, "log_offset": offset, "equipment_reference": BOX, "payload": b"", "late": False}
        return row | {"device_date_time": time}

    rows = {"booking_changes": [BOOKED | {"valid_to": None}], "readings": [reading(1, 2**60), reading(2, -(2**60))]}
    news = [row | {"kind": "readings"} for row in rows["readings"]]
    assert brief(lacking(spark, rows, news)) == [(LOG, 1, False)]
    assert brief(lacking(spark, rows, [{"kind": "bookings", "equipment_reference": BOX}])) == [(LOG, 1, False)]
    delivered = given(LOG, 1, 0, 0) | {"device_date_time": LAST.replace(microsecond=999_000)}  # feeds have milliseconds
    assert brief(lacking(spark, rows | {"feeds": [delivered]}, news)) == []


@pytest.mark.parametrize("grain", ["detailed", "coarse", "alerts"])
def test_an_alert_that_cannot_be_read_is_due_to_nobody(spark: SparkSession, grain: Grain) -> None:
    """It has neither container nor time, and may be all that a batch has."""
    damaged = {"log": "alerts.star", "log_offset": 1, "payload": b"?"}
    rows: Rows = {"booking_changes": [BOOKED], "alerts": [damaged | {"problem": "no JSON"}]}
    assert lacking(spark, rows, [damaged | {"kind": "alerts", "late": False}], grain=grain) == []
