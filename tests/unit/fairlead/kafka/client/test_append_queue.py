"""The table "what a writer concludes", row by row."""

from __future__ import annotations

import pytest

from fairlead.kafka.client.append_queue import AppendVerdict, judge
from fairlead.kafka.protocol.types import ProduceResult


@pytest.mark.parametrize(
    ("result", "expected", "verdict"),
    [
        (ProduceResult(0, 7, -1), 7, AppendVerdict.MINE),
        (ProduceResult(0, 7, 1_700_000_000_000), 7, AppendVerdict.EXAMINE),
        (ProduceResult(0, 7, 0), 7, AppendVerdict.EXAMINE),
        (ProduceResult(0, 8, -1), 7, AppendVerdict.MISPLACED),
        (ProduceResult(0, 8, -1), None, AppendVerdict.MINE),
        (ProduceResult(0, 8, 5), None, AppendVerdict.EXAMINE),
        (ProduceResult(45), 7, AppendVerdict.EXAMINE),
        (ProduceResult(47), 7, AppendVerdict.FENCED),
        *[(ProduceResult(code), 7, AppendVerdict.LATER) for code in (3, 5, 6, 7, 13, 19, 20, 56)],
        *[(ProduceResult(code), 7, AppendVerdict.REFUSED) for code in (-1, 2, 10, 29, 32, 53, 87)],
    ],
)
def test_judge(result: ProduceResult, expected: int | None, verdict: AppendVerdict) -> None:
    assert judge(result, expected) is verdict
