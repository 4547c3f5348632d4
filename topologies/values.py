"""The small values of a topology that people write with units: durations and rates. Pure functions."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

FOREVER = dt.timedelta.max
_DURATION = re.compile(r"(\d+)\s*(s|m|h|d|w|y)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)(bit|B)/s")
_FACTOR = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def parse_duration(value: Any) -> dt.timedelta:
    """``90d``, ``12h``, ``10y`` (365 days each) or ``forever``."""
    if isinstance(value, dt.timedelta):
        return value
    if value == "forever":
        return FOREVER
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration: a whole number with s, m, h, d, w or y (90d), or 'forever'")
    return dt.timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def parse_rate(value: Any) -> int:
    """Bytes per second from ``64 kbit/s``, ``100 Mbit/s`` or ``8 kB/s`` (decimal prefixes, as links are sold)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a rate such as '64 kbit/s', '2 Mbit/s' or '8 kB/s'")
    per_second = float(match[1]) * _FACTOR[match[2]]
    return max(1, int(per_second / 8 if match[3] == "bit" else per_second))


Duration = Annotated[dt.timedelta, BeforeValidator(parse_duration)]
BytesPerSecond = Annotated[int, BeforeValidator(parse_rate)]
