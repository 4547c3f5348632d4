"""Time in which nobody could have answered is not waited for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.admin import LONGEST, SuspendAwareStopwatch


@given(st.lists(st.floats(0, 1000)))
def test_long_steps_count_as_the_longest(steps: list[float]) -> None:
    now = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlead.kafka.admin.time.monotonic", lambda: now)
        stopwatch, seen = SuspendAwareStopwatch(), [0.0]
        for step in steps:
            now += step
            seen.append(stopwatch.seconds())
    for step, (before, after) in zip(steps, pairwise(seen), strict=True):
        assert after - before == pytest.approx(min(step, LONGEST), abs=1e-6)
