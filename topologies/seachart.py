"""A plain sea chart to draw on: the world's ports as dots and the sea lanes as thin lines, and where a port is.

The data are those that searoute ships (3,962 ports, the maritime network; Apache-2.0), read without importing
searoute itself, which takes a second. The ports alone trace the coasts well enough to find one's way.
"""

from __future__ import annotations

import importlib.resources
from functools import cache
from typing import Any, NamedTuple

import msgspec


class PortPlace(NamedTuple):
    """A port of the world; WGS 84 degrees."""

    unlocode: str
    name: str
    longitude: float
    latitude: float


@cache
def _geojson(name: str) -> Any:
    return msgspec.json.decode((importlib.resources.files("searoute") / "data" / name).read_bytes())


@cache
def ports() -> dict[str, PortPlace]:
    """Every known port by UN/LOCODE."""
    out = {}
    for feature in _geojson("ports.geojson")["features"]:
        facts = feature["properties"]
        longitude, latitude = feature["geometry"]["coordinates"]
        if facts.get("port"):
            out[facts["port"]] = PortPlace(facts["port"], facts.get("name", ""), longitude, latitude)
    return out


def backdrop() -> list[Any]:
    """Altair layers of the chart, to be put under others in a layered chart with a projection."""
    return [lanes(), coasts()]


def lanes() -> Any:
    """Altair layer with the sea lanes; about a megabyte in a picture."""
    shapes = [
        {"type": "Feature", "properties": {}, "geometry": feature["geometry"]}
        for feature in _geojson("marnet_searoute.geojson")["features"]
    ]
    return _shapes(shapes).mark_geoshape(filled=False, stroke="#dfe8ee", strokeWidth=0.8)


def coasts() -> Any:
    """Altair layer with the world's ports as dots, which trace the coasts."""
    dots = [
        {
            "type": "Feature",
            "properties": {},
            "geometry": {"type": "Point", "coordinates": [p.longitude, p.latitude]},
        }
        for p in ports().values()
    ]
    return _shapes(dots).mark_geoshape(filled=True, fill="#b9b29c", stroke=None)


def _shapes(features: list[dict[str, Any]]) -> Any:
    import altair as alt

    collection = {"type": "FeatureCollection", "features": features}
    by_feature = alt.JsonDataFormat(type="json", property="features")
    return alt.Chart(alt.InlineData(values=collection, format=by_feature))
