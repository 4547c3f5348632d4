"""Which time ranges a batch reads: late readings of few boxes get an extent of their own."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from shore.jobs.spans import Extent, join_extents

T0 = dt.datetime(2026, 3, 1, 22, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
DAY = dt.timedelta(days=1)


def extent(low: dt.timedelta, high: dt.timedelta, first: str = "A", last: str = "Z") -> Extent:
    return Extent(T0 + low, T0 + high, first, max(first, last))


def test_a_late_reading_has_an_extent_of_its_own() -> None:
    now, late = extent(-HOUR, 0 * HOUR), extent(-30 * DAY, -30 * DAY, "A", "A")
    assert join_extents([now, late]) == (late, now)


def test_extents_that_are_close_are_joined() -> None:
    found = join_extents(
        [extent(0 * HOUR, HOUR, "B", "D"), extent(3 * HOUR, 4 * HOUR, "C", "E"), extent(-DAY, -DAY, "A", "A")]
    )
    assert found == (extent(-DAY, 4 * HOUR, "A", "E"),)


def test_weeks_of_one_box_do_not_draw_in_those_who_report_now() -> None:
    ship, now = extent(-21 * DAY, 0 * HOUR, "A", "A"), extent(-HOUR, 0 * HOUR)
    assert join_extents([ship, now]) == (ship, now)


spans = st.builds(
    lambda begin, length, box: extent(begin * HOUR, (begin + length) * HOUR, box, box),
    st.integers(-50_000, 0),
    st.integers(0, 400),
    st.sampled_from("ABC"),
)


@given(st.lists(spans, max_size=200))
def test_every_span_is_in_an_extent_and_there_are_few(given_spans: list[Extent]) -> None:
    found = join_extents(given_spans)
    assert len(found) <= 10
    for span in given_spans:
        assert any(each.join(span) == each for each in found)
