"""A ship's messages about itself; they become the two logs that together are the ship's log.

MQTT topics ``fairlead/v1/ships/<IMO>/position`` and ``fairlead/v1/ships/<IMO>/environment`` become the logs
``ships.<IMO>.location`` and ``ships.<IMO>.environment``. AIS values that mean "not available" are null here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairlead.records.reading import Base, Device, GeoLocation

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


class Position(Base, frozen=True, kw_only=True):
    """The ship's position. Speed in knots over ground, course and heading in degrees; AIS navigation status 0-15."""

    vessel_imo_number: str = msgspec.field(name="vesselIMONumber")
    device: Device
    geo_location: GeoLocation | None = None
    speed_over_ground: float | None = None
    course_over_ground: float | None = None
    heading: int | None = None
    navigation_status: int = 15


class Environment(Base, frozen=True, kw_only=True):
    """Weather, sea and power around the ship: m/s, m, degrees Celsius, hPa, kW."""

    vessel_imo_number: str = msgspec.field(name="vesselIMONumber")
    device: Device
    wind_speed: float | None = None
    significant_wave_height: float | None = None
    air_temperature: float | None = None
    sea_temperature: float | None = None
    air_pressure: float | None = None
    reefer_power: float | None = None
