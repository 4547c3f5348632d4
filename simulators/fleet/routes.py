"""Sea routes between ports, and the position of a ship on a route at a given time.

Routes come from searoute, without network access: its package has the sea lanes and the ports. They are good for
pictures and plausible passage times, but "not for routing purposes" (searoute). Distances are nautical miles, speeds
knots, angles degrees, longitudes in [-180, 180).
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from fairlead.errors import ConfigurationError, UnknownNameError
from topologies.drawing.seachart import ports

EARTH_RADIUS_NM = 3440.065
APPROACH_NM = 15.0  # harbour, pilotage and channel at each end of a passage
APPROACH_KNOTS = 8.0


class Point(NamedTuple):
    """WGS 84 degrees."""

    latitude: float
    longitude: float


class Fix(NamedTuple):
    """A ship's position, speed over ground in knots, and course in degrees [0, 360)."""

    point: Point
    speed: float
    course: float


def distance(a: Point, b: Point) -> float:
    """Return the great-circle distance in nautical miles, by the haversine formula: exact for short distances too."""
    phi_a, phi_b = math.radians(a.latitude), math.radians(b.latitude)
    half_phi, half_lambda = (phi_b - phi_a) / 2, math.radians(b.longitude - a.longitude) / 2
    h = math.sin(half_phi) ** 2 + math.cos(phi_a) * math.cos(phi_b) * math.sin(half_lambda) ** 2
    return 2 * EARTH_RADIUS_NM * math.asin(min(1.0, math.sqrt(h)))


def bearing(a: Point, b: Point) -> float:
    """Return the initial course of the great circle from ``a`` to ``b``."""
    phi_a, phi_b, delta = math.radians(a.latitude), math.radians(b.latitude), math.radians(b.longitude - a.longitude)
    east = math.sin(delta) * math.cos(phi_b)
    north = math.cos(phi_a) * math.sin(phi_b) - math.sin(phi_a) * math.cos(phi_b) * math.cos(delta)
    return math.degrees(math.atan2(east, north)) % 360.0


def destination(start: Point, course: float, nautical_miles: float) -> Point:
    """Return the point that is so far from ``start`` on the great circle with this initial course."""
    angle, theta, phi = nautical_miles / EARTH_RADIUS_NM, math.radians(course), math.radians(start.latitude)
    sin_phi = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(theta)
    delta = math.atan2(math.sin(theta) * math.sin(angle) * math.cos(phi), math.cos(angle) - math.sin(phi) * sin_phi)
    latitude = math.degrees(math.asin(max(-1.0, min(1.0, sin_phi))))
    return Point(latitude, normal_longitude(start.longitude + math.degrees(delta)))


def normal_longitude(degrees: float) -> float:
    """Return the same meridian in [-180, 180)."""
    return (degrees + 180.0) % 360.0 - 180.0


@dataclass(frozen=True, slots=True)
class SeaRoute:
    """A polyline over the sea. ``along[i]`` is the distance from the start to ``points[i]``."""

    origin: str
    destination: str
    points: tuple[Point, ...]
    along: tuple[float, ...]

    @property
    def length(self) -> float:
        return self.along[-1]

    def at(self, nautical_miles: float) -> tuple[Point, float]:
        """Return point and course at a distance from the start; before the start or past the end, those of that end."""
        gone = min(max(nautical_miles, 0.0), self.length)
        leg = min(max(bisect.bisect_right(self.along, gone) - 1, 0), len(self.points) - 2)
        a, b = self.points[leg], self.points[leg + 1]
        sailed, left = gone - self.along[leg], self.along[leg + 1] - gone
        point = destination(a, bearing(a, b), sailed)
        # By the end of the leg that is further away: near a point no bearing to it can be computed.
        return point, bearing(point, b) if left > sailed else (bearing(point, a) + 180.0) % 360.0


