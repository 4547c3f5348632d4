"""Jobs ``containers_now``, ``alerts_now`` and ``quality``: what their tables contain, however the input is batched."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from shore.alerts.machine import advance
from shore.delta.lake import Lake
from shore.jobs import scope
from shore.jobs.quality import MOST_SPANS, spans
from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.repair.backfill import recompute
from shore.tables.alerts_ashore import table_of
from shore.tables.graph import BY_NAME
from tests.integration.shore.lake import Tables, empty_tables
from tests.integration.shore.readings import undo_commit
from tests.support.ledgers import entry
from tests.support.oracle import now as by_duckdb
from tests.support.shore import logs
from tests.support.shore.fleet import (
    BOX,
    MARLIN,
    OTHER,
    STAR,
    STRANGER,
    YELLOW,
    alert,
    at,
    change,
    digest,
    ledger,
    merged,
    position,
    reading,
    story,
    topology,
)
from topologies.model import Site, SiteKind

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

NAMES = ("containers_now", "alerts_now", "quality")
ORACLES = {
    "containers_now": by_duckdb.containers_now,
    "alerts_now": by_duckdb.alerts_now,
    "quality": by_duckdb.quality,
}
LOG = f"containers.{BOX}"
HELD: list[dict[str, Any]] = [
    ledger(1, entry(1, 0, "tokyo", "GTIN", event_date_time=at(0))),
    ledger(2, entry(2, 30, "star", "LOAD", event_date_time=at(2))),
    ledger(3, entry(3, 9000, "singapore", "DISC", by="star", event_date_time=at(100))),
]


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_tables(tmp_path_factory.mktemp("empty"), NAMES)


@pytest.fixture
def tables(spark: SparkSession, empty: Path, tmp_path: Path) -> Tables:
    return Tables(spark, tmp_path, empty, NAMES)


def now(tables: Tables, box: str = BOX) -> dict[str, Any]:
    (found,) = (row for row in tables.rows("containers_now") if row["equipment_reference"] == box)
    return dict(found)


def rejected(offset: int, hours: float, reason: str) -> dict[str, Any]:
    row = {"log": LOG, "log_offset": offset, "equipment_reference": BOX, "reason": reason}
    return row | {"received_date_time": at(hours)}


# -- containers_now


def test_the_state_of_a_box_follows_its_readings_and_its_holder(tables: Tables) -> None:
    tables.start("containers_now")
    tables.add(
        readings=[reading(1, 0), reading(3, 2), reading(2, 1), reading(1, 0, OTHER, latitude=5.0, longitude=6.0)]
    )
    assert (now(tables)["log_offset"], now(tables)["reading_date_time"]) == (3, at(2))
    tables.add(readings=[reading(4, 1.5, late=True)])
    assert now(tables)["log_offset"] == 3, "a reading that comes late is not the newest"
    tables.add(readings=[reading(9, 1000, received_date_time=at(1))])
    assert now(tables)["log_offset"] == 3, "a clock that is ahead counts as the moment of receipt"
    row = now(tables)
    assert (row["owner_code"], row["line"], row["holder"], row["open_alerts"]) == ("BIGU", "Our own", None, 0)

    loaded = entry(2, 7, "star", "LOAD")
    tables.add(
        custody_entries=[ledger(1, entry(1, 0, "tokyo", "GTIN")), ledger(2, loaded)],
        positions=[position(1, 1, (30.0, 140.0)), position(1, 9, (0.0, 0.0), ship=MARLIN)],
    )
    row = now(tables)
    assert (row["holder"], row["holder_kind"], row["vessel"], row["un_location_code"]) == (
        "star", "ship", "MV Duck Star", None,
    )  # fmt: skip
    assert (row["position_source"], row["latitude"], row["position_date_time"]) == ("SHIP", 30.0, at(1))
    assert (row["custody_event"], row["seen_date_time"]) == ("LOAD", loaded.event_date_time)
    tables.add(positions=[position(2, 2, (29.0, 139.0))])
    assert (now(tables)["latitude"], now(tables)["position_date_time"]) == (29.0, at(2)), "its ship has moved"
    assert now(tables, OTHER)["latitude"] == 5.0
    before = tables.versions()
    tables.add(positions=[position(3, 1.5, (28.0, 138.0)), position(2, 10, (1.0, 1.0), ship=MARLIN)])
    assert tables.versions() == before, "an older position, and a ship without boxes, change nothing"
    tables.add(readings=[reading(10, 30, latitude=1.0, longitude=2.0)])
    row = now(tables)
    assert (row["position_source"], row["latitude"], row["longitude"], row["holder"]) == ("OWN", 1.0, 2.0, "star")
    moves = [ledger(3, entry(3, 9, "tokyo", "DISC", by="star")), ledger(4, entry(4, 12, None, "GTOT"))]
    tables.add(custody_entries=moves, readings=[reading(11, 31)])
    row = now(tables)
    assert [row[name] for name in ("holder", "custody_event", "latitude", "vessel")] == [None, "GTOT", None, None]
    assert tables.differing({"containers_now": by_duckdb.containers_now}).keys() <= {"alerts_now", "quality"}


def test_what_a_digest_says_counts_until_the_reading_is_there(tables: Tables) -> None:
    tables.start("containers_now")
    loaded = ledger(2, entry(2, 7, "star", "LOAD", event_date_time=at(0.5)))
    tables.add(
        readings=[reading(1, 1, latitude=1.0, longitude=2.0), reading(1, 1, OTHER)],
        custody_entries=[ledger(1, entry(1, 0, "tokyo", "GTIN", event_date_time=at(0))), loaded],
        positions=[position(1, 2, (30.0, 140.0))],
    )
    said = digest(4, 3, (BOX, 2.5, 4.25), (STRANGER, 2.5, -18.5), in_band=False)
    tables.add(digests=[said, {"log": said["log"], "log_offset": 5, "problem": "damaged"}])
    row = now(tables)
    assert (row["reading_source"], row["reading_date_time"], row["supply_temperature"]) == ("DIGEST", at(2.5), 4.25)
    assert (row["in_band"], row["log"], row["log_offset"], row["device_id"]) == (False, said["log"], 4, None)
    assert (row["position_source"], row["latitude"]) == ("SHIP", 30.0), "a digest has no position of its own"
    assert now(tables, STRANGER)["supply_temperature"] == -18.5
    assert now(tables, OTHER)["reading_source"] == "READING", "the digest does not name it"
    tables.add(readings=[reading(2, 2, supply_temperature=9.0)])
    assert now(tables)["supply_temperature"] == 4.25, "the digest is newer"
    tables.add(readings=[reading(3, 2.5, supply_temperature=4.25, ambient_temperature=30.0)])
    row = now(tables)
    assert (row["reading_source"], row["log_offset"], row["ambient_temperature"]) == ("READING", 3, 30.0)
    assert row["in_band"] is None
    before = tables.rows("containers_now")
    tables.add(digests=[digest(6, 4, (BOX, 2.5, 7.0), (OTHER, 0.5, 7.0))])
    assert tables.rows("containers_now") == before, "a digest that comes after the bulk changes nothing"
    tables.add(digests=[digest(7, 5, (BOX, 4.5, 5.5))])
    assert (now(tables)["reading_source"], now(tables)["supply_temperature"]) == ("DIGEST", 5.5)
    assert tables.differing({"containers_now": by_duckdb.containers_now}).keys() <= {"alerts_now", "quality"}


@pytest.mark.chaos
def test_open_alerts_and_the_booking_of_a_box(tables: Tables) -> None:
    tables.start("containers_now")
    tables.add(readings=[reading(1, 2)], booking_changes=[change(1, 0), change(2, 0, booking_reference="B0")])
    assert (now(tables)["booking_reference"], now(tables)["customer"]) == ("B0", "ducks")
    tables.add(booking_changes=[change(3, 3, booking_reference="B0", status="CANCELLED")])
    assert now(tables)["booking_reference"] == "B1"
    ashore = {"alert_id": "s1", "revision": 0, "state": "OPENED", "severity": "WARNING", "condition_id": "a1"}
    tables.add(
        alerts=[alert(1, 1), alert(2, 1, alert_id="a2", severity="CRITICAL"), alert(5, 1, equipment_reference="")],
        alerts_ashore=[ashore | {"equipment_reference": BOX, "log": LOG, "log_offset": 1}],
    )
    row = now(tables)
    assert (row["open_alerts"], row["worst_severity"]) == (2, "CRITICAL"), "both sources know of one condition"
    tables.add(alerts=[alert(3, 2, "CLEARED", "a2")], readings=[reading(1, 0, OTHER)])
    assert (now(tables)["open_alerts"], now(tables)["worst_severity"]) == (1, "ALARM")
    tables.add(readings=[reading(2, 3)])
    row = now(tables)
    assert (row["log_offset"], row["open_alerts"], row["worst_severity"]) == (2, 1, "ALARM"), "as it was stored"
    tables.add(booking_changes=[change(8, 7, status="COMPLETED", valid_to=at(2))])
    assert (now(tables)["booking_reference"], now(tables)["open_alerts"]) == (None, 1)
    assert tables.rows("containers_now", "equipment_reference") == [BOX, OTHER]
    assert tables.differing({"containers_now": by_duckdb.containers_now}).keys() <= {"alerts_now", "quality"}


@pytest.mark.chaos
def test_a_row_goes_when_nothing_is_known_of_the_box_any_more(tables: Tables) -> None:
    tables.start("containers_now")
    tables.add(booking_changes=[change(1, 0), change(2, 0, equipment_reference=OTHER)], readings=[reading(1, 0)])
    assert tables.rows("containers_now", "equipment_reference") == [BOX, OTHER]
    DeltaTable.forPath(tables.spark, tables.paths.table("bookings")).delete()
    tables.settle()
    assert tables.rows("containers_now", "equipment_reference", "booking_reference") == [(BOX, None)]


@pytest.mark.chaos
def test_another_topology_makes_the_rows_anew(tables: Tables) -> None:
    log = f"yellow.{YELLOW}"
    held = [ledger(1, entry(1, 0, "tokyo", "GTIN", log=log)), ledger(2, entry(2, 7, "marlin", "LOAD", log=log))]
    tables.start("containers_now", "alerts_now")
    tables.add(
        readings=[reading(1, 0, YELLOW)],
        custody_entries=held,
        alerts=[alert(1, 100, equipment_reference=YELLOW)],
    )
    assert (now(tables, YELLOW)["line"], now(tables, YELLOW)["vessel"]) == ("Yellow Box Leasing", "MV Blue Marlin")
    assert tables.rows("alerts_now", "holder", "vessel_imo_number") == [("marlin", MARLIN)]
    known = topology()
    marlin = Site(kind=SiteKind.SHIP, title="MV Red Herring", imo="9300001")
    tables.follow(known.model_copy(update={"customers": {}, "sites": known.sites | {"marlin": marlin}}))
    tables.settle()
    assert (now(tables, YELLOW)["line"], now(tables, YELLOW)["vessel"]) == ("yellow", "MV Red Herring")
    assert tables.rows("alerts_now", "holder", "vessel_imo_number") == [("marlin", "9300001")]
    assert tables.differing(ORACLES).keys() <= {"quality"}


# -- alerts_now


def test_an_alert_of_a_site(tables: Tables) -> None:
    evidence = '[{"name":"power-lost","weight":1.0,"detail":"switched off, for 30 min"},{"name":"silence","weight":1}]'
    place: dict[str, Any] = {"latitude": 1.5, "longitude": 2.5, "raised_at": "star", "vessel_imo_number": STAR}
    opened = alert(1, 3, **place, evidence='[{"name":"first"}]', raised_date_time=at(3.25))
    worse = alert(2, 4, "UPDATED", severity="CRITICAL", raised_at="star", evidence=evidence)
    worse |= {"acknowledged_by": "anna", "acknowledged_date_time": at(4.5)}
    tables.start("alerts_now")
    tables.add(custody_entries=HELD, booking_changes=[change(1, 0)], alerts=[opened, worse, worse | {"log_offset": 3}])
    assert tables.rows("alerts_now") == [
        {
            "source": "site",
            "alert_id": "a1",
            "kind": "POWER_LOST",
            "state": "UPDATED",
            "severity": "CRITICAL",
            "highest_severity": "CRITICAL",
            "equipment_reference": BOX,
            "opened_date_time": at(3),
            "updated_date_time": at(4),
            "cleared_date_time": None,
            "minutes_open": None,
            "revisions": 2,
            "raised_at": "star",
            "raised_date_time": at(3.25),
            "log": LOG,
            "holder": "star",
            "vessel_imo_number": STAR,
            "booking_reference": "B1",
            "customer": "ducks",
            "latitude": 1.5,
            "longitude": 2.5,
            "detail": "power-lost: switched off, for 30 min; silence",
            "condition_id": "a1",
            "acknowledged_by": "anna",
            "acknowledged_date_time": at(4.5),
        }
    ]
    whole_ship = alert(
        9, 3, equipment_reference="", alert_id="s", kind="SILENCE", vessel_imo_number=STAR, evidence="[]"
    )
    unreadable = {"log": "alerts.star", "log_offset": 10, "problem": "no JSON"}
    ended = alert(4, 5.5, "CLEARED", revision=2, severity="ALARM", raised_at="star")
    tables.add(alerts=[ended, whole_ship, unreadable])
    columns = ("alert_id", "state", "severity", "highest_severity", "cleared_date_time", "minutes_open", "holder")
    assert tables.rows("alerts_now", *columns) == [
        ("a1", "CLEARED", "ALARM", "CRITICAL", at(5.5), 150.0, "star"),
        ("s", "OPENED", "ALARM", "ALARM", None, None, None),
    ]
    assert tables.differing(ORACLES).keys() <= {"containers_now"}


def test_each_site_ends_and_changes_only_its_own_alerts(tables: Tables) -> None:
    """A stolen ship has the id of another ship's alert in its log, under its own name, and in a row of an earlier
    release under the other's."""
    thief = {"log": "alerts.marlin", "raised_at": "marlin", "severity": "CRITICAL"}
    tables.start("alerts_now", "containers_now")
    tables.add(readings=[reading(1, 0)], alerts=[alert(1, 1, raised_at="star")])
    tables.add(alerts=[alert(1, 0, **thief), alert(2, 4, "CLEARED", revision=7, **thief)])
    tables.add(alerts=[alert(3, 5, "CLEARED", revision=9, **thief | {"raised_at": "star"})])
    columns = ("raised_at", "alert_id", "state", "highest_severity", "opened_date_time", "revisions")
    assert tables.rows("alerts_now", *columns) == [
        ("marlin", "a1", "CLEARED", "CRITICAL", at(0), 3),
        ("star", "a1", "OPENED", "ALARM", at(1), 1),
    ]
    assert (now(tables)["open_alerts"], now(tables)["worst_severity"]) == (1, "ALARM")
    tables.add(alerts=[alert(2, 6, "CLEARED", raised_at="star")])
    assert tables.rows("alerts_now", "state") == ["CLEARED", "CLEARED"]
    assert (now(tables)["open_alerts"], now(tables)["worst_severity"]) == (0, None)
    assert tables.differing(ORACLES).keys() <= {"quality"}


