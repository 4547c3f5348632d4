"""What the sensor of a falling container reports: the last minutes of a box that slips off the stern. Pure functions.

Modelled on what the notes on lost containers say can be seen (motion, tilt, immersion, a position that leaves the
hull, lost power), no published operational record is known. The device reports at once when something happens. Its
radio reaches the ship until the ship is some miles away, then the antenna drowns.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from fairlead.records.reading import Motion
from simulators.routes import Point, destination

LEEWAY_KNOTS = 1.4  # a floating box drifts before wind and sea
DRIFT_COURSE = 40.0


class Stage(NamedTuple):
    """One reading of a fall: ``after`` the lashings part; ``decides`` where its evidence leaves no doubt."""

    after: dt.timedelta
    motion: Motion
    adrift: bool
    decides: bool


def _stage(seconds: int, motion: Motion, *, adrift: bool = True, decides: bool = False) -> Stage:
    return Stage(dt.timedelta(seconds=seconds), motion, adrift, decides)


STAGES: tuple[Stage, ...] = (
    # Lashings part in a roll, the plug is torn out; still on board.
    _stage(0, Motion(tilt_degrees=31.0, peak_g=2.1), adrift=False),
    # 14 m of free fall take 1.7 s; the water stops the box hard, on its side.
    _stage(4, Motion(tilt_degrees=97.0, peak_g=15.5, free_fall_seconds=1.7, immersed=True), decides=True),
    # It bobs up and floats low, while the ship steams away at 500 m a minute.
    _stage(45, Motion(tilt_degrees=64.0, peak_g=1.6, immersed=True)),
    _stage(110, Motion(tilt_degrees=52.0, peak_g=1.4, immersed=True)),
    _stage(230, Motion(tilt_degrees=58.0, peak_g=1.4, immersed=True)),
)


def drifted(fell_at: Point, since: dt.timedelta) -> Point:
    """Where a box floats some time after it hit the water."""
    return destination(fell_at, DRIFT_COURSE, LEEWAY_KNOTS * max(0.0, since / dt.timedelta(hours=1)))
