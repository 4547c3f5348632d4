"""Look up where the world's ports are.

The list comes with searoute (3,962 ports; Apache-2.0). It is read without importing searoute itself, which takes a
second.
"""

from __future__ import annotations

import importlib.util
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