def test_one_id_about_two_containers_is_two_alerts(tables: Tables) -> None:
    """A stolen ship gives its alerts any ids. Batches about one container or both make the same rows, each once."""
    tables.start("alerts_now", "containers_now")
    tables.add(alerts=[alert(1, 1)])
    tables.add(alerts=[alert(2, 2, equipment_reference=OTHER)])
    tables.add(alerts=[alert(3, 3, "UPDATED"), alert(4, 3, "UPDATED", equipment_reference=OTHER)])
    tables.add(alerts=[alert(5, 4, "CLEARED", revision=2, equipment_reference=OTHER)])
    tables.add(alerts=[alert(6, 5, "UPDATED", revision=2), alert(7, 5, "UPDATED", equipment_reference=OTHER)])
    columns = ("equipment_reference", "alert_id", "state", "revisions")
    assert tables.rows("alerts_now", *columns) == [(BOX, "a1", "UPDATED", 3), (OTHER, "a1", "CLEARED", 3)]
    assert [now(tables, box)["open_alerts"] for box in (BOX, OTHER)] == [1, 0]
    assert tables.differing(ORACLES).keys() <= {"quality"}


@pytest.mark.chaos
def test_holder_and_booking_of_an_alert_are_those_of_its_time(tables: Tables) -> None:
    warm = advance(LOG, None, [*logs.every(10, 70, supply_temperature=9.0), *logs.every(10, 120, since=70)])[1]
    aboard = advance(LOG, None, [*logs.every(10, 130, since=40, supply_temperature=9.0), logs.reading(130)])[1]
    tables.start("alerts_now")
    tables.add(
        alerts_ashore=table_of([*warm, *aboard]).to_pylist(),
        alerts=[alert(1, 3), alert(2, 30, alert_id="a2"), alert(3, 60, alert_id="a3")],
    )
    assert {row["holder"] for row in tables.rows("alerts_now")} == {None}
    second = change(2, 1, booking_reference="B2", valid_from=at(20))
    tables.add(custody_entries=HELD, booking_changes=[change(1, 0, valid_to=at(10)), second])
    columns = ("alert_id", "holder", "vessel_imo_number", "booking_reference", "minutes_open")
    assert tables.rows("alerts_now", *columns) == [
        (f"TEMPERATURE.{BOX}@1", "tokyo", None, "B1", 30.0),
        (f"TEMPERATURE.{BOX}@41", "star", STAR, "B1", None),
        ("a1", "star", STAR, "B1", None),
        ("a2", "star", STAR, "B2", None),
        ("a3", "star", STAR, "B2", None),
    ]
    later = change(5, 50, booking_reference="B2", valid_from=at(50), status="CANCELLED")
    tables.add(booking_changes=[later])
    assert [row["booking_reference"] for row in tables.rows("alerts_now")] == ["B1", "B1", "B1", "B2", None]
    assert tables.differing(ORACLES).keys() <= {"containers_now"}


