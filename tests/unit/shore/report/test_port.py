"""The report about a port: ships and boxes that are coming, over generated tables."""

from __future__ import annotations

import datetime as dt
import math
import re
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from board.pages.port import port_file
from fairlead.errors import UnavailableError
from shore.paths import TablePaths
from shore.report.port import Place, PortReport, UnknownPortError, port_report
from shore.tables import TABLES
from tests.support.one_file import plain, reaches
from tests.support.port_story import (
    FROZEN,
    NEVER_HEARD,
    NEWEST,
    ON_DOCK,
    OTHER_SHIP,
    SHIP,
    WARM,
    WRONG,
    at,
    derive,
    rows,
)
from tests.support.tables import fill

CARGO = ("toy ducks of wax", "tuna", "lettuce", "chocolate ducks", "fishers", "BK1", "BK2", "BK3", "BK4")


def straight(start: Place, end: Place) -> float:
    """Return nautical miles on a flat earth."""
    return 60 * math.dist(start, end)


@pytest.fixture(scope="module")
def tokyo(story: TablePaths) -> PortReport:
    return port_report(story, "jp tyo", distance=straight)


def test_the_ship_with_boxes_for_here_is_coming(tokyo: PortReport) -> None:
    (ship,) = tokyo.arriving
    assert (ship.vessel_imo_number, ship.vessel, ship.for_port) == (SHIP, "MV Duck Star", 2)
    assert ship.approach.bound == "CARGO"
    assert ship.approach.position_date_time == NEWEST
    assert ship.approach.eta is not None
    assert ship.approach.eta > NEWEST
    assert ship.last_call is not None
    assert ship.last_call["un_location_code"] == "SGSIN"
    assert (tokyo.elsewhere, tokyo.as_of, tokyo.port) == (1, NEWEST, "Port of Tokyo")


def test_boxes_for_here_come_first_and_of_these_those_in_trouble(tokyo: PortReport) -> None:
    boxes = {box.equipment_reference: box for box in tokyo.arriving[0].boxes}
    assert list(boxes) == [WARM, FROZEN, WRONG]
    assert boxes[WARM].concerns == (
        "open alerts: DOOR_OPEN (WARNING), acknowledged by anna",
        "out of band once, 3 h 45 min",
    )
    assert boxes[WRONG].concerns == ("set to 5.0, agreed 2.0",)
    assert boxes[FROZEN].concerns == ()
    assert tokyo.arriving[0].concerning == 2


def test_the_dock_and_the_last_movements(tokyo: PortReport) -> None:
    assert [box.equipment_reference for box in tokyo.dock] == [ON_DOCK]
    assert [(m["movement"], m["equipment_reference"], m["vessel"]) for m in tokyo.movements] == [
        ("GTIN", ON_DOCK, None),
        ("DEPA", None, "MV Blue Marlin"),
        ("ARRI", None, "MV Blue Marlin"),
    ]
    assert [(c["vessel"], c["departure_date_time"] is not None) for c in tokyo.calls] == [("MV Blue Marlin", True)]


def test_a_report_of_few_boxes_names_those_in_trouble_and_counts_all(story: TablePaths, tokyo: PortReport) -> None:
    (whole,) = tokyo.arriving
    for most, named in ((0, (WARM, WRONG)), (1, (WARM, WRONG)), (2, (WARM, FROZEN, WRONG))):
        found = port_report(story, "JPTYO", most=most, distance=straight)
        (ship,) = found.arriving
        assert tuple(box.equipment_reference for box in ship.boxes) == named
        assert (ship.others, ship.aboard) == (3 - len(named), whole.aboard)
        assert msgspec.structs.replace(ship, boxes=whole.boxes, others=0) == whole
        assert found.dock == tokyo.dock


@pytest.mark.parametrize(
    "wrong",
    [
        {"open_alerts": 1},
        {"in_band": False, "reading_source": "DIGEST"},
        {"is_connected_to_power_source": False, "is_powered": None},
        {"is_connected_to_power_source": True, "is_powered": False},
        {"setpoint_temperature": -17.9},
        {"door_open": True},
        {"immersed": True},
        {},
    ],
    ids=str,
)
def test_a_report_of_few_boxes_leaves_out_none_with_something_wrong(
    story: TablePaths, tmp_path: Path, wrong: dict[str, object]
) -> None:
    kept = {name: DeltaTable(story.table(name)).to_pyarrow_dataset().to_table().to_pylist() for name in
            ("sites", "containers_now", "positions", "bookings")}  # fmt: skip
    now = [each | (wrong if each["equipment_reference"] == FROZEN else {}) for each in kept["containers_now"]]
    fill(tmp_path, {**kept, "containers_now": now})
    few, whole = (port_report(TablePaths.of(tmp_path), "JPTYO", most=most, distance=straight) for most in (0, None))
    assert few.arriving[0].boxes == tuple(box for box in whole.arriving[0].boxes if box.concerns)
    assert any(box.equipment_reference == FROZEN for box in few.arriving[0].boxes) == bool(wrong)


