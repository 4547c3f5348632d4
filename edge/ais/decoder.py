"""Decode the ship's own position from AIS sentences: one a minute, and one at every change of status. Pure.

In: lines of NMEA 0183 (``!AIVDO``, ``!AIVDM``), decoded by pyais. Out: ``Position``, with null for values that are not
available. The pilot plug of a transponder sends its own ship's reports as VDO. A receiver sends the reports of all
ships as VDM: the own ship's are those of the MMSI whose static report (message 5) has the ship's IMO number. Reports of
other ships, base stations and buoys are ignored.

AIS has a value for "not available" of each quantity (ITU-R M.1371): latitude 91, longitude 181
(``fairlead.records.reading.known``), course 360.0, heading 511, speed 102.3 knots.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any, Final

import msgspec
from pyais.exceptions import AISBaseException
from pyais.messages import AISSentence
from pyais.queue import NMEAQueue

from fairlead.records.reading import Device, GeoLocation, known
from fairlead.records.ship import SPEED_NOT_AVAILABLE, Position

NO_COURSE: Final = 360.0

EVERY_MS: Final = 60_000
"""A transponder reports every 2 to 10 s under way (ITU-R M.1371); the decoder keeps one a minute and every change of
status."""
_POSITIONS: Final = frozenset({1, 2, 3, 18, 19})  # class A, class B
_STATIC: Final = 5
_NOT_DEFINED: Final = 15  # navigation status; class B has none
_LONGEST_LINE: Final = 512


def place(latitude: float | None, longitude: float | None) -> GeoLocation | None:
    """Return the location; None if the values mean "not available" or are out of range."""
    if latitude is None or longitude is None:
        return None
    return known(GeoLocation(latitude=latitude, longitude=longitude))


def speed(knots: float | None) -> float | None:
    return knots if knots is not None and 0 <= knots < SPEED_NOT_AVAILABLE else None


def course(degrees: float | None) -> float | None:
    return degrees if degrees is not None and 0 <= degrees < NO_COURSE else None


def heading(degrees: int | None) -> int | None:
    return degrees if degrees is not None and 0 <= degrees < 360 else None


def without_sentinels(position: Position) -> Position:
    """Return the position with null for values that mean "not available"; the same object if it has none of them."""
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
    """Return the JSON with null where ``position`` (after ``without_sentinels``) has null; unknown fields stay."""
    body: dict[str, Any] = msgspec.json.decode(payload)
    cleaned: dict[str, Any] = msgspec.to_builtins(position)
    for name in ("geoLocation", "speedOverGround", "courseOverGround", "heading"):
        if name in body and name not in cleaned:
            body[name] = None
    return msgspec.json.encode(body)


class AisDecoder:
    """Decodes the sentences of one ship's receiver.

    Args:
        imo: The ship's IMO number.
        boot: A number that grows with each start of the decoder; with the sequence it identifies a report for ever.
        counts: Sentences by result: ``taken``, ``thinned``, ``others`` (another ship, or not a position),
            ``damaged``.
    """

    def __init__(self, imo: str, boot: int, *, every_ms: int = EVERY_MS) -> None:
        self._imo = imo
        self._boot = boot
        self._every_ms = every_ms
        self._sequence = 0
        self._own: int | None = None
        self._last_ms: int | None = None
        self._last_status: int | None = None
        self._parts = NMEAQueue()
        self.counts: Counter[str] = Counter()

    def decode_line(self, line: bytes, now_ms: int) -> Position | None:
        """Decode a line received at ``now_ms`` (the site's clock). Return the position if it is this ship's and due."""
        if len(line) > _LONGEST_LINE:
            self.counts["damaged"] += 1
            return None
        try:
            self._parts.put_line(line.strip(b"\0\r\n \t"))
            sentence = self._parts.get_or_none()
            if not isinstance(sentence, AISSentence):
                return None  # not AIS, or the first part of a long message
            if not sentence.is_valid:
                self.counts["damaged"] += 1
                return None
            said: dict[str, Any] = sentence.decode().asdict()
            mmsi, kind = int(said["mmsi"]), int(said["msg_type"])  # None in a message that was cut short
            return self._said(said, mmsi, kind, own=sentence.type == "VDO", now_ms=now_ms)
        except (AISBaseException, ValueError, IndexError, KeyError, TypeError):
            self.counts["damaged"] += 1
            return None

    def _said(self, said: dict[str, Any], mmsi: int, kind: int, *, own: bool, now_ms: int) -> Position | None:
        if kind == _STATIC and str(said.get("imo")) == self._imo:
            self._own = mmsi
        if kind not in _POSITIONS or not (own or mmsi == self._own):
            self.counts["others"] += 1
            return None
        given = said.get("status")
        status = int(given) if given is not None else _NOT_DEFINED
        due = self._last_ms is None or not 0 <= now_ms - self._last_ms < self._every_ms
        if not due and status == self._last_status:
            self.counts["thinned"] += 1
            return None
        position = self._position(said, mmsi, status, now_ms)  # raises where fields are missing
        self._last_ms, self._last_status = now_ms, status
        self.counts["taken"] += 1
        self._sequence += 1
        return position

    def _position(self, said: dict[str, Any], mmsi: int, status: int, now_ms: int) -> Position:
        # AIS has only the second of the minute; the sentence arrives within that minute.
        return Position(
            vessel_imo_number=self._imo,
            device=Device(
                device_id=f"ais-{mmsi:09d}",
                boot_id=self._boot,
                sequence=self._sequence,
                device_date_time=dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC),
            ),
            geo_location=place(said["lat"], said["lon"]),
            speed_over_ground=speed(said["speed"]),
            course_over_ground=course(said["course"]),
            heading=heading(said["heading"]),
            navigation_status=status,
        )
