"""Visits of geofences, from a ship's positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shore.geofences import Circle, Visit, visits, window
from shore.sailing import Track

HOUR = 3_600_000_000
STRAIT = Circle("strait", 1.0, 104.0, 50.0)
ROADS = Circle("roads", 1.1, 104.0, 5.0)  # inside the strait
CAPE = Circle("cape", 10.0, 110.0, 20.0)
GEOFENCES = (CAPE, ROADS, STRAIT)
PLACES = {"sea": (5.0, 107.0), "strait": (0.9, 104.0), "roads": (1.1, 104.01), "cape": (10.0, 110.1)}

Fix = tuple[float, str]  # hour, place


def track(fixes: Sequence[Fix]) -> Track:
    ordered = sorted(fixes)
    places = np.array([PLACES[place] for _, place in ordered]).reshape(-1, 2)
    return Track(
        np.array([int(hour * HOUR) for hour, _ in ordered], np.int64),
        places[:, 0],
        places[:, 1],
        np.full(len(ordered), 14.0),
        np.zeros(len(ordered), np.int64),
    )


def seen(*fixes: Fix) -> list[tuple[str, float, float | None, int]]:
    """Return geofence, hours of entering and leaving, and the number of positions of each visit."""
    return [
        (each.geofence, each.entered / HOUR, None if each.left is None else each.left / HOUR, each.positions)
        for each in visits(track(fixes), GEOFENCES)
    ]


@pytest.mark.parametrize(
    ("fixes", "wanted"),
    [
        ([], []),
        ([(1, "sea"), (2, "sea")], []),
        ([(1, "sea"), (2, "cape"), (3, "cape"), (4, "sea")], [("cape", 2, 3, 2)]),
        ([(1, "cape"), (2, "cape")], [("cape", 1, None, 2)]),  # it is there
        ([(1, "cape"), (2, "strait")], [("cape", 1, 1, 1), ("strait", 2, None, 1)]),  # from one into the next
        ([(1, "cape"), (900, "cape"), (901, "sea")], [("cape", 1, 900, 2)]),  # a gap does not end a visit
        ([(1, "cape"), (2, "sea"), (3, "cape")], [("cape", 1, 1, 1), ("cape", 3, None, 1)]),
        ([(1, "strait"), (2, "roads"), (3, "strait"), (4, "sea")], [("roads", 2, 2, 1), ("strait", 1, 3, 3)]),
    ],
)
def test_visits_are_runs_of_positions_inside(fixes: list[Fix], wanted: list[object]) -> None:
    assert seen(*fixes) == wanted


def test_the_edge_belongs_to_a_circle_and_the_date_line_is_no_edge() -> None:
    line = Circle("line", 0.0, 179.9, 23.0)  # 0.2 degrees of the equator are 22.24 km
    east = Track(
        np.array([1, 2]), np.array([0.0, 0.0]), np.array([-179.9, -179.89]), np.zeros(2), np.zeros(2, np.int64)
    )
    assert visits(east, [line]) == [Visit("line", 1, 1, 1)]
    assert visits(east, [line._replace(within_km=22.0)]) == []


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(sorted(PLACES))), max_size=16, unique_by=lambda fix: fix[0]),
    st.data(),
)
def test_new_positions_change_only_visits_within_their_window(fixes: list[Fix], data: st.DataObject) -> None:
    """The positions may come in any order and be divided in any way: each part changes what its window says."""
    stored: set[Visit] = set()
    known: list[Fix] = []
    while fixes:
        count = data.draw(st.integers(1, len(fixes)))
        new, fixes = fixes[:count], fixes[count:]
        known += new
        times = [int(hour * HOUR) for hour, _ in new]
        bounds = window(track(known), GEOFENCES, min(times), max(times))
        assert bounds is not None
        begun = data.draw(st.sampled_from([0, *(hour for hour, _ in known)]))
        newest = track([fix for fix in known if fix[0] >= begun])  # as a job reads them: not all the way back
        cut = window(newest, GEOFENCES, min(times), max(times), cut=True)
        assert cut in (None, bounds)
        read = newest if cut is not None else track(known)
        stored = {each for each in stored if not bounds.has(each.entered)}
        stored |= {each for each in visits(read, GEOFENCES) if bounds.has(each.entered)}
        assert stored == set(visits(track(known), GEOFENCES))


def test_a_window_reaches_to_the_next_positions_outside_all_geofences() -> None:
    sailed = track([(1, "sea"), (2, "strait"), (3, "roads"), (4, "strait"), (5, "sea"), (6, "cape"), (7, "sea")])
    bounds = window(sailed, GEOFENCES, 3 * HOUR, 3 * HOUR)
    assert bounds is not None
    assert (bounds.since, bounds.until) == (1 * HOUR, 5 * HOUR)
    begun = track([(2, "strait"), (3, "roads"), (4, "sea")])
    assert window(begun, GEOFENCES, 3 * HOUR, 3 * HOUR, cut=True) is None
    whole = window(begun, GEOFENCES, 3 * HOUR, 3 * HOUR)
    assert whole is not None
    assert (whole.since, whole.until) == (None, 4 * HOUR)
