"""Every answer of a broker to an append has one meaning, and only one of them is success."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.protocol.types import ProduceResult
from replication.target.appender import AppendMeaning, append_meaning


@pytest.mark.parametrize(
    ("result", "meaning"),
    [
        (ProduceResult(0, 7, -1), AppendMeaning.APPENDED),
        (ProduceResult(0, 7, 1_700_000_000_000), AppendMeaning.DOUBTFUL),  # the answer to a duplicate has a timestamp
        (ProduceResult(0, 8, -1), AppendMeaning.MISPLACED),
        (ProduceResult(45), AppendMeaning.DOUBTFUL),
        (ProduceResult(47), AppendMeaning.DOUBTFUL),
        (ProduceResult(10), AppendMeaning.TOO_LARGE),
        (ProduceResult(87), AppendMeaning.UNACCEPTABLE),
        (ProduceResult(6), AppendMeaning.LATER),
        (ProduceResult(19), AppendMeaning.LATER),  # fewer in-sync replicas than required
        (ProduceResult(29), AppendMeaning.UNAVAILABLE),
        (ProduceResult(13), AppendMeaning.UNKNOWN),
        (None, AppendMeaning.UNKNOWN),
    ],
)
def test_what_an_answer_means(result: ProduceResult | None, meaning: AppendMeaning) -> None:
    """Each error code is classified correctly."""
    assert append_meaning(result, 7) is meaning


@given(st.builds(ProduceResult, st.integers(-1, 130), st.integers(-1, 20), st.integers(-1, 20)), st.integers(0, 20))
def test_only_one_answer_is_success(result: ProduceResult, expected: int) -> None:
    """Only one kind of answer is success."""
    assert (append_meaning(result, expected) is AppendMeaning.APPENDED) == (
        (result.error_code, result.base_offset, result.log_append_time_ms) == (0, expected, -1)
    )
