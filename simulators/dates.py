"""When a voyage may take place: never in the future, as the bridges' clocks see it. Pure.

Records carry their devices' time, and a bridge refuses readings from more than a day ahead of its own clock. Any
time in the past will do: retention counts from a log's own newest record (``replication.retention``).
"""

from __future__ import annotations

import datetime as dt

from edge.classifier import MAX_AHEAD
from fairlead.errors import ConfigurationError


def check_clock(starts: dt.datetime, ends: dt.datetime, now: dt.datetime, speed: float | None) -> None:
    """Refuse a voyage into the future. ``speed``: simulated seconds per second, None for as fast as it goes.

    Raises:
        ConfigurationError: bridges would take its last readings for those of devices with a wrong clock.
    """
    playing = (ends - starts) / speed if speed else dt.timedelta(0)
    if max(starts - now, ends - now - playing) > MAX_AHEAD:
        raise ConfigurationError(
            f"the voyage would last until {ends:%Y-%m-%d %H:%M} UTC, and bridges refuse readings of more than "
            f"{MAX_AHEAD // dt.timedelta(hours=1)} h ahead of their clock",
            hint="choose an earlier --start",
        )