def test_a_repair_before_the_first_start_counts_no_alert_of_an_earlier_release_twice(tables: Tables) -> None:
    def state(number: int, hours: float, name: str) -> dict[str, Any]:
        ashore = {"alert_id": "warm", "revision": number, "kind": "TEMPERATURE", "severity": "ALARM", "state": name}
        ashore |= {"equipment_reference": BOX, "log": LOG, "first_offset": 1, "log_offset": number}
        return ashore | {"event_date_time": at(hours), "condition_id": "warm"}

    tables.start("alerts_now")
    tables.add(readings=[reading(1, 0)], alerts_ashore=[state(0, 1, "OPENED")])
    unnamed = DeltaTable.forPath(tables.spark, tables.paths.table("alerts_now"))
    unnamed.update(set={"raised_at": "null"})
    recompute(BY_NAME["alerts_now"], Lake(tables.spark, tables.paths), topology())
    assert tables.rows("alerts_now", "raised_at", "state") == [("shore", "OPENED")]
    tables.add(alerts_ashore=[state(1, 2, "CLEARED")])
    assert tables.rows("alerts_now", "raised_at", "state") == [("shore", "CLEARED")]


def test_retention_keeps_open_alerts_whole_and_leaves_the_rows_of_those_that_are_over(tables: Tables) -> None:
    def ashore(name: str, *states: tuple[float, str]) -> list[dict[str, Any]]:
        return [
            {"alert_id": name, "revision": n, "kind": "TEMPERATURE", "severity": "ALARM", "state": state}
            | {"equipment_reference": BOX, "log": LOG, "first_offset": 1, "log_offset": n, "event_date_time": at(hours)}
            | {"condition_id": name}
            for n, (hours, state) in enumerate(states)
        ]

    def alerts(*columns: str) -> list[Any]:
        return list(tables.rows("alerts_now", "alert_id", *columns))

    limit, session = at(48), maintenance_session(tables.spark)
    tables.start("alerts_now", "containers_now")
    tables.add(
        readings=[reading(1, 0)],
        alerts_ashore=[
            *ashore("over", (1, "OPENED"), (2, "CLEARED")),
            *ashore("open", (1, "OPENED"), (2, "UPDATED")),
            *ashore("long", (1, "OPENED"), (50, "CLEARED")),
        ],
    )
    before = alerts("raised_at", "state", "opened_date_time", "minutes_open", "revisions")
    unnamed = DeltaTable.forPath(tables.spark, tables.paths.table("alerts_now"))
    unnamed.update(set={"raised_at": "null"})  # as an earlier release left the alerts of shore
    assert expire(session, tables.paths, ExpiryStep("alerts_ashore", limit, 1)) == 2
    tables.add(booking_changes=[change(1, 0)])
    assert alerts("raised_at", "state", "opened_date_time", "minutes_open", "revisions") == before
    assert alerts("customer") == [("long", "ducks"), ("open", "ducks"), ("over", None)], "what is left is made again"
    assert (now(tables)["open_alerts"], now(tables)["worst_severity"]) == (1, "ALARM")
    tables.add(alerts_ashore=ashore("open", (1, "OPENED"), (2, "UPDATED"), (60, "CLEARED"))[2:])
    assert alerts("state", "minutes_open") == [
        ("long", "CLEARED", 49 * 60.0), ("open", "CLEARED", 59 * 60.0), ("over", "CLEARED", 60.0),
    ]  # fmt: skip
    assert now(tables)["open_alerts"] == 0
    assert expire(session, tables.paths, ExpiryStep("alerts_ashore", at(55), 1)) == 2
    assert sorted(set(tables.rows("alerts_ashore", "alert_id"))) == ["open"]


