"""What AIS sends in place of a value that it does not have, and nulls instead. Pure.

ITU-R M.1371: latitude 91, longitude 181 (``edge.detection.geo.known``), course 360.0, heading 511, speed 102.3 knots.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from edge.detection.geo import known
from fairlead.records.reading import GeoLocation
from fairlead.records.ship import Position

NO_SPEED: Final = 102.3  # knots; 102.2 stands for "or more"
NO_COURSE: Final = 360.0
NO_HEADING: Final = 511


def place(latitude: float | None, longitude: float | None) -> GeoLocation | None:
    """The place, or None when it is none."""
    if latitude is None or longitude is None:
        return None
    return known(GeoLocation(latitude=latitude, longitude=longitude))


def speed(knots: float | None) -> float | None:
    return knots if knots is not None and 0 <= knots < NO_SPEED else None


def course(degrees: float | None) -> float | None:
    return degrees if degrees is not None and 0 <= degrees < NO_COURSE else None


def heading(degrees: int | None) -> int | None:
    return degrees if degrees is not None and 0 <= degrees < 360 else None


def without_sentinels(position: Position) -> Position:
    """The position with null for all that is not available; the same object when nothing had to change."""
    location = position.geo_location
    here = known(location)
    speed_now, course_now = speed(position.speed_over_ground), course(position.course_over_ground)
    heading_now = heading(position.heading)
    before = (location, position.speed_over_ground, position.course_over_ground, position.heading)
    if before == (here, speed_now, course_now, heading_now):
        return position
    return msgspec.structs.replace(
        position, geo_location=here, speed_over_ground=speed_now, course_over_ground=course_now, heading=heading_now
    )


def payload_without_sentinels(payload: bytes, position: Position) -> bytes:
    """The published JSON with null where ``position``, cleaned, has null; fields that we do not know are kept."""
    body: dict[str, Any] = msgspec.json.decode(payload)
    cleaned: dict[str, Any] = msgspec.to_builtins(position)
    for name in ("geoLocation", "speedOverGround", "courseOverGround", "heading"):
        if name in body and name not in cleaned:
            body[name] = None
    return msgspec.json.encode(body)
