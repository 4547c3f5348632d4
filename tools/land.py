"""Generate ``simulators/live/land.txt``, the land of the terminal's world map, from a shapefile of polygons.

    python tools/land.py ne_110m_admin_0_countries.shp

Natural Earth, 1:110m, is public domain (naturalearthdata.com). A cell of half a degree is land if its middle is in a
polygon (even-odd rule, so polygons of countries work as well as polygons of land). The rows run from north to south.
They are packed as bits, deflated, and encoded in base 85. Antarctica is left out.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

STEP = 0.5
Points = npt.NDArray[np.float64]


def rings(shapefile: bytes) -> list[Points]:
    """Return all rings of a shapefile's polygons (ESRI Shapefile Technical Description, July 1998)."""
    found = []
    at = 100
    while at < len(shapefile):
        (length,) = struct.unpack_from(">i", shapefile, at + 4)
        kind, *_ = struct.unpack_from("<i4d", shapefile, at + 8)
        if kind == 5:
            parts, points = struct.unpack_from("<2i", shapefile, at + 44)
            starts = [*struct.unpack_from(f"<{parts}i", shapefile, at + 52), points]
            every = np.frombuffer(shapefile, "<f8", 2 * points, at + 52 + 4 * parts).reshape(-1, 2)
            found += [every[a:b] for a, b in pairwise(starts)]
        at += 8 + 2 * length
    return found


def land(polygons: list[Points]) -> npt.NDArray[np.bool_]:
    """Return the grid of land cells, one row for each half degree of latitude, from north to south."""
    latitudes = np.arange(90 - STEP / 2, -90, -STEP)
    longitudes = np.arange(-180 + STEP / 2, 180, STEP)
    grid = np.zeros((len(latitudes), len(longitudes)), dtype=np.bool_)
    for row, latitude in enumerate(latitudes):
        if latitude < -60:
            continue
        for ring in polygons:
            (x1, y1), (x2, y2) = ring[:-1].T, ring[1:].T
            cuts = (y1 <= latitude) != (y2 <= latitude)
            at = x1[cuts] + (latitude - y1[cuts]) / (y2[cuts] - y1[cuts]) * (x2[cuts] - x1[cuts])
            grid[row] ^= (at[:, None] < longitudes[None, :]).sum(axis=0) % 2 == 1
    return grid


def main() -> None:
    grid = land(rings(Path(sys.argv[1]).read_bytes()))
    text = base64.b85encode(zlib.compress(np.packbits(grid).tobytes(), 9)).decode()
    lines = [text[at : at + 120] for at in range(0, len(text), 120)]
    Path("simulators/live/land.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
