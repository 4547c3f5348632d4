"""A wall clock that jumps repeatedly by days, for a test process of its own.

It changes only what this process sees, and only through Python: ``time.time``, ``time.time_ns`` and ``datetime.now``.
The monotonic clock, which measures durations, and the brokers' clock run on unchanged.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Self

_EVERY = 0.3  # seconds between two jumps


def jump(seconds: float) -> None:
    """Make the wall clock jump from now on: alternately ``seconds`` ahead and behind, several times a second; 0 changes
    nothing.

    Call it after all imports: libraries that inspect types must have seen the real ``datetime``.
    """
    if not seconds:
        return
    real, real_ns, began = time.time, time.time_ns, time.monotonic()

    def ahead() -> float:
        return seconds * (0, 1, -1)[int((time.monotonic() - began) / _EVERY) % 3]

    class Jumping(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(real() + ahead(), tz)

        @classmethod
        def utcnow(cls) -> Self:
            raise NotImplementedError("without a time zone it would mean nothing")

    vars(time).update(time=lambda: real() + ahead(), time_ns=lambda: real_ns() + int(ahead() * 1e9))
    vars(dt).update(datetime=Jumping)
