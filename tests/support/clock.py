"""A wall clock that jumps: for processes of their own, which then believe it is days earlier or later, time and again.

Nothing but the process's own view is changed, and only through Python: ``time.time``, ``time.time_ns`` and
``datetime.now``. The monotonic clock, which counts durations, goes on as ever; so does the brokers' clock.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Self

_EVERY = 0.3  # seconds between two jumps


def jump(seconds: float) -> None:
    """From now on be ``seconds`` ahead and behind in turns, changing several times a second; 0 changes nothing.

    To be called when everything is imported: libraries that look at types must have seen the real ``datetime``.
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
