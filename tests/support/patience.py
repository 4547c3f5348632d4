"""Run shore on a machine that is too busy for Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from shore.errors import SlowWorkerError

T = TypeVar("T")
_TRIES: Final = 5


def patient(run: Callable[[], T], tries: int = _TRIES) -> T:
    """Return the result of ``run``; repeat it, as the error advises, when Spark's workers did not start in time."""
    try:
        return run()
    except SlowWorkerError:
        if tries <= 1:
            raise
    return patient(run, tries - 1)
