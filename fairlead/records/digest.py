"""A digest of the boxes aboard a ship: the newest reading of each, a few bytes a box, for a satellite link.

A ship's bridge appends digests to ``ships.<IMO>.digest``. Each record can be read alone, without those before it, so a
reader may begin anywhere. It has the boxes that changed since the digest before, or all of them (``whole``).

The form (version 1) is columnar. A header is followed by one column for each property, over all boxes in the order of
their numbers. A column is a byte with the width of its integers (0: all are 0), then their lowest bytes, then the next
higher ones, and so on: bytes that are alike stand together, and the batch's compression makes little of them. A CRC-32
ends the record. Times are exact to a millisecond, temperatures to a hundredth of a degree, as sensors report them.
Integers are little-endian. Pure.
"""

from __future__ import annotations

import datetime as dt
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from fairlead.errors import FairleadError
from fairlead.names import container_check_digit, is_container_number, is_imo_number
from fairlead.records.alert import SEVERITIES, Severity
from fairlead.records.reading import LATEST_MS, Base, milliseconds, moment_of

VERSION: Final = 1
MOST_BOXES: Final = 65_535
_HEADER: Final = struct.Struct("<BBIqHH")  # version, flags, IMO number, milliseconds since 1970, boxes, owner codes
_CRC: Final = struct.Struct("<I")
_WHOLE, _SECONDS = 1, 2  # flags; ``_SECONDS``: all times are whole seconds
_OWNER: Final = 4  # letters
_SERIALS: Final = 1_000_000
_COLDEST, _WARMEST = -300.0, 300.0  # degrees Celsius; other values are no air's
_HUNDREDTHS: Final = 100
_PLUGGED, _POWERED, _IN_BAND, _OUT_OF_BAND, _DISTURBED, _DOOR_OPEN, _IMMERSED = (1 << bit for bit in range(7))


class DigestError(FairleadError, msgspec.DecodeError):
    """Bytes that are no digest, a damaged one, or one of a version that this Fairlead does not know."""


class DigestBox(Base, frozen=True, kw_only=True):
    """What a digest says of one box: its newest reading, and the ship's judgement of it.

    Args:
        reading_date_time: Device time of the reading, at most when the ship received it. Whole milliseconds.
        in_band: Whether the controlled air is within the tolerance around the set point; None where that is not
            judged (no set point, a defrost, a dry box).
        is_disturbed: Whether a defrost or a pre-trip inspection is under way.
        open_alerts: How many alerts of the ship about the box are open; ``worst_severity`` is that of the worst.
    """

    equipment_reference: str
    reading_date_time: dt.datetime
    setpoint_temperature: float | None = None
    supply_temperature: float | None = None
    return_temperature: float | None = None
    is_connected_to_power_source: bool = True
    is_powered: bool = True
    in_band: bool | None = None
    is_disturbed: bool = False
    door_open: bool = False
    immersed: bool = False
    open_alerts: int = 0
    worst_severity: Severity | None = None


class Digest(Base, frozen=True, kw_only=True):
    """One digest. ``boxes`` are in the order of their numbers.

    Args:
        as_of_date_time: The ship's clock when it was made. Whole milliseconds.
        whole: Whether it has every box that the ship hears. If not, boxes that are missing have not changed.
    """

    vessel_imo_number: str = msgspec.field(name="vesselIMONumber")
    as_of_date_time: dt.datetime
    whole: bool = False
    boxes: tuple[DigestBox, ...] = ()


# -- writing


