"""The report about one container, over generated tables."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from board.pages.container import container_file
from fairlead.errors import UnavailableError
from shore.paths import TablePaths
from shore.report import course
from shore.report.container import (
    ContainerReport,
    UnknownContainerError,
    container_report,
    normalised,
    open_container,
)
from shore.report.course import Interval
from shore.tables import TABLES
from tests.support.one_file import plain
from tests.support.port_story import (
    FROZEN,
    NEVER_HEARD,
    NEWEST,
    ON_DOCK,
    POWERED,
    SAILED,
    UNPOWERED,
    WARM,
    WRONG,
    Row,
    at,
    derive,
    number,
    rows,
)
from tests.support.tables import fill


def report(
    paths: TablePaths, box: str, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> ContainerReport:
    with open_container(paths, box, since, until) as found:
        return container_report(found, box, since, until)


def reading(box: str, offset: int, moment: dt.datetime, **values: object) -> Row:
    return {
        "log": f"containers.{box}", "log_offset": offset, "equipment_reference": box, "device_id": "d", "boot_id": 1,
        "sequence": offset, "device_date_time": moment, "received_date_time": moment,
    } | values  # fmt: skip


def test_everything_about_a_box_that_was_warm(story: TablePaths) -> None:
    found = report(story, WARM)
    figures = found.figures
    assert (figures.records, figures.repeats, figures.rejected, figures.late) == (210, 1, 1, 0)
    assert (figures.first_date_time, figures.last_date_time) == (SAILED, NEWEST)
    assert (figures.supply_max, figures.return_min) == (7.9, 2.4)
    assert [(e["quantity"], e["minutes"]) for e in found.excursions] == [("POWER", 180), ("TEMPERATURE", 225)]
    assert [(c["holder"], c["event"]) for c in found.custody] == [("singapore", "GTIN"), ("duck-star", "LOAD")]
    assert found.booking is not None
    assert (found.booking["booking_reference"], found.line) == ("BK1", "Big Blue's own containers")
    (log,) = found.logs
    assert (log.log, log.first_offset, log.last_offset, log.records) == (f"containers.{WARM}", 2, 212, 210)
    days = [m for m in found.mkt if m["whole_day"]]
    assert [m["window_start"] for m in days] == [at(2), at(3), at(4)]
    worst = {m["window_hours"]: m["air_mean_kinetic_temperature"] for m in found.mkt if m["worst"]}
    assert set(worst) == {24, 720}
    assert worst[24] >= max(m["air_mean_kinetic_temperature"] for m in days) > 2.5
    assert sum(row["missing"] for row in found.quality) == 8
    assert found.missing == ()
    assert found.versions["readings"] == 1


def test_states_last_from_the_first_reading_to_the_next_one_without(story: TablePaths) -> None:
    found = report(story, WARM)
    assert [(s.start, s.end) for s in found.states if s.kind == "UNPLUGGED"] == [(UNPOWERED, POWERED)]
    defrosts = [s for s in found.states if s.kind == "DEFROST"]
    assert defrosts[0].start == SAILED
    assert {s.minutes for s in defrosts} == {30.0}
    assert [(g.start, g.end) for g in found.gaps] == [(at(4, 2, 45), at(4, 5))]


def test_a_set_point_other_than_agreed_is_told_with_both(story: TablePaths) -> None:
    found = report(story, WRONG).wrong_set_points
    assert [(w.start, w.end) for w in found] == [(SAILED, at(4, 3, 15)), (at(4, 5), NEWEST + dt.timedelta(minutes=30))]
    assert found[0].detail == "set to 5 Cel, agreed 2 Cel (BK3)"
    assert report(story, FROZEN).wrong_set_points == ()


def test_a_cancelled_booking_is_that_of_the_time_before(tmp_path: Path) -> None:
    quarter = dt.timedelta(minutes=15)
    readings = [reading(WARM, i, at(1) + i * quarter, setpoint_temperature=5.0) for i in range(24)]
    story = {"log": "bookings.hq", "booking_reference": "BK1", "equipment_reference": WARM, "customer": "ducks",
             "setpoint_temperature": 2.0}  # fmt: skip
    times = [("CONFIRMED", at(1), None), ("CANCELLED", at(1, 3), None)]
    changes = [
        story | {"log_offset": i, "status": status, "record_date_time": begin, "valid_from": begin, "valid_to": end}
        for i, (status, begin, end) in enumerate(times)
    ]
    fill(tmp_path, {"readings": readings, "booking_changes": changes})
    derive(tmp_path, "bookings")
    paths = TablePaths.of(tmp_path)
    found = report(paths, WARM)
    assert [(w.start, w.end) for w in found.wrong_set_points] == [(at(1), at(1, 3))]
    assert found.booking is not None
    assert (found.booking["booking_reference"], found.booking["valid_to"]) == ("BK1", at(1, 3))
    assert [row["status"] for row in found.bookings] == ["CONFIRMED", "CANCELLED"]
    later = report(paths, WARM, at(1, 4))
    assert (later.booking, later.wrong_set_points) == (None, ())
    assert [row["status"] for row in later.bookings] == ["CONFIRMED", "CANCELLED"]


def test_its_way_is_its_own_or_that_of_the_ship_that_held_it(story: TablePaths) -> None:
    aboard = report(story, WARM).way
    assert {p["source"] for p in aboard} == {"SHIP"}
    assert (aboard[0]["time"], aboard[-1]["time"], len(aboard)) == (SAILED, NEWEST, 55)
    assert {(p["source"], p["latitude"]) for p in report(story, ON_DOCK).way} == {("OWN", 35.61)}


def test_the_readings_behind_alerts_are_found_by_offset_or_identity(story: TablePaths) -> None:
    by_role = {(r["source"], r["role"], r["sequence"]): r for r in report(story, WARM).alert_readings}
    causes = [r for r in by_role.values() if r["alert_id"] == "power-1"]
    assert [(r["device_date_time"], r["is_powered"]) for r in causes] == [(UNPOWERED, False), (None, None)]
    assert causes[1]["sequence"] == 99_999
    worst = next(r for r in by_role.values() if r["role"] == "worst" and r["alert_id"].startswith("TEMPERATURE"))
    assert (worst["supply_temperature"], worst["log"]) == (7.9, f"containers.{WARM}")


def test_the_readings_behind_an_alert_are_those_that_its_own_site_names(tmp_path: Path) -> None:
    """A stolen ship has the id of another ship's alert in its log, with the same reading at another offset."""
    told = {"alert_id": "a", "kind": "TEMPERATURE", "state": "OPENED", "severity": "ALARM", "equipment_reference": WARM}
    cause = {"log": f"containers.{WARM}", "deviceId": "d", "bootId": 1, "sequence": 1}
    alerts = [
        told | {"log": f"alerts.{site}", "log_offset": 1, "raised_at": site, "event_date_time": at(2)}
        | {"causes": json.dumps([cause | {"offset": offset}])}
        for site, offset in (("duck-star", 1), ("black-pearl", 2))
    ]  # fmt: skip
    fill(tmp_path, {"readings": [reading(WARM, n, at(n)) for n in (1, 2)], "alerts": alerts})
    fill(tmp_path, {"booking_changes": (), "custody_entries": ()})
    derive(tmp_path, "alerts_now")
    with open_container(TablePaths.of(tmp_path), WARM) as found:
        whole = container_report(found, WARM)
        page = container_file(found, whole)
    behind = [(row["raised_at"], row["alert_id"], row["log_offset"]) for row in whole.alert_readings]
    assert behind == [("black-pearl", "a", 2), ("duck-star", "a", 1)]
    assert plain(page).count(f"containers.{WARM}@1") == plain(page).count(f"containers.{WARM}@2")


