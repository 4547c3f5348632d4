"""How long something was waited for, without the time in which nobody on this machine could have answered."""

from __future__ import annotations

import time
from typing import Final

LONGEST: Final = 2.0
"""Seconds between two looks that count. Where there are more, a virtual machine was held up or a laptop was closed, and
those who were waited for stood still as well, or nobody listened to them."""


class Awake:
    """Counts from when it is made. Whoever waits looks at it more often than every ``longest`` seconds."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self._last = time.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Seconds that this process was awake since it was made, as far as its looks can tell."""
        now = time.monotonic()
        self._seconds += min(now - self._last, self._longest)
        self._last = now
        return self._seconds
