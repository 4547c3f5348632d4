"""How long to wait before trying again."""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.05
LONGEST: Final = 2.0


def backoff(attempt: int, longest: float = LONGEST) -> float:
    """Seconds before attempt ``attempt`` + 1: doubling from 0.05, for ``attempt`` counted from 0."""
    return min(longest, FIRST * 2.0 ** min(attempt, 16))