def test_a_time_cuts_everything_but_the_readings_behind_alerts(story: TablePaths) -> None:
    since, until = at(3, 4), at(3, 6)
    found = report(story, WARM, since, until)
    assert (found.figures.records, found.figures.first_date_time, found.figures.last_date_time) == (
        8, since, at(3, 5, 45),
    )  # fmt: skip
    assert len(found.excursions) == 2  # both lasted at that time
    assert [c["holder"] for c in found.custody] == ["duck-star"]
    assert found.figures.rejected == 0
    assert [row["day"] for row in found.quality] == [at(3)]
    assert found.alert_readings[0]["device_date_time"] < since
    assert report(story, WARM, at(4)).excursions == ()


def test_a_long_history_keeps_its_extremes_in_the_drawing(tmp_path: Path) -> None:
    minutes = 30_000
    fill(tmp_path, {"readings": (
        reading(WARM, i, at(1) + i * dt.timedelta(minutes=1), supply_temperature=40.0 if i == 12_345 else i % 7 / 10)
        for i in range(minutes)
    )})  # fmt: skip
    with open_container(TablePaths.of(tmp_path), WARM) as found:
        samples = course.samples(found)
    assert len(samples) <= 1002
    warmest = max(samples, key=lambda row: float(row["supply_temperature"]))
    assert warmest["supply_temperature"] == 40.0
    assert abs(warmest["time"] - (at(1) + dt.timedelta(minutes=12_345))) <= dt.timedelta(hours=1)  # one stretch


