"""Which ships come to a port, and when: an estimate from where they are, since no log says where a ship is bound for.

Pure but for the sea distances, which searoute finds on its network of sea lanes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from shore.report.slices import Row

Place = tuple[float, float]
"""Longitude and latitude, WGS 84."""
Distance = Callable[[Place, Place], float]
"""Nautical miles by sea."""
Bound = Literal["CARGO", "COURSE", "NO"]

LOOK_BACK: Final = dt.timedelta(hours=6)
_SAILING: Final = 1.0  # knots; what is slower lies still
_NEARER: Final = 0.5  # of the way it made
_AWAY: Final = -0.25  # the same for going away; in between the lanes' turns say nothing


class Approach(msgspec.Struct, frozen=True, kw_only=True):
    """A ship on its way, as far as its positions tell.

    Args:
        bound: Why it is thought to come: ``CARGO``: boxes aboard are booked to be discharged here; ``COURSE``: it comes
            nearer, and nothing else is known; ``NO``: neither.
        position_date_time: Its newest position; ``speed``, ``course`` (knots, degrees) are of it.
        distance: Nautical miles from there by sea lanes; null where the port's place is not known.
        mean_speed: Knots over the last six hours, along its way.
        comes_nearer: Whether these six hours brought it nearer by at least half of the way that it made; null where
            that cannot be told.
        eta: position_date_time + distance / mean_speed; null while it lies still or goes away.
        basis: How the estimate was made, in words.
    """

    bound: Bound
    position_date_time: dt.datetime | None = None
    latitude: float | None = None
    longitude: float | None = None
    speed: float | None = None
    course: float | None = None
    distance: float | None = None
    mean_speed: float | None = None
    comes_nearer: bool | None = None
    eta: dt.datetime | None = None
    basis: str = ""


def approach(positions: Sequence[Row], port: Place | None, booked: int, distance: Distance) -> Approach:
    """Judge a ship by its positions of the last hours, in order of time.

    Args:
        positions: Rows of table ``positions`` with a place.
        booked: How many boxes aboard are booked to be discharged at the port.
    """
    if not positions:
        basis = "no position of the ship is known"
        return Approach(bound="CARGO" if booked else "NO", basis=_because(booked, basis))
    newest = positions[-1]
    recent = [row for row in positions if row["device_date_time"] >= newest["device_date_time"] - LOOK_BACK]
    here, earlier = _place(newest), _place(recent[0])
    hours = (newest["device_date_time"] - recent[0]["device_date_time"]) / dt.timedelta(hours=1)
    speed = _mean([row["speed_over_ground"] for row in recent if row["speed_over_ground"] is not None])
    left = distance(here, port) if port is not None else None
    nearer = distance(earlier, port) - left if port is not None and left is not None and hours > 0 else None
    sails = speed is not None and speed >= _SAILING
    gain = nearer / (speed * hours) if nearer is not None and speed is not None and sails else None
    comes = None if gain is None else gain >= _NEARER
    bound: Bound = "CARGO" if booked else "COURSE" if comes else "NO"
    eta = None
    if left is not None and speed is not None and sails and (gain is None or gain > _AWAY):
        eta = newest["device_date_time"] + dt.timedelta(hours=left / speed)
    return Approach(
        bound=bound,
        position_date_time=newest["device_date_time"],
        latitude=newest["latitude"],
        longitude=newest["longitude"],
        speed=newest["speed_over_ground"],
        course=newest["course_over_ground"],
        distance=None if left is None else round(left, 1),
        mean_speed=None if speed is None else round(speed, 1),
        comes_nearer=comes,
        eta=None if eta is None else eta.replace(second=0, microsecond=0),
        basis=_because(booked, _estimate(left, speed, eta)),
    )


def sea_distance(start: Place, end: Place) -> float:
    """Nautical miles along sea lanes, by searoute, and from both ends to the nearest lane."""
    import searoute

    found = searoute.searoute(list(start), list(end), units="naut", append_orig_dest=True)
    return float(found["properties"]["length"])


def _estimate(left: float | None, speed: float | None, eta: dt.datetime | None) -> str:
    if left is None:
        return "the port's place is not known"
    if speed is None or speed < _SAILING:
        return f"{left:,.0f} nmi away by sea lanes, and it lies still"
    if eta is None:
        return f"{left:,.0f} nmi away by sea lanes, and it goes away"
    return f"estimated: {left:,.0f} nmi by sea lanes at {speed:.1f} kn, the mean of its last six hours"


def _because(booked: int, text: str) -> str:
    why = (
        f"{booked} box{'es' if booked != 1 else ''} aboard booked to here" if booked else "no box aboard booked to here"
    )
    return f"{why}; {text}"


def _place(row: Row) -> Place:
    return row["longitude"], row["latitude"]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