# -- quality


def test_days_of_devices(tables: Tables) -> None:
    found = [reading(i, i / 10) for i in (1, 2, 5, 6, 9)]
    found += [
        reading(10, 0.2, sequence=2),  # a repeat
        reading(11, 0.3, sequence=3, late=True),  # a drained stray
        reading(12, 2, boot_id=2, sequence=0, received_date_time=at(1)),  # its clock is ahead
        reading(13, 2.1, boot_id=2, sequence=1, received_date_time=at(60)),
    ]
    tables.start("quality")
    tables.add(readings=found, readings_rejected=[rejected(20, 0, "no JSON"), rejected(21, 1, "no JSON")])
    counts, day = tables.rows("quality")
    assert (counts["device_id"], counts["rejected"], counts["rejected_by_reason"]) == ("", 2, '{"no JSON":2}')
    told = {name: day[name] for name in ("readings", "repeats", "missing", "gaps", "late", "out_of_order", "boots")}
    assert told == {"readings": 8, "repeats": 1, "missing": 3, "gaps": 2, "late": 1, "out_of_order": 1, "boots": 2}
    assert (day["clock_ahead"], day["delayed"], day["rejected"], day["rejected_by_reason"]) == (1, 1, 0, None)
    assert (day["first_boot_id"], day["first_sequence"], day["last_boot_id"], day["last_sequence"]) == (1, 1, 2, 1)
    assert (day["first_date_time"], day["last_date_time"]) == (at(0.1), at(2.1))
    unknown = rejected(22, 0, "too new") | {"received_date_time": None, "record_date_time": at(30)}
    tables.add(
        readings=[reading(14, 0.35, sequence=4), reading(1, 2000, OTHER), reading(2, 2001, OTHER)],
        readings_rejected=[rejected(23, 2, "a 'reason'"), unknown],
    )
    columns = ("device_id", "day", "readings", "missing", "rejected", "rejected_by_reason")
    assert tables.rows("quality", *columns) == [
        ("", at(0), 0, 0, 3, '{"a \'reason\'":1,"no JSON":2}'),
        ("", at(24), 0, 0, 1, '{"too new":1}'),
        (f"dev-{BOX}", at(0), 9, 2, 0, None),
        (f"dev-{OTHER}", at(1992), 2, 0, 0, None),
    ]
    assert tables.differing(ORACLES).keys() <= {"containers_now"}


