from __future__ import annotations

import datetime as dt

import pytest

from fairlead.errors import ConfigurationError
from simulators.dates import check_clock

TODAY = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def test_a_voyage_into_the_future_is_refused() -> None:
    check_clock(TODAY - 3 * DAY, TODAY + DAY, TODAY, None)
    check_clock(TODAY, TODAY + 3 * DAY, TODAY, 1.0)  # as slowly as life
    for starts, days, speed in ((TODAY, 1.1, None), (TODAY, 3, 3600.0), (TODAY + 2 * DAY, 3, 0.1)):
        with pytest.raises(ConfigurationError, match="24 h ahead of their clock"):
            check_clock(starts, starts + days * DAY, TODAY, speed)