def encode_digest(digest: Digest) -> bytes:
    """Encode a digest. Temperatures are rounded to a hundredth of a degree; those beyond 300 degrees become None.

    Raises:
        DigestError: a ship's or container's number is none, a container is there twice, or there are too many boxes.
    """
    boxes = sorted(digest.boxes, key=lambda box: box.equipment_reference)
    _check(digest, boxes)
    as_of = milliseconds(digest.as_of_date_time)
    ages = [as_of - milliseconds(box.reading_date_time) for box in boxes]
    seconds = all(age % 1000 == 0 for age in ages)
    owners = [(owner, list(group)) for owner, group in itertools.groupby(boxes, _owner)]
    flags = _WHOLE * digest.whole | _SECONDS * seconds
    set_to = [_hundredths(box.setpoint_temperature) for box in boxes]
    supplied = [_hundredths(box.supply_temperature) for box in boxes]
    returned = [_hundredths(box.return_temperature) for box in boxes]
    columns: tuple[Sequence[int], ...] = (
        [len(group) for _, group in owners],
        [gap for _, group in owners for gap in _gaps([_serial(box) for box in group])],
        [_zigzag(age // 1000 if seconds else age) for age in ages],
        [_apart(one, 0) for one in set_to],
        [_apart(one, near or 0) for one, near in zip(supplied, set_to, strict=True)],
        [
            _apart(one, _first(air, near))
            for one, air, near in zip(returned, supplied, set_to, strict=True)
        ],
        [_flags(box) for box in boxes],
        [_alerts(box) for box in boxes],
    )  # fmt: skip
    head = _HEADER.pack(VERSION, flags, int(digest.vessel_imo_number), as_of, len(boxes), len(owners))
    names = "".join(owner for owner, _ in owners).encode()
    body = head + names + b"".join(map(_column, columns))
    return body + _CRC.pack(zlib.crc32(body))


def _check(digest: Digest, boxes: Sequence[DigestBox]) -> None:
    if not is_imo_number(digest.vessel_imo_number):
        raise DigestError(f"{digest.vessel_imo_number!r} is no IMO number", hint="give the ship its number")
    if len(boxes) > MOST_BOXES:
        raise DigestError(f"{len(boxes):,} boxes are too many", hint=f"put at most {MOST_BOXES:,} into one digest")
    before = ""
    for box in boxes:
        number = box.equipment_reference
        if not is_container_number(number) or number == before:
            what = "twice in the digest" if number == before else "no container number"
            raise DigestError(f"{number!r} is {what}", hint="name each container once, by its ISO 6346 number")
        before = number


def _owner(box: DigestBox) -> str:
    return box.equipment_reference[:_OWNER]


def _serial(box: DigestBox) -> int:
    return int(box.equipment_reference[_OWNER:-1])


def _gaps(rising: Sequence[int]) -> Iterator[int]:
    """Yield the first number, then the difference of each to the one before."""
    return (each - before for before, each in itertools.pairwise((0, *rising)))


def _hundredths(value: float | None) -> int | None:
    return round(value * _HUNDREDTHS) if value is not None and _COLDEST <= value <= _WARMEST else None


def _first(*values: int | None) -> int:
    return next((value for value in values if value is not None), 0)


def _zigzag(value: int) -> int:
    """Map 0, -1, 1, -2, ... to 0, 1, 2, 3, ..."""
    return 2 * value if value >= 0 else -2 * value - 1


def _unzigzag(value: int) -> int:
    return value >> 1 if value % 2 == 0 else -(value >> 1) - 1


def _apart(value: int | None, near: int) -> int:
    """Return the code of a value by its difference from another one that is most often near; 0 for None."""
    return 0 if value is None else 1 + _zigzag(value - near)


def _together(code: int, near: int) -> int | None:
    return None if code == 0 else near + _unzigzag(code - 1)


def _flags(box: DigestBox) -> int:
    return (
        _PLUGGED * box.is_connected_to_power_source
        | _POWERED * box.is_powered
        | _IN_BAND * (box.in_band is True)
        | _OUT_OF_BAND * (box.in_band is False)
        | _DISTURBED * box.is_disturbed
        | _DOOR_OPEN * box.door_open
        | _IMMERSED * box.immersed
    )


def _alerts(box: DigestBox) -> int:
    worst = 0 if box.worst_severity is None else 1 + SEVERITIES.index(box.worst_severity)
    return 4 * box.open_alerts + worst


def _column(values: Sequence[int]) -> bytes:
    width = (max(values, default=0).bit_length() + 7) // 8
    planes = [bytes(value >> 8 * place & 0xFF for value in values) for place in range(width)]
    return bytes((width,)) + b"".join(planes)


# -- reading


def decode_digest(data: bytes) -> Digest:
    """Decode a digest.

    Raises:
        DigestError: the bytes are no digest, a damaged one, or one of another version.
    """
    if len(data) < _HEADER.size + _CRC.size:
        raise _damaged(f"{len(data)} bytes are too few for a digest")
    version, flags, imo, as_of, count, owners = _HEADER.unpack_from(data)
    if version != VERSION:
        raise DigestError(
            f"a digest of version {version}; this Fairlead reads version {VERSION}",
            hint="run the ship's Fairlead and this one at versions that fit; the record is kept as it is",
            version=version,
        )
    body = data[: -_CRC.size]
    if _CRC.unpack(data[-_CRC.size :])[0] != zlib.crc32(body):
        raise _damaged("its check sum is wrong")
    try:
        return _digest(_Cursor(body, _HEADER.size), flags, imo, as_of, count, owners)
    except (IndexError, UnicodeDecodeError, OverflowError, ValueError) as error:  # a writer that does not keep the form
        raise _damaged(str(error)) from None


class DigestDecoder:
    """Decodes values of digest logs. Has the form of a ``msgspec`` decoder."""

    def decode(self, value: bytes) -> Digest:
        """Return the digest. Raises ``DigestError``."""
        return decode_digest(value)


class _Cursor:
    """Reads columns from a record, one after the other."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def take(self, size: int) -> bytes:
        found = self._data[self._place : self._place + size]
        if len(found) < size:
            raise ValueError("it ends too early")
        self._place += size
        return found

    def column(self, count: int) -> list[int]:
        width = self.take(1)[0]
        values = [0] * count
        for place in range(width):
            values = [value | byte << 8 * place for value, byte in zip(values, self.take(count), strict=True)]
        return values

    def finish(self) -> None:
        if self._place != len(self._data):
            raise ValueError("more bytes follow than it has columns for")


def _digest(cursor: _Cursor, flags: int, imo: int, as_of: int, count: int, owners: int) -> Digest:
    names = [cursor.take(_OWNER).decode("ascii") for _ in range(owners)]
    sizes = cursor.column(owners)
    if sum(sizes) != count:
        raise ValueError(f"it counts {count} boxes, and {sum(sizes)} by owner")
    gaps = iter(cursor.column(count))
    numbers = [
        _number(name, serial)
        for name, size in zip(names, sizes, strict=True)
        for serial in itertools.accumulate(itertools.islice(gaps, size))
    ]
    if any(before >= number for before, number in itertools.pairwise(numbers)):
        raise ValueError("its boxes are not in the order of their numbers")
    unit = 1000 if flags & _SECONDS else 1
    ages = [unit * _unzigzag(age) for age in cursor.column(count)]
    set_to = [_together(code, 0) for code in cursor.column(count)]
    supplied = [_together(code, near or 0) for code, near in zip(cursor.column(count), set_to, strict=True)]
    returned = [
        _together(code, _first(air, near))
        for code, air, near in zip(cursor.column(count), supplied, set_to, strict=True)
    ]
    rows = zip(
        numbers, ages, set_to, supplied, returned, cursor.column(count), cursor.column(count), strict=True
    )  # fmt: skip
    boxes = tuple(
        _box(number, as_of - age, temperatures, bits, alerts) for number, age, *temperatures, bits, alerts in rows
    )
    cursor.finish()
    vessel = f"{imo:07d}"
    if not is_imo_number(vessel):
        raise ValueError(f"{vessel} is no IMO number")
    return Digest(
        vessel_imo_number=vessel, as_of_date_time=_valid(as_of), whole=bool(flags & _WHOLE), boxes=boxes
    )  # fmt: skip


def _number(owner: str, serial: int) -> str:
    if serial >= _SERIALS:
        raise ValueError(f"{serial} is no container's serial number")
    ten = f"{owner}{serial:06d}"
    number = ten + container_check_digit(ten)
    if not is_container_number(number):
        raise ValueError(f"{number} is no container number")
    return number


def _valid(milliseconds: int) -> dt.datetime:
    if not 0 <= milliseconds <= LATEST_MS:
        raise ValueError(f"{milliseconds} is no time in milliseconds")
    return moment_of(milliseconds)


def _box(number: str, at_ms: int, temperatures: Iterable[int | None], bits: int, alerts: int) -> DigestBox:
    setpoint, supply, returned = (None if value is None else _celsius(value) for value in temperatures)
    worst = alerts % 4
    return DigestBox(
        equipment_reference=number,
        reading_date_time=_valid(at_ms),
        setpoint_temperature=setpoint,
        supply_temperature=supply,
        return_temperature=returned,
        is_connected_to_power_source=bool(bits & _PLUGGED),
        is_powered=bool(bits & _POWERED),
        in_band=True if bits & _IN_BAND else False if bits & _OUT_OF_BAND else None,
        is_disturbed=bool(bits & _DISTURBED),
        door_open=bool(bits & _DOOR_OPEN),
        immersed=bool(bits & _IMMERSED),
        open_alerts=alerts // 4,
        worst_severity=SEVERITIES[worst - 1] if worst else None,
    )


def _celsius(hundredths: int) -> float:
    celsius = hundredths / _HUNDREDTHS
    if not _COLDEST <= celsius <= _WARMEST:
        raise ValueError(f"{celsius} degrees are no temperature of air")
    return celsius


def _damaged(why: str) -> DigestError:
    return DigestError(
        f"a damaged digest: {why}",
        hint="the boxes' readings come with the bulk; compare the sites' logs with 'fairlead audit'",
    )