def test_a_cold_treatment_and_its_probes_are_shown(tmp_path: Path) -> None:
    quarter = dt.timedelta(minutes=15)
    readings = [
        reading(WARM, i, at(1) + i * quarter, cargo_probe1_temperature=0.5, cargo_probe2_temperature=0.6 + i)
        for i in range(4)
    ]
    treatment = {
        "equipment_reference": WARM, "booking_reference": "BK1", "limit_temperature": 1.1, "required_days": 14.0,
        "state": "BROKEN", "since_date_time": at(1), "until_date_time": at(1), "days": 0.0, "breaks": 1,
        "broken_date_time": at(1, 0, 15), "broken_by": "WARM", "probes": 2, "warmest_temperature": 0.6,
        "as_of_date_time": at(1, 0, 45),
    }  # fmt: skip
    fill(tmp_path, {"readings": readings, "cold_treatments": [treatment]})
    with open_container(TablePaths.of(tmp_path), WARM) as found:
        told = container_report(found, WARM)
        page = container_file(found, told)
        measured = {name for row in course.samples(found) for name in course.SAMPLED if row[name] is not None}
        assert measured == {"cargo_probe1_temperature", "cargo_probe2_temperature"}
    assert [(row["state"], row["broken_by"]) for row in told.cold_treatments] == [("BROKEN", "WARM")]
    cold = plain(page).partition("Cold treatment")[2]
    assert "BK1 broken" in cold
    assert "2026-03-01 00:15 , too warm" in cold
    assert report(TablePaths.of(tmp_path), WARM, at(2)).cold_treatments == ()


def test_the_newest_inspection_before_a_trip_is_shown(tmp_path: Path) -> None:
    def told(offset: int, result: str, **more: str) -> Row:
        inspection = {"inspectionType": "REMOTE", "inspectionDate": "2026-02-20T08:00:00Z", "inspectionResult": result}
        return reading(WARM, offset, at(1, offset), inspection=json.dumps([inspection | more]))

    silent = reading(WARM, 3, at(1, 3))
    fill(tmp_path, {"readings": [told(1, "FAILED"), told(2, "PASSED", expiryDate="2026-08-20T08:00:00Z"), silent]})
    with open_container(TablePaths.of(tmp_path), WARM) as found:
        page = container_file(found, container_report(found, WARM))
    assert "passed remote, 2026-02-20 08:00 , counts until 2026-08-20 08:00" in plain(page)
    assert report(TablePaths.of(tmp_path), WARM, at(1, 3)).inspection is None


def test_an_inspection_that_is_nested_too_deeply_hides_nothing_else(tmp_path: Path) -> None:
    """How deep JSON may be depends on how deep the calls are: what shore could read, a page may not."""
    fill(tmp_path, {"readings": [reading(WARM, 1, at(1), inspection="[" * 5_000 + "]" * 5_000)]})
    found = report(TablePaths.of(tmp_path), WARM)
    assert (found.inspection, found.figures.records) == (None, 1)


@pytest.mark.parametrize("remote", [False, True])
def test_payloads_are_read_only_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """Tables on this machine are read by DuckDB, others by Arrow."""
    fill(tmp_path, {"readings": [reading(WARM, 1, at(1), payload=b"{}")]})
    if remote:
        monkeypatch.setattr(TablePaths, "is_local", False)
    for payloads in (True, False):
        with open_container(TablePaths.of(tmp_path), WARM, payloads=payloads) as found:
            (row,) = found.rows("select * from readings")
            assert (row["log_offset"], row["payload"]) == (1, b"{}" if payloads else None)


def test_intervals_that_nobody_could_tell_apart_are_drawn_as_one() -> None:
    minute = dt.timedelta(minutes=1)
    times = [("DEFROST", 0, 10), ("DOOR_OPEN", 3, 4), ("DEFROST", 12, 20), ("DEFROST", 40, 41)]
    found = [Interval(kind=kind, start=at(1) + a * minute, end=at(1) + b * minute) for kind, a, b in times]
    joined = course.joined(found, 5 * minute)
    assert [(each.kind, each.minutes) for each in joined] == [("DEFROST", 20), ("DEFROST", 1), ("DOOR_OPEN", 1)]
    assert len(course.joined(found, dt.timedelta(0))) == 4


def test_a_wrong_clock_does_not_stretch_the_drawing(tmp_path: Path) -> None:
    wrong = reading(WARM, 2, at(1) + dt.timedelta(days=3650), received_date_time=at(1))
    fill(tmp_path, {"readings": [reading(WARM, 1, at(1)), wrong]})
    found = report(TablePaths.of(tmp_path), WARM)
    assert (found.figures.records, found.figures.wrong_clock) == (2, 1)
    assert found.figures.last_date_time == at(1)


