"""Distances on the sphere, and positions that mean "not available"."""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt

from fairlead.records.reading import GeoLocation

EARTH_RADIUS_M = 6_371_008.8  # mean radius, IUGG
KNOT = 1852 / 3600  # metres per second


def known(place: GeoLocation | None) -> GeoLocation | None:
    """The place, or None for what devices send without a fix: (0, 0), and AIS' latitude 91 and longitude 181."""
    if place is None or (place.latitude == 0 and place.longitude == 0):
        return None
    return place if abs(place.latitude) <= 90 and abs(place.longitude) <= 180 else None


def distance_m(a: GeoLocation, b: GeoLocation) -> float:
    """Great-circle distance in metres (haversine)."""
    lat_a, lat_b = radians(a.latitude), radians(b.latitude)
    half_lat = sin((lat_b - lat_a) / 2)
    half_lon = sin(radians(b.longitude - a.longitude) / 2)
    return 2 * EARTH_RADIUS_M * asin(min(1.0, sqrt(half_lat**2 + cos(lat_a) * cos(lat_b) * half_lon**2)))
