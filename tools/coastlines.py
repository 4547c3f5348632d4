"""Turn the land of ``world-atlas`` into a small GeoJSON for the board's maps; ``tools/vendor.sh`` calls it.

    python tools/coastlines.py land-50m.json land.json

Natural Earth, 1:50m, is public domain. Lines are simplified to ``TOLERANCE`` degrees, islands smaller than ``SMALLEST``
square degrees are left out, and coordinates have two decimals (a kilometre). Neighbours keep a common border, because
the arcs that they share are simplified, not the polygons.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Final

TOLERANCE: Final = 0.04
SMALLEST: Final = 0.015
DIGITS: Final = 2
Point = tuple[float, float]


def arcs(topology: dict[str, Any]) -> list[list[Point]]:
    """Return the arcs of a quantized TopoJSON in degrees: its steps are whole numbers from point to point."""
    (scale_x, scale_y), (left, low) = topology["transform"]["scale"], topology["transform"]["translate"]
    decoded = []
    for arc in topology["arcs"]:
        x = y = 0
        points = []
        for step_x, step_y in arc:
            x, y = x + step_x, y + step_y
            points.append((x * scale_x + left, y * scale_y + low))
        decoded.append(points)
    return decoded


def simplified(points: list[Point]) -> list[Point]:
    """Return a line without the points that lie closer than ``TOLERANCE`` to what is left (Douglas and Peucker, 1973).

    Both ends stay. A closed line is parted at the point farthest from its ends, so that it stays an area.
    """
    kept = {0, len(points) - 1}
    parts = [(0, len(points) - 1)]
    while parts:
        first, last = parts.pop()
        farthest, at = TOLERANCE, None
        for index in range(first + 1, last):
            distance = _distance(points[index], points[first], points[last])
            if distance > farthest:
                farthest, at = distance, index
        if at is not None:
            kept.add(at)
            parts += [(first, at), (at, last)]
    return [points[index] for index in sorted(kept)]


def _distance(point: Point, start: Point, end: Point) -> float:
    (x, y), (x1, y1), (x2, y2) = point, start, end
    length = (x2 - x1) ** 2 + (y2 - y1) ** 2
    along = min(1.0, max(0.0, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length)) if length else 0.0
    return math.hypot(x - x1 - along * (x2 - x1), y - y1 - along * (y2 - y1))


def area(ring: list[Point]) -> float:
    """Return the area of a ring in square degrees, never negative."""
    return abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in zip(ring, ring[1:] + ring[:1], strict=True))) / 2


def land(topology: dict[str, Any]) -> dict[str, Any]:
    """Return all land as one GeoJSON ``MultiPolygon`` (RFC 7946)."""
    lines = [simplified(arc) for arc in arcs(topology)]
    polygons = []
    for geometry in topology["objects"]["land"]["geometries"]:
        for polygon in geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]:
            rings = [_ring(ring, lines) for ring in polygon]
            large = [ring for ring in rings if len(ring) > 3 and area(ring) >= SMALLEST]
            if large and large[0] is rings[0]:  # the first is the coast, the others are lakes
                polygons.append(large)
    return {"type": "MultiPolygon", "coordinates": polygons}


def _ring(indices: list[int], lines: list[list[Point]]) -> list[Point]:
    points: list[Point] = []
    for index in indices:
        for x, y in lines[index] if index >= 0 else reversed(lines[~index]):
            point = (round(x, DIGITS), round(y, DIGITS))
            if not points or points[-1] != point:
                points.append(point)
    return points


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    text = json.dumps(land(json.loads(source.read_text(encoding="utf-8"))), separators=(",", ":"))
    target.write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
