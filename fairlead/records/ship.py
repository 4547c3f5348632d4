"""A ship's messages about itself; they become the three logs that together are the ship's log.

MQTT topics ``fairlead/v1/ships/<IMO>/position`` and ``fairlead/v1/ships/<IMO>/environment`` become the logs
``ships.<IMO>.location`` and ``ships.<IMO>.environment``. AIS values that mean "not available" are null here. The ship's
bridge itself writes ``ships.<IMO>.roll-calls``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from fairlead.records.reading import Base, Dated, Device, GeoLocation, Time, check_year

AT_ANCHOR: Final = 1  # AIS navigation status
MOORED: Final = 5
SPEED_NOT_AVAILABLE: Final = 102.3  # AIS, knots
UNDER_WAY_KN: Final = 3.0
"""From this speed on, a ship makes way: wind and tide move no ship at its berth or anchor so fast."""
STILL_KN: Final = 0.5
"""Below this speed, a ship lies still."""
PORT_NMI: Final = 10.0
"""A ship that lies still within this many nautical miles of a port's coordinates is in that port. The docks of a large
port stretch over several miles around the coordinates of its UN/LOCODE."""


class OfShip(Base, frozen=True, kw_only=True):
    """What a device of a ship says. Its time can be converted and printed everywhere, as those of ``Dated``."""

    vessel_imo_number: str = msgspec.field(name="vesselIMONumber")
    device: Device

    def __post_init__(self) -> None:
        check_year("device_date_time", self.device.device_date_time)


class Position(OfShip, frozen=True, kw_only=True):
    """The ship's position. Speed in knots over ground, course and heading in degrees; AIS navigation status 0-15."""

    geo_location: GeoLocation | None = None
    speed_over_ground: float | None = None
    course_over_ground: float | None = None
    heading: int | None = None
    navigation_status: int = 15


class Environment(OfShip, frozen=True, kw_only=True):
    """Weather, sea and power around the ship: m/s, m, degrees Celsius, hPa, kW."""

    wind_speed: float | None = None
    significant_wave_height: float | None = None
    air_temperature: float | None = None
    sea_temperature: float | None = None
    air_pressure: float | None = None
    reefer_power: float | None = None


RollCallState = Literal["CALLED", "COMPLETE", "CUT_SHORT"]


class RollCall(Dated, frozen=True, kw_only=True):
    """Which boxes were heard aboard since a departure; a record of ``ships.<IMO>.roll-calls``.

    A departure has one record at the set time (``CALLED``) and, if boxes were missing then, another when all are
    accounted for (``COMPLETE``). A call that ends before its set time, by an arrival or another departure, has one
    ``CUT_SHORT`` instead.

    Args:
        departure_id: The id of the departure's event (DEPA).
        un_location_code: The port that the ship left; None if the event does not name it.
        called_date_time: When the call was made, by the ship's clock.
        aboard: Boxes aboard by custody: those heard, missing and overboard.
        heard: Those with a reading since the departure.
        overboard: Those with an open overboard alert.
        missing: The others, as ``pack_numbers`` writes them.
        unlisted: Boxes that were heard and are not aboard by custody, in the same form.
        complete_date_time: When the last box was heard; None while boxes are missing.
    """

    vessel_imo_number: str = msgspec.field(name="vesselIMONumber")
    departure_id: str = msgspec.field(name="departureID")
    un_location_code: str | None = msgspec.field(default=None, name="UNLocationCode")
    departure_date_time: Time
    called_date_time: Time
    state: RollCallState
    aboard: int
    heard: int
    overboard: int = 0
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    unlisted: dict[str, str] = msgspec.field(default_factory=dict)
    complete_date_time: Time | None = None


def pack_numbers(numbers: Iterable[str]) -> dict[str, str]:
    """Return container numbers by their first four letters, the digits of each after a blank: small, and readable."""
    found: dict[str, list[str]] = {}
    for number in sorted(numbers):
        found.setdefault(number[:4], []).append(number[4:])
    return {owner: " ".join(digits) for owner, digits in found.items()}


def unpack_numbers(packed: Mapping[str, str]) -> frozenset[str]:
    """Return the container numbers that ``pack_numbers`` has packed."""
    return frozenset(owner + digits for owner, several in packed.items() for digits in several.split())
