"""A clock that stops while the machine is held up, for checks that something happens within seconds of running time."""

from __future__ import annotations

import threading
from typing import Final, Self

from fairlead.kafka.admin import SuspendAwareStopwatch

TICK: Final = 0.02
LONGEST: Final = 0.5
"""Longest gap in seconds between two ticks that counts in full; in a longer one this process got no CPU time."""


class SteadyClock:
    """Count seconds since the start, without periods in which this process got no CPU time. Use as a context
    manager."""

    def __init__(self) -> None:
        self._stopwatch = SuspendAwareStopwatch(LONGEST)
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._stopwatch = SuspendAwareStopwatch(LONGEST)
        self._ticking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._ticking.join()

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._stopwatch.seconds()

    def _tick(self) -> None:
        while not self._end.wait(TICK):
            with self._lock:
                self._stopwatch.seconds()
