"""Find a ship's visits of geofences, which are circles, in its positions. Pure.

A visit is a run of consecutive positions inside one geofence. It lasts from its first to its last position; a gap
between two of them does not end it, a position outside does. Geofences may overlap: each has visits of its own.

A position outside all geofences separates what was before it from what comes after. So a change is local: ``window``
returns between which such positions visits may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shore.sailing import TimeBounds, Track, nautical_miles

_KM: Final = 1.852  # of a nautical mile


class Circle(NamedTuple):
    """A circle around a place in WGS 84 degrees; its edge belongs to it."""

    name: str
    latitude: float
    longitude: float
    within_km: float


@dataclass(frozen=True, slots=True)
class Visit:
    """A stay inside a geofence, in microseconds since 1970. ``left`` is None while no position outside has followed."""

    geofence: str
    entered: int
    left: int | None
    positions: int


def visits(track: Track, geofences: Sequence[Circle]) -> list[Visit]:
    """Return the visits of one ship, by geofence and in order of time."""
    found = []
    for geofence, inside in zip(geofences, _inside(track, geofences), strict=True):
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))  # runs begin and end by turns
        for begin, end in edges.reshape(-1, 2):
            left = int(track.time[end - 1]) if end < len(track) else None
            found.append(Visit(geofence.name, int(track.time[begin]), left, int(end - begin)))
    return found


def window(track: Track, geofences: Sequence[Circle], first: int, last: int, *, cut: bool = False) -> TimeBounds | None:
    """Return which visits, by their beginning, may change when positions from ``first`` to ``last`` are new.

    Args:
        track: The ship's positions, the new ones too.
        cut: Earlier positions of the ship are missing. The result is None if it may depend on them.
    """
    outside = track.time[~_inside(track, geofences).any(axis=0)]
    low, high = int(np.searchsorted(outside, first)) - 1, int(np.searchsorted(outside, last, side="right"))
    if cut and low < 0:
        return None
    return TimeBounds(
        since=int(outside[low]) if low >= 0 else None, until=int(outside[high]) if high < len(outside) else None
    )


def _inside(track: Track, geofences: Sequence[Circle]) -> npt.NDArray[np.bool_]:
    """Return for each geofence (row) and position (column) whether it is inside."""
    found = np.zeros((len(geofences), len(track)), np.bool_)
    for row, (_, latitude, longitude, within_km) in zip(found, geofences, strict=True):
        row[:] = nautical_miles(track.latitude, track.longitude, latitude, longitude) * _KM <= within_km
    return found