def test_a_ship_in_port_does_not_come(story: TablePaths) -> None:
    sydney = port_report(story, "AUSYD", distance=straight)
    assert [ship.vessel_imo_number for ship in sydney.in_port] == [OTHER_SHIP]
    assert [(ship.vessel, ship.for_port) for ship in sydney.arriving] == [("MV Duck Star", 1)]
    assert sydney.elsewhere == 0


def test_the_port_that_a_ship_left_sees_which_boxes_were_not_heard_since(story: TablePaths) -> None:
    singapore, tokyo = (port_report(story, code, distance=straight) for code in ("SGSIN", "JPTYO"))
    [missed] = singapore.not_heard
    assert (missed["equipment_reference"], missed["vessel"], missed["severity"]) == (
        NEVER_HEARD,
        "MV Duck Star",
        "ALARM",
    )
    assert tokyo.not_heard == ()
    page = port_file(singapore)
    assert "Not heard since they left here" in page and NEVER_HEARD in page
    assert "not heard since duck-star left SGSIN" in page
    assert "Not heard since" not in port_file(tokyo)


def test_an_authority_is_not_told_what_is_inside(story: TablePaths) -> None:
    operator = port_report(story, "JPTYO", distance=straight)
    authority = port_report(story, "JPTYO", "authority", distance=straight)
    told, hidden = (msgspec.json.encode(each).decode() for each in (operator, authority))
    assert [word for word in CARGO if word not in told] == []
    assert [word for word in CARGO if word in hidden] == []
    page = port_file(authority)
    assert [word for word in CARGO if word in page] == []
    assert WARM in page
    assert "out of band once" in page


def test_the_page(tokyo: PortReport) -> None:
    page = port_file(tokyo)
    assert reaches(page) == []
    assert page.count('<div class="map"') == 1
    for told in ("as of 2026-03-04 12:00", "2 boxes aboard booked to here; estimated:", "toy ducks of wax",
                 "came to the dock", "set to 5.0, agreed 2.0", "1 other ship known"):  # fmt: skip
        assert told in plain(page), told


def test_what_is_not_there_yet_is_named(tmp_path: Path) -> None:
    fill(tmp_path, {"positions": rows()["positions"]})
    found = port_report(TablePaths.of(tmp_path), "JPTYO", distance=straight)
    assert {"containers_now", "dock_movements", "sites"} <= set(found.missing)
    assert [ship.approach.bound for ship in found.arriving] == ["COURSE"]
    page = port_file(found)
    assert "Table containers_now is not there yet" in page
    assert "perhaps it goes elsewhere" in page
    with pytest.raises(UnavailableError):
        port_report(TablePaths.of(tmp_path / "nothing"), "JPTYO")


def test_empty_tables_are_no_trouble(tmp_path: Path) -> None:
    fill(tmp_path, dict.fromkeys(TABLES, ()))
    found = port_report(TablePaths.of(tmp_path), "JPTYO", distance=straight)
    assert (found.arriving, found.dock, found.as_of, found.missing) == ((), (), None, ())
    told = plain(port_file(found))
    assert "No ship is here, and none is known to come." in told
    assert "Ship Arrived Left None that is known of." in told


@pytest.mark.parametrize(
    ("code", "what", "hint"),
    [
        ("JPTYX", "no port 'JPTYX' is known", "did you mean JPTYO?"),
        ("singapore", "'SINGAPORE' is no UN/LOCODE", "did you mean SGSIN?"),
        ("", "no UN/LOCODE", "the tables know AUSYD, JPTYO, SGSIN"),
    ],
)
def test_an_unknown_port_is_answered_with_those_near(story: TablePaths, code: str, what: str, hint: str) -> None:
    with pytest.raises(UnknownPortError) as error:
        port_report(story, code, distance=straight)
    assert what in error.value.what
    assert hint in error.value.hint


def test_a_port_that_the_topology_does_not_have(story: TablePaths) -> None:
    found = port_report(story, "NLRTM", distance=straight)
    assert (found.arriving, found.dock, found.elsewhere) == ((), (), 2)
    assert found.port == "Rotterdam"


@pytest.mark.parametrize(("hours", "agreed"), [(1, 2.0), (-1, None)])
def test_a_box_has_what_was_agreed_until_its_booking_is_cancelled(
    story: TablePaths, tmp_path: Path, hours: int, agreed: float | None
) -> None:
    kept = {name: DeltaTable(story.table(name)).to_pyarrow_dataset().to_table().to_pylist() for name in
            ("sites", "containers_now", "positions", "booking_changes")}  # fmt: skip
    booked = next(row for row in kept["booking_changes"] if row["booking_reference"] == "BK3")
    seen = next(row["seen_date_time"] for row in kept["containers_now"] if row["booking_reference"] == "BK3")
    end = {"status": "CANCELLED", "log_offset": 9, "valid_from": seen + dt.timedelta(hours=hours)}
    fill(tmp_path, {**kept, "booking_changes": [*kept["booking_changes"], booked | end]})
    derive(tmp_path, "bookings")
    found = port_report(TablePaths.of(tmp_path), "JPTYO", distance=straight)
    (box,) = [each for each in found.arriving[0].boxes if each.equipment_reference == WRONG]
    assert box.agreed_temperature == agreed
    assert box.port_of_discharge == (None if agreed is None else "AUSYD")


