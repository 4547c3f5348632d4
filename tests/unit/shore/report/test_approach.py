"""Whether a ship is coming to a port, and when it arrives, from its positions."""

from __future__ import annotations

import datetime as dt

import pytest

from shore.report.port import Place, approach, sea_distance
from shore.report.slices import Row
from shore.tables.model import LAST
from tests.support.port_story import at

PORT: Place = (10.0, 0.0)


def flat(start: Place, end: Place) -> float:
    return 60 * abs(start[0] - end[0])


def sailing(hours: int, knots: float, *, speed: float | None = None, start: float = 0.0) -> list[Row]:
    """Return a position each hour eastwards along the equator."""
    return [
        {"device_date_time": at(1, hour), "latitude": 0.0, "longitude": start + hour * knots / 60,
         "speed_over_ground": abs(knots) if speed is None else speed, "course_over_ground": 90.0}
        for hour in range(hours + 1)
    ]  # fmt: skip


def test_the_time_is_the_distance_at_the_mean_speed_of_six_hours() -> None:
    found = approach([*sailing(2, 6.0), *[dict(row) for row in sailing(12, 12.0)[3:]]], PORT, 3, flat)
    assert (found.bound, found.distance, found.mean_speed, found.comes_nearer) == ("CARGO", 456.0, 12.0, True)
    assert found.eta == at(1, 12) + dt.timedelta(hours=38)
    assert found.basis.startswith("3 boxes aboard booked to here; estimated: 456 nmi")


@pytest.mark.parametrize(
    ("positions", "booked", "bound", "has_eta"),
    [
        (sailing(6, 12.0), 0, "COURSE", True),
        (sailing(6, -12.0), 0, "NO", False),
        (sailing(6, -12.0), 1, "CARGO", False),  # sails away with boxes for here: another port comes first
        (sailing(6, 0.0), 0, "NO", False),
        (sailing(6, 0.0), 1, "CARGO", False),
        (sailing(0, 12.0), 1, "CARGO", True),  # one position does not show that it sails away
        (sailing(0, 12.0), 0, "NO", True),
        ([], 1, "CARGO", False),
        ([], 0, "NO", False),
    ],
)
def test_why_a_ship_is_thought_to_come(positions: list[Row], booked: int, bound: str, has_eta: bool) -> None:
    found = approach(positions, PORT, booked, flat)
    assert (found.bound, found.eta is not None) == (bound, has_eta)


def test_without_a_speed_or_a_place_of_the_port_there_is_no_time() -> None:
    still = [{**row, "speed_over_ground": None} for row in sailing(6, 12.0)]
    assert approach(still, PORT, 1, flat).eta is None
    found = approach(sailing(6, 12.0), None, 1, flat)
    assert (found.eta, found.distance) == (None, None)
    assert "place is not known" in found.basis


def test_a_ship_whose_clock_is_at_the_end_of_the_calendar_has_no_time() -> None:
    """Slices tell a stored time beyond the calendar as its end."""
    later = LAST - at(1, 12)
    positions = [{**row, "device_date_time": row["device_date_time"] + later} for row in sailing(12, 12.0)]
    found = approach(positions, PORT, 1, flat)
    assert (found.position_date_time, found.eta) == (LAST, None)


def test_sea_distance_goes_around_land() -> None:
    singapore, tokyo = (103.84, 1.26), (139.79, 35.61)
    assert 2_850 < sea_distance(singapore, tokyo) < 3_100  # 2,890 by usual distance tables
