"""How pages write times, numbers and durations."""

from __future__ import annotations

import datetime as dt

import pytest

from shore.report.wording import count, duration, number, time


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(None, ""), (0.4, "0 min"), (59.4, "59 min"), (60, "1 h"), (225, "3 h 45 min"), (2_879, "47 h 59 min"),
     (2_880, "2 d"), (17_520, "12 d 4 h")],
)  # fmt: skip
def test_duration(minutes: float | None, text: str) -> None:
    assert duration(minutes) == text


def test_numbers_and_times() -> None:
    assert [count(n, "record") for n in (0, 1, 2_500)] == ["0 records", "1 record", "2,500 records"]
    assert (number(None), number(2.0), number(8.285, 2), number(8.0, 2), number(12_345.6, 0)) == (
        "", "2.0", "8.29", "8", "12,346",
    )  # fmt: skip
    east = dt.timezone(dt.timedelta(hours=9))
    assert time(dt.datetime(2026, 3, 1, 9, tzinfo=east)) == "2026-03-01 00:00"
    assert time(None) == ""