def test_an_excursion_of_the_last_journey_is_none_of_this_one(story: TablePaths, tmp_path: Path) -> None:
    kept = {name: DeltaTable(story.table(name)).to_pyarrow_dataset().to_table().to_pylist() for name in
            ("sites", "containers_now", "positions", "bookings", "excursions")}  # fmt: skip
    old = {"start_date_time": at(1), "end_date_time": at(1, 2)}
    fill(tmp_path, {**kept, "excursions": [each | old for each in kept["excursions"]]})
    found = port_report(TablePaths.of(tmp_path), "JPTYO", distance=straight)
    assert found.arriving[0].boxes[0].excursions == 0


def test_a_box_that_was_lost_overboard_is_marked_and_is_no_cargo(story: TablePaths, tmp_path: Path) -> None:
    kept = {name: DeltaTable(story.table(name)).to_pyarrow_dataset().to_table().to_pylist() for name in
            ("sites", "containers_now", "positions", "bookings", "alerts_now")}  # fmt: skip

    def found(state: str) -> PortReport:
        fall = {"alert_id": "fall", "kind": "OVERBOARD", "severity": "CRITICAL", "state": state}
        lost = {**kept["alerts_now"][0], **fall, "equipment_reference": FROZEN}
        fill(tmp_path / state, {**kept, "alerts_now": [*kept["alerts_now"], lost]})
        return port_report(TablePaths.of(tmp_path / state), "JPTYO", distance=straight)

    report = found("UPDATED")
    (ship,) = report.arriving
    assert (ship.for_port, ship.aboard, len(ship.boxes)) == (1, 2, 3)
    assert [box.equipment_reference for box in ship.boxes if box.lost] == [FROZEN]
    assert ship.approach.basis.startswith("1 box aboard")
    assert plain(port_file(report)).count("lost overboard") == 1
    (back,) = found("CLEARED").arriving
    assert (back.for_port, back.aboard) == (2, 3)


def test_what_a_digest_says_is_marked(tmp_path: Path) -> None:
    """At sea the ship's digest is newer than the readings; its own judgement of the air is told."""
    told = rows()
    said = {"equipment_reference": FROZEN, "reading_date_time": NEWEST + dt.timedelta(minutes=15), "in_band": False}
    said |= {"setpoint_temperature": -18.0, "supply_temperature": -11.0, "is_powered": True, "open_alerts": 0}
    told["digests"] = [{"log": f"ships.{SHIP}.digest", "log_offset": 1, "vessel_imo_number": SHIP, "boxes": [said]}]
    fill(tmp_path, told)
    derive(tmp_path)
    report = port_report(TablePaths.of(tmp_path), "JPTYO", distance=straight)
    boxes = {box.equipment_reference: box for box in report.arriving[0].boxes}
    assert (boxes[FROZEN].by_digest, boxes[FROZEN].supply_temperature) == (True, -11.0)
    assert boxes[FROZEN].concerns == ("out of band, says the ship's digest",)
    assert not boxes[WARM].by_digest
    page = port_file(report)
    assert page.count("by the ship's digest") == 1


@pytest.mark.parametrize(
    ("plugged", "powered", "shown"),
    [(True, True, "on"), (True, False, "plugged in, off"), (False, False, "not plugged in")],
)
def test_plugged_and_powered_are_told_apart(
    story: TablePaths, tmp_path: Path, plugged: bool, powered: bool, shown: str
) -> None:
    kept = {name: DeltaTable(story.table(name)).to_pyarrow_dataset().to_table().to_pylist() for name in
            ("sites", "containers_now", "positions", "bookings")}  # fmt: skip
    power = {"is_connected_to_power_source": plugged, "is_powered": powered}
    now = [each | (power if each["equipment_reference"] == WRONG else {}) for each in kept["containers_now"]]
    fill(tmp_path, {**kept, "containers_now": now})
    found = port_report(TablePaths.of(tmp_path), "JPTYO", distance=straight)
    (box,) = [each for each in found.arriving[0].boxes if each.equipment_reference == WRONG]
    assert (box.is_connected_to_power_source, box.is_powered) == (plugged, powered)
    assert (shown in box.concerns) == (not powered)
    (told,) = re.findall(rf"<tr[^>]*><th[^>]*>(?:(?!</tr>).)*{WRONG}.*?</tr>", port_file(found), flags=re.DOTALL)
    cells = [plain(each) for each in re.findall(r"<td[^>]*>(.*?)</td>", told, flags=re.DOTALL)]
    assert shown in cells
