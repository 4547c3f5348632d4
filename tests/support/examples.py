"""Set how many examples Hypothesis tries: a fraction in the test suite, all of them in ``make chaos``."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

WHOLE: Final = 100
"""Examples of a test that sets no number of its own, with profile ``whole``."""
SUITE: Final = 25
"""Examples of such a test with profile ``fairlead``, the default."""


def examples(whole: int) -> int:
    """Return ``max_examples`` for a test that tries ``whole`` examples in full. The active profile scales it by the
    same fraction as for other tests.
    """
    return max(1, whole * settings().max_examples // WHOLE)
