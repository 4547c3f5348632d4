"""Draw a small sea chart in characters: coasts as Braille dots, names at the positions of ships and ports. Pure.

The projection is plate carrée: a degree of latitude is as long as one of longitude. A character has two by four dots.
The chart is not cut at the date line.
"""

from __future__ import annotations

import base64
import importlib.resources
import math
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rich.text import Text

_STEP = 0.5  # degrees; tools/land.py makes the file
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.int64)
_MARGIN = 8.0  # degrees around the places
_LAND = "bright_black"


class ChartMark(NamedTuple):
    """A symbol on the chart. A later mark hides an earlier one at the same place; a name is drawn where it fits."""

    latitude: float
    longitude: float
    symbol: str
    name: str
    style: str


class ChartWindow(NamedTuple):
    """The part of the world on a chart: its middle, and the degrees of one dot."""

    latitude: float
    longitude: float
    scale: float


@cache
def _land() -> npt.NDArray[np.bool_]:
    text = importlib.resources.files("simulators.live").joinpath("land.txt").read_text(encoding="ascii")
    bits = np.frombuffer(zlib.decompress(base64.b85decode(text.replace("\n", ""))), dtype=np.uint8)
    rows, columns = round(180 / _STEP), round(360 / _STEP)
    return np.unpackbits(bits).reshape(rows, columns).astype(np.bool_)


def window(places: Iterable[tuple[float, float]], columns: int, rows: int) -> ChartWindow:
    """Return the smallest window with all places (latitude, longitude) and a margin."""
    found = list(places) or [(0.0, 0.0)]
    latitudes = [latitude for latitude, _ in found]
    west, width = _span([longitude % 360 for _, longitude in found])
    height = max(latitudes) - min(latitudes)
    scale = max((width + 2 * _MARGIN) / (2 * columns), (height + 2 * _MARGIN) / (4 * rows))
    return ChartWindow((max(latitudes) + min(latitudes)) / 2, (west + width / 2 + 180) % 360 - 180, scale)


def _span(longitudes: Sequence[float]) -> tuple[float, float]:
    """Return west end and width of the shortest arc that contains all these longitudes."""
    ordered = sorted(longitudes)
    gaps = [(after - before, after) for before, after in zip(ordered, [*ordered[1:], ordered[0] + 360], strict=True)]
    widest, after = max(gaps)
    return after % 360, 360 - widest


def draw(shown: ChartWindow, columns: int, rows: int, marks: Iterable[ChartMark]) -> list[Text]:
    """Draw the chart as ``rows`` lines of ``columns`` characters."""
    cells = [[(character, _LAND) for character in row] for row in _coast(shown, columns, rows)]
    names: list[tuple[int, int, ChartMark]] = []
    for mark in marks:
        place = _cell(shown, columns, rows, mark)
        if place is not None:
            row, column = place
            cells[row][column] = (mark.symbol, mark.style)
            names.append((row, column, mark))
    taken = {(row, column) for row, column, _ in names}
    for row, column, mark in names:
        _write(cells, taken, row, column, mark)
    lines = []
    for row_cells in cells:
        line = Text(no_wrap=True)
        for character, style in row_cells:
            line.append(character, style)
        lines.append(line)
    return lines


def _coast(shown: ChartWindow, columns: int, rows: int) -> list[str]:
    """Draw land that borders on sea, as Braille characters."""
    scale, land = shown.scale, _land()
    down, across = land.shape
    latitudes = shown.latitude + scale * (2 * rows - 0.5 - np.arange(-1, 4 * rows + 1))
    east = scale * (np.arange(-1, 2 * columns + 1) + 0.5 - columns)
    longitudes = shown.longitude + east
    row = np.floor((90 - latitudes) / _STEP).astype(np.int64)
    column = np.floor((longitudes + 180) % 360 / _STEP).astype(np.int64) % across
    there = land[np.clip(row, 0, down - 1)][:, column] & ((row >= 0) & (row < down))[:, None]
    there &= np.abs(east) <= 180  # the world only once
    inner = there[1:-1, 1:-1]
    surrounded = there[:-2, 1:-1] & there[2:, 1:-1] & there[1:-1, :-2] & there[1:-1, 2:]
    dots = (inner & ~surrounded).reshape(rows, 4, columns, 2)
    codes = (dots * _DOTS[None, :, None, :]).sum(axis=(1, 3))
    return ["".join(chr(0x2800 + code) if code else " " for code in line) for line in codes.tolist()]


def _cell(shown: ChartWindow, columns: int, rows: int, mark: ChartMark) -> tuple[int, int] | None:
    east = (mark.longitude - shown.longitude + 180) % 360 - 180
    column = math.floor(columns / 2 + east / shown.scale / 2)
    row = math.floor(rows / 2 - (mark.latitude - shown.latitude) / shown.scale / 4)
    return (row, column) if 0 <= row < rows and 0 <= column < columns else None


def _write(
    cells: list[list[tuple[str, str]]], taken: set[tuple[int, int]], row: int, column: int, mark: ChartMark
) -> None:
    """Write a name to the right or the left of its symbol; leave it out if both are occupied."""
    name = mark.name
    for start in (column + 2, column - 1 - len(name)):
        wanted = {(row, start + i) for i in range(len(name))}
        if start >= 0 and start + len(name) <= len(cells[row]) and not wanted & taken:
            for i, character in enumerate(name):
                cells[row][start + i] = (character, mark.style)
            taken |= wanted
            return
