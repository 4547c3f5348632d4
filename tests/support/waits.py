"""How long tests wait for something that must happen, and the waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 120.0
"""Seconds to wait for something that must happen.

A busy machine stalls for half a minute now and then, and a longer wait only delays a failure. Do not use it
for something that must *not* happen: such a test always waits that long.
"""


class Clock:
    """Seconds that a test turns forward, for what takes a clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def until(true: Callable[[], bool], what: str = "the condition", *, patience: float = PATIENCE) -> None:
    """Wait for a condition. Fails after ``patience`` seconds."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"waited {patience:g} s for {what}"
        time.sleep(0.02)