def test_any_sequence_numbers_make_a_day(tables: Tables) -> None:
    """Two boots of one day that miss as many numbers as a column holds, and a row of an earlier release below 0."""
    most = 2**63 - 1
    told = [(1, 0, BOX), (1, most, BOX), (2, 0, BOX), (2, most, BOX), (1, -5, OTHER), (1, most, OTHER)]
    rows = [reading(n, n / 10, box, boot_id=boot, sequence=sequence) for n, (boot, sequence, box) in enumerate(told)]
    tables.start("quality")
    tables.add(readings=rows)
    assert tables.rows("quality", "readings", "missing", "gaps") == [(4, most, 2), (2, most, 1)]
    assert tables.differing(ORACLES).keys() <= {"containers_now"}


def test_a_device_without_a_name_has_no_second_row_of_rejected_records(tables: Tables) -> None:
    tables.start("quality")
    tables.add(readings=[reading(1, 1, device_id="")], readings_rejected=[rejected(2, 1, "no JSON")])
    tables.add(readings_rejected=[rejected(3, 2, "no JSON")])
    assert tables.rows("quality", "device_id", "readings", "rejected") == [("", 0, 2)]
    assert tables.differing(ORACLES).keys() <= {"containers_now"}


def test_days_that_follow_each_other_are_one_span() -> None:
    day = dt.timedelta(days=1)
    found = spans([(BOX, at(0)), (OTHER, at(24)), (BOX, at(24)), (YELLOW, at(96))])
    assert [(span.since, span.until, span.boxes.names) for span in found] == [
        (at(0), at(48), frozenset({BOX, OTHER})),
        (at(96), at(120), frozenset({YELLOW})),
    ]
    scattered = [(f"B{n}", at(0) + 2 * n * day) for n in range(MOST_SPANS + 1)]
    (span,) = spans(scattered)
    assert (span.since, span.until, span.boxes.names) == (
        at(0), at(0) + (2 * MOST_SPANS + 1) * day, frozenset(box for box, _ in scattered),
    )  # fmt: skip


