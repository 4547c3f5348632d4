"""Where the captions of sites stand in a picture, so that they cover neither links nor each other. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from topologies.graph import Connection
from topologies.layout import HEIGHT, WIDTH, Course, Point

_NAME_WIDTH, _DETAIL_WIDTH = 8.2, 5.6  # pixels per character, about
_HALF_HEIGHT = 16.0
_AWAY = 17.0  # from the middle of a site


class Caption(NamedTuple):
    """A caption's anchor, in pixels, and on which side of it the text stands (``left``: it begins there)."""

    anchor: Point
    align: str


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, p: Point) -> bool:
        return self.left <= p.x <= self.right and self.top <= p.y <= self.bottom

    def meets(self, other: _Box) -> bool:
        return not (
            other.left > self.right or other.right < self.left or other.top > self.bottom or other.bottom < self.top
        )


def label_sites(
    captions: Mapping[str, tuple[str, str]],
    places: Mapping[str, Point],
    links: Sequence[tuple[Connection, Course]],
) -> dict[str, Caption]:
    """A place for every site's name and detail: right, left, below or above it, whichever covers least."""
    lines = [p for _, way in links for p in way.curve]
    heads = [place for _, way in links for place in (way.curve[0], way.curve[-1])]
    boxes: list[_Box] = []
    out: dict[str, Caption] = {}
    for name, (first, second) in captions.items():
        width = max(len(first) * _NAME_WIDTH, len(second) * _DETAIL_WIDTH)
        others = [place for other, place in places.items() if other != name]
        best = min(
            _candidates(places[name], width),
            key=lambda candidate: _cost(candidate[1], lines, heads, others, boxes),
        )
        out[name] = best[0]
        boxes.append(best[1])
    return out


def _candidates(site: Point, width: float) -> list[tuple[Caption, _Box]]:
    """In order of preference."""
    found = []
    for align, dx, dy in (("left", _AWAY, 0.0), ("right", -_AWAY, 0.0), ("center", 0.0, 30.0), ("center", 0.0, -28.0)):
        anchor = Point(site.x + dx, site.y + dy)
        left = anchor.x - {"left": 0.0, "right": width, "center": width / 2}[align]
        box = _Box(left, anchor.y - _HALF_HEIGHT, left + width, anchor.y + _HALF_HEIGHT)
        found.append((Caption(anchor, align), box))
    return found


def _cost(box: _Box, lines: list[Point], heads: list[Point], others: list[Point], boxes: list[_Box]) -> float:
    outside = box.left < 10 or box.right > WIDTH - 10 or box.top < 50 or box.bottom > HEIGHT - 35
    return (
        sum(map(box.holds, lines))
        + 3 * sum(map(box.holds, heads))
        + 6 * sum(map(box.holds, others))
        + 8 * sum(map(box.meets, boxes))
        + 30 * outside
    )
