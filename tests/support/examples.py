"""How many examples Hypothesis tries: a part of them in the suite, all of them by ``make chaos``."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

WHOLE: Final = 100
"""Examples of a test that says nothing of it, with profile ``whole``."""
SUITE: Final = 40
"""With profile ``fairlead``, which is in force when no other is chosen."""


def examples(whole: int) -> int:
    """``max_examples`` for a test that is to try ``whole`` of them: as large a part as the profile in force tries of
    those of other tests."""
    return max(1, whole * settings().max_examples // WHOLE)