def test_only_files_with_rows_of_the_container_are_read(tmp_path: Path) -> None:
    fill(tmp_path, {"readings": [reading(WARM, i, at(1)) for i in range(3)]})
    paths = TablePaths.of(tmp_path)
    before = set(Path(paths.table("readings")).glob("*.parquet"))
    fill(tmp_path, {"readings": [reading(WRONG, i, at(1)) for i in range(3)]})
    (new,) = set(Path(paths.table("readings")).glob("*.parquet")) - before
    new.unlink()
    assert report(paths, WARM).figures.records == 3
    with pytest.raises(UnavailableError) as error:
        report(paths, WRONG)
    assert new.name in error.value.what


def test_what_is_not_there_yet_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    fill(tmp_path, {"readings": [reading(WARM, 1, at(1))]})
    found = report(TablePaths.of(tmp_path), WARM)
    assert found.figures.records == 1
    assert {"bookings", "custody", "excursions", "alerts_now", "sites"} <= set(found.missing)
    with pytest.raises(UnavailableError) as error:
        report(TablePaths.of(tmp_path / "nothing"), WARM)
    assert "fairlead shore run" in error.value.hint


def test_a_table_of_an_older_version_lacks_columns_and_is_read(tmp_path: Path) -> None:
    location = TablePaths.of(tmp_path).table("readings")
    schema = TABLES["readings"].schema
    old = [field for field in schema if field.name not in ("is_pre_trip_inspection", "door_open")]
    DeltaTable.create(location, schema=schema.empty_table().select([f.name for f in old]).schema)
    row = reading(WARM, 1, at(1))
    content = pa.Table.from_pylist([row], schema=pa.schema([pa.field(f.name, f.type) for f in old]))
    write_deltalake(DeltaTable(location), content, mode="append")
    assert report(TablePaths.of(tmp_path), WARM).figures.records == 1


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (WARM[:-1] + str((int(WARM[-1]) + 1) % 10), f"its check digit must be {WARM[-1]}", f"did you mean {WARM}?"),
        (number(999999), "no table has container", "the tables know 5 containers"),
        (number(100003), "no table has container", f"near it: {number(100003)[:-1][:4]}"),
        ("BIGU", "four letters and seven digits", "the tables know 5"),
        ("", "four letters and seven digits", ""),
        ("BIGU10000é0", "four letters and seven digits", ""),
    ],
)
def test_an_unknown_number_is_answered_with_those_near(story: TablePaths, text: str, what: str, hint: str) -> None:
    with pytest.raises(UnknownContainerError) as error:
        report(story, text)
    assert what in error.value.what
    assert hint in error.value.hint


def test_numbers_are_taken_as_people_write_them() -> None:
    assert normalised("bigu 100001-0") == "BIGU1000010"


def test_a_box_that_the_tables_know_by_its_custody_alone(tmp_path: Path) -> None:
    fill(tmp_path, {"custody_entries": rows()["custody_entries"]})
    derive(tmp_path, "custody")
    found = report(TablePaths.of(tmp_path), WARM)
    assert (found.figures.records, found.figures.first_date_time, found.way, found.logs) == (0, None, (), ())
    assert len(found.custody) == 2


def test_samples_have_all_quantities_at_common_times_with_their_extremes(tmp_path: Path) -> None:
    minute = dt.timedelta(minutes=1)
    usual = {"supply_temperature": 2.0, "setpoint_temperature": 2.0, "relative_humidity": 80.0}
    readings = [reading(WARM, i, at(1) + i * minute, **usual) for i in range(5000)]
    readings[2000] |= {"supply_temperature": 9.0}
    readings[2001] |= {"supply_temperature": -9.0, "o2": 3.0}
    for each in readings[3000:]:
        each |= {"setpoint_temperature": 5.0}
    late = at(1) + 6000 * minute  # hours after the last one
    readings += [reading(WARM, 6000, late, **usual)]
    fill(tmp_path, {"readings": readings})
    with open_container(TablePaths.of(tmp_path), WARM) as found:
        rows = course.samples(found)
    times = [row["time"] for row in rows]
    assert times == sorted(set(times))
    assert len(rows) <= 2 * 510
    assert (times[0], times[-1]) == (at(1), late)
    air = [row["supply_temperature"] for row in rows]
    assert (max(air), min(air), air.index(9.0) < air.index(-9.0)) == (9.0, -9.0, True)
    assert {row["o2"] for row in rows} == {3.0, None}
    assert [row["segment"] for row in rows] == [0] * (len(rows) - 1) + [1]
    set_to = [row["setpoint_temperature"] for row in rows[:-1]]
    assert set_to == sorted(set_to)
    assert set(set_to) == {2.0, 5.0}


def test_a_box_without_readings_has_no_samples(story: TablePaths) -> None:
    with open_container(story, NEVER_HEARD) as found:
        assert course.samples(found) == []
