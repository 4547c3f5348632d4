"""Draw a plain sea chart as a background: the world's ports as dots, the sea lanes as thin lines. Look up ports.

The data come with searoute (3,962 ports, the maritime network; Apache-2.0). They are read without importing searoute
itself, which takes a second. The chart has no coastlines: the ports trace the coasts well enough for orientation.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class PortPlace(NamedTuple):
    """A port and its position in WGS 84 degrees."""

    unlocode: str
    name: str
    longitude: float
    latitude: float


@cache
def _geojson(name: str) -> Any:
    package = importlib.util.find_spec("searoute")  # finds it without importing it
    if package is None or package.origin is None:
        raise ModuleNotFoundError("searoute is not installed", name="searoute")
    return msgspec.json.decode((Path(package.origin).parent / "data" / name).read_bytes())


@cache
def ports() -> dict[str, PortPlace]:
    """Return every known port by UN/LOCODE."""
    out = {}
    for feature in _geojson("ports.geojson")["features"]:
        facts = feature["properties"]
        longitude, latitude = feature["geometry"]["coordinates"]
        if facts.get("port"):
            out[facts["port"]] = PortPlace(facts["port"], facts.get("name", ""), longitude, latitude)
    return out


class Frame(NamedTuple):
    """A part of the world in Mercator's projection.

    It has the position of its middle, and half its width and half its height, both in the projection's degrees of
    longitude.
    """

    longitude: float
    latitude: float
    half_width: float
    half_height: float
    pixels_per_degree: float

    def has(self, longitude: float, latitude: float) -> bool:
        """Return whether a place is in the frame, or beyond its edges by at most 20 % of half its size."""
        across = _wrapped(longitude - self.longitude)
        up = _northing(latitude) - _northing(self.latitude)
        return abs(across) <= 1.2 * self.half_width and abs(up) <= 1.2 * self.half_height

    def projection(self) -> dict[str, Any]:
        """Return the arguments of altair's ``project``."""
        return {
            "type": "mercator",
            "rotate": [-self.longitude, 0, 0],
            "center": [0, self.latitude],
            "scale": self.pixels_per_degree * 180 / math.pi,
            "pointRadius": 1.3,
        }


def frame(places: Iterable[tuple[float, float]], width: int, height: int) -> Frame:
    """Return the smallest frame around places, given as (longitude, latitude), with a margin.

    The frame is at least four degrees wide. Places on both sides of the date line stay together.

    Args:
        width, height: Size of the picture in pixels.
    """
    found = list(places)
    west, span = _narrowest([longitude for longitude, _ in found])
    ups = [_northing(latitude) for _, latitude in found]
    middle = (min(ups) + max(ups)) / 2
    per_degree = min(width / max(4.0, 1.25 * span), height / max(4.0 * height / width, 1.25 * (max(ups) - min(ups))))
    return Frame(
        _wrapped(west + span / 2), _parallel(middle), width / 2 / per_degree, height / 2 / per_degree, per_degree
    )


def backdrop(within: Frame | None = None) -> list[Any]:
    """Return the chart's altair layers for the whole world or a frame. Put them under the other layers of a layered
    chart with a projection."""
    return [lanes(within), coasts(within)]


def lanes(within: Frame | None = None) -> Any:
    """Return an altair layer with the sea lanes. The lanes of the whole world add about a megabyte to a picture."""
    shapes = [
        {"type": "Feature", "properties": {}, "geometry": feature["geometry"]}
        for feature in _geojson("marnet_searoute.geojson")["features"]
        if within is None or any(within.has(*place) for place in _places(feature["geometry"]))
    ]
    return _shapes(shapes).mark_geoshape(filled=False, stroke="#dfe8ee", strokeWidth=0.8, clip=within is not None)


def coasts(within: Frame | None = None) -> Any:
    """Return an altair layer with the world's ports as dots, which trace the coasts."""
    dots = [
        {
            "type": "Feature",
            "properties": {},
            "geometry": {"type": "Point", "coordinates": [p.longitude, p.latitude]},
        }
        for p in ports().values()
        if within is None or within.has(p.longitude, p.latitude)
    ]
    return _shapes(dots).mark_geoshape(filled=True, fill="#b9b29c", stroke=None, clip=within is not None)


def _places(geometry: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """Yield every (longitude, latitude) of a lane."""
    lines = geometry["coordinates"] if geometry["type"] == "MultiLineString" else [geometry["coordinates"]]
    for line in lines:
        for longitude, latitude, *_ in line:
            yield longitude, latitude


def _wrapped(degrees: float) -> float:
    """Return the same longitude in the range -180 to 180."""
    return (degrees + 180) % 360 - 180


def _northing(latitude: float) -> float:
    """Return the height of a latitude in Mercator's projection, in degrees of longitude."""
    bounded = math.radians(max(-85.0, min(85.0, latitude)))
    return math.degrees(math.log(math.tan(math.pi / 4 + bounded / 2)))


def _parallel(northing: float) -> float:
    return math.degrees(2 * math.atan(math.exp(math.radians(northing))) - math.pi / 2)


def _narrowest(longitudes: list[float]) -> tuple[float, float]:
    """Return the western end and the width of the smallest span that contains all these longitudes."""
    ring = sorted({longitude % 360 for longitude in longitudes})
    following = [*ring[1:], ring[0] + 360]
    gap, after = max((b - a, b) for a, b in zip(ring, following, strict=True))
    return after % 360, 360 - gap


def _shapes(features: list[dict[str, Any]]) -> Any:
    import altair as alt

    collection = {"type": "FeatureCollection", "features": features}
    by_feature = alt.JsonDataFormat(type="json", property="features")
    return alt.Chart(alt.InlineData(values=collection, format=by_feature))