# -- any order, any batches, any repeats


def _story() -> list[tuple[str, dict[str, Any]]]:
    log = [*logs.every(10, 150, supply_temperature=9.0, is_powered=False), *logs.every(10, 400, since=150)]
    second = LOG.replace(BOX, OTHER)
    ashore = [
        *advance(LOG, None, [*log, logs.reading(900)])[1],
        *advance(second, None, logs.every(20, 400, relative_humidity=20.0))[1],
    ]
    of_other = [entry(1, 0, "tokyo", log=second), entry(2, 200, None, "GTOT", log=second)]
    return [
        *((table, row) for table, row in story() if table != "events"),
        *(("alerts_ashore", row) for row in table_of(ashore).to_pylist()),
        *(("custody_entries", ledger(10 + n, each)) for n, each in enumerate(of_other)),
        ("alerts", alert(20, 5, equipment_reference=OTHER, alert_id="other", evidence="[]")),
        ("booking_changes", change(30, 1, booking_reference="B2", equipment_reference=OTHER)),
        *(("readings_rejected", rejected(40 + n, 20 * n, f"reason {n % 2}")) for n in range(4)),
        ("readings", reading(50, 900)),
    ]


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_batches_in_any_order_and_repeated_make_the_same_tables(
    tables: Tables, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed == 2:
        monkeypatch.setattr(scope, "MOST_LITERALS", 1)  # filter by a join instead of a list of names
    chance = random.Random(seed)  # noqa: S311  # an order of rows
    shuffled = _story()
    chance.shuffle(shuffled)
    tables.start(*NAMES)
    cuts = [0, *sorted(chance.sample(range(1, len(shuffled)), 2)), len(shuffled)]
    for first, last in itertools.pairwise(cuts):
        tables.append(merged(shuffled[first:last]))
        tables.settle()
        for job in NAMES:
            undo_commit(tables.folder, job)  # the driver was killed before Spark's commit: the batch comes again
    assert tables.differing(ORACLES) == {}
    before = tables.versions()
    tables.settle()
    assert tables.versions() == before, "a batch without news commits nothing"
    assert len(tables.rows("quality")) == 7  # three days of one box, one of the other; three days of rejected records
    assert [row["log_offset"] for row in tables.rows("containers_now")] == [50, 1]
    assert len(tables.rows("alerts_now")) == 4 + 3  # of shore: power, temperature, silence, humidity; of sites: three


def test_a_late_record_leaves_the_row_of_a_day_whose_readings_are_past_their_retention(tables: Tables) -> None:
    tables.start("quality")
    tables.add(readings=[reading(1, 0), reading(2, 1), reading(3, 2), reading(4, 30)])
    before = tables.rows("quality")
    assert [row["readings"] for row in before] == [3, 1]
    step = ExpiryStep("readings", at(0).replace(hour=0) + dt.timedelta(days=1), 1)
    assert expire(maintenance_session(tables.spark), tables.paths, step) == 3
    late = [reading(n, 1 + n / 10, OTHER, log_offset=n) for n in (1, 2)]
    tables.add(readings=[reading(5, 1.5, log_offset=5), late[0]])
    tables.add(readings=[late[1]])
    assert [row for row in tables.rows("quality") if row["equipment_reference"] == BOX] == before
    (other,) = (row for row in tables.rows("quality") if row["equipment_reference"] == OTHER)
    assert other["readings"] == 2