@dataclass(frozen=True, slots=True)
class Passage:
    """One ship on one route: slow through the approaches at both ends, at service speed between them."""

    route: SeaRoute
    departs: dt.datetime
    service_speed: float

    @property
    def approach(self) -> float:
        """The length of each approach: ``APPROACH_NM``, but at most a quarter of the route."""
        return min(APPROACH_NM, self.route.length / 4)

    @property
    def approach_speed(self) -> float:
        return min(APPROACH_KNOTS, self.service_speed)

    @property
    def duration(self) -> dt.timedelta:
        slow, fast = 2 * self.approach, self.route.length - 2 * self.approach
        return dt.timedelta(hours=slow / self.approach_speed + fast / self.service_speed)

    @property
    def arrives(self) -> dt.datetime:
        return self.departs + self.duration

    def at(self, time: dt.datetime) -> Fix:
        """Return the ship's fix at ``time``; in port, at speed 0, before the departure and after the arrival."""
        hours = (time - self.departs) / dt.timedelta(hours=1)
        total = self.duration / dt.timedelta(hours=1)
        slow_hours = self.approach / self.approach_speed
        if hours < 0 or hours >= total:
            point, course = self.route.at(0.0 if hours < 0 else self.route.length)
            return Fix(point, 0.0, course)
        if hours < slow_hours:
            gone, speed = hours * self.approach_speed, self.approach_speed
        elif hours > total - slow_hours:
            gone, speed = self.route.length - (total - hours) * self.approach_speed, self.approach_speed
        else:
            gone, speed = self.approach + (hours - slow_hours) * self.service_speed, self.service_speed
        point, course = self.route.at(gone)
        return Fix(point, speed, course)


def port(unlocode: str) -> Point:
    """Return the position of a port by its UN/LOCODE (``JPTYO``).

    Raises:
        UnknownNameError: searoute's table of 3,962 ports does not have it.
    """
    place = ports().get(unlocode)
    if place is None:
        raise UnknownNameError("port", unlocode, (code for code in ports() if code[:2] == unlocode[:2]))
    return Point(place.latitude, place.longitude)


@cache
def route(origin: str, destination_: str) -> SeaRoute:
    """Return the shortest sea route between two ports by UN/LOCODE, from berth to berth.

    Raises:
        UnknownNameError: searoute does not know a port.
        ConfigurationError: the two are the same, or no sea route joins them.
    """
    from searoute import searoute

    start, end = port(origin), port(destination_)
    if start == end:
        raise ConfigurationError(
            f"no route from {origin} to itself",
            hint="two calls of a ship one after the other need different ports, or at_sea",
        )
    found = searoute((start.longitude, start.latitude), (end.longitude, end.latitude), units="naut")
    lanes = [Point(latitude, normal_longitude(longitude)) for longitude, latitude in found.geometry.coordinates]
    if not lanes:
        raise ConfigurationError(f"no sea route joins {origin} and {destination_}", hint="choose seaports")
    points = [start]
    for point in (*lanes, end):
        if distance(points[-1], point) > 1e-6:  # searoute repeats points, for example at the date line
            points.append(point)
    return _along(origin, destination_, points)


def round_trip(unlocode: str, lasts: dt.timedelta, service_speed: float) -> SeaRoute:
    """Return a route from a port out to sea and back the same way, whose passage at ``service_speed`` takes ``lasts``.

    The way out is the beginning of the sea lane to a large port far away, so that it stays on water.

    Raises:
        UnknownNameError: searoute does not know the port.
        ConfigurationError: no lane from there is long enough.
    """
    out = miles_in(lasts, service_speed) / 2
    for far in _FAR_PORTS:
        lane = route(unlocode, far) if unlocode != far else None
        if lane is not None and lane.length > out:
            turn, _ = lane.at(out)
            way = [point for point, gone in zip(lane.points, lane.along, strict=True) if gone < out]
            return _along(unlocode, unlocode, [*way, turn, *reversed(way)])
    raise ConfigurationError(
        f"a round trip of {lasts} from {unlocode} at {service_speed:g} kn is longer than any sea lane from there",
        hint="choose a shorter at_sea, or a call at another port",
    )


_FAR_PORTS = ("USLAX", "NLRTM")  # no port is close to both


def miles_in(lasts: dt.timedelta, service_speed: float) -> float:
    """Return the length of a route on which a ``Passage`` at ``service_speed`` takes this long."""
    hours = lasts / dt.timedelta(hours=1)
    slow = min(APPROACH_KNOTS, service_speed)
    shortest = 4 * APPROACH_NM  # with full approaches; half of a shorter route is approach
    if hours < (shortest / 2) * (1 / slow + 1 / service_speed):
        return 2 * hours / (1 / slow + 1 / service_speed)
    return 2 * APPROACH_NM + (hours - 2 * APPROACH_NM / slow) * service_speed


def _along(origin: str, destination_: str, points: list[Point]) -> SeaRoute:
    lengths = (distance(a, b) for a, b in pairwise(points))
    return SeaRoute(origin, destination_, tuple(points), tuple(itertools.accumulate(lengths, initial=0.0)))
