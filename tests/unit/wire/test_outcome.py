"""The table "what a writer concludes", row by row."""

from __future__ import annotations

import pytest

from fairlead.wire.outcome import Verdict, judge
from fairlead.wire.types import ProduceResult


@pytest.mark.parametrize(
    ("result", "expected", "verdict"),
    [
        (ProduceResult(0, 7, -1), 7, Verdict.MINE),
        (ProduceResult(0, 7, 1_700_000_000_000), 7, Verdict.EXAMINE),
        (ProduceResult(0, 7, 0), 7, Verdict.EXAMINE),
        (ProduceResult(0, 8, -1), 7, Verdict.MISPLACED),
        (ProduceResult(0, 8, -1), None, Verdict.MINE),
        (ProduceResult(0, 8, 5), None, Verdict.EXAMINE),
        (ProduceResult(45), 7, Verdict.EXAMINE),
        (ProduceResult(47), 7, Verdict.FENCED),
        *[(ProduceResult(code), 7, Verdict.LATER) for code in (3, 5, 6, 7, 13, 19, 20, 56)],
        *[(ProduceResult(code), 7, Verdict.REFUSED) for code in (-1, 2, 10, 29, 32, 53, 87)],
    ],
)
def test_judge(result: ProduceResult, expected: int | None, verdict: Verdict) -> None:
    assert judge(result, expected) is verdict
