"""Bytes per second that an audit may read from one site."""

from __future__ import annotations

import time
from collections.abc import Callable

from replication.rate import TokenBucket


class Pace:
    """A token bucket with a clock; without a rate nothing ever waits. One for each site.

    Args:
        rate: Bytes per second, or None.
        clock: Seconds, monotonic.
    """

    def __init__(self, rate: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, max(1, rate // 2), now=clock())

    def wait(self) -> float:
        """Seconds until something may be read; 0 when it may be now."""
        return self._bucket.wait(self._clock()) if self._bucket else 0.0

    def allowance(self, most: int) -> int:
        """Bytes to ask for now, at least 1 and at most ``most``."""
        return max(1, min(most, int(self._bucket.available(self._clock())))) if self._bucket else most

    def charge(self, count: int) -> None:
        """Account for bytes that were read."""
        if self._bucket:
            self._bucket.charge(count, self._clock())
