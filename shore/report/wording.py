"""How reports and pages word times, numbers, movements and states. All times are UTC."""

from __future__ import annotations

import datetime as dt
from typing import Final

MOVEMENTS: Final = {
    "ARRI": "ship arrived",
    "DEPA": "ship left",
    "GTIN": "came to the dock",
    "LOAD": "loaded",
    "DISC": "unloaded",
    "GTOT": "left by the gate",
}
STATES: Final = {
    "DEFROST": "defrosting",
    "INSPECTION": "inspection before a trip",
    "UNPLUGGED": "not plugged in",
    "NO_POWER": "plugged in, off",
    "DOOR_OPEN": "door open",
    "IMMERSED": "in water",
    "SETPOINT": "set to something else",
    "GAP": "nothing heard",
}


def time(moment: dt.datetime | None) -> str:
    """Format a time in UTC to the minute; return an empty text for None."""
    return "" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}"


def number(value: float | None, digits: int = 1) -> str:
    """Format a number with ``digits`` digits after the point, without trailing zeros if these are two or more; None
    gives an empty text."""
    if value is None:
        return ""
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits > 1 else text


def count(number: int, what: str) -> str:
    """Format a count of things: 1 record, 2,500 records."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(minutes: float | None) -> str:
    """Format minutes as people say them: 45 min, 3 h 15 min, 12 d 4 h; return an empty text for None."""
    if minutes is None:
        return ""
    whole = round(minutes)
    if whole < 60:
        return f"{whole} min"
    hours, rest = divmod(whole, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
