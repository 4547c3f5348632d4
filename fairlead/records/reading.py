"""The JSON message of a container's sensor: one reading.

Field names follow DCSA *Operational Reefer Monitoring* (RMO 1.0.0-Beta-1). Data that DCSA has no name for (motion,
door, immersion) is a declared private extension under ``motion``. Units: degrees Celsius, per cent, g, degrees of tilt.
All times are RFC 3339 in UTC. Device time (``deviceDateTime``) is the sensor's own clock. The bridge adds the time of
receipt as a Kafka header (``fairlead.records.headers``) and never changes the payload.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Iterator
from math import asin, cos, radians, sin, sqrt
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

T = TypeVar("T")
MOST: Final = 2**63 - 1
"""The largest number that Kafka and the tables can hold."""
Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]
"""A point in time. One without a time zone is refused, because it could not be compared with any other."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
"""A number that counts up from 0."""
LATEST_MS: Final = 253_370_678_400_000
"""9998-12-31 in milliseconds since 1970; not every system can show later dates."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def milliseconds(moment: dt.datetime) -> int:
    """Return a time with a time zone as whole milliseconds since 1970, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def moment_of(milliseconds: int) -> dt.datetime:
    """Return the time of these milliseconds since 1970."""
    return _EPOCH + milliseconds * _MILLISECOND


def check_year(name: str, moment: dt.datetime) -> None:
    """Raise ValueError for a time in the first or the last year: in another time zone there may be no such time."""
    if not 1 < moment.year < dt.MAXYEAR:
        raise ValueError(f"{name} is in the year {moment.year}")


class Base(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Base of all payloads: frozen, camelCase in JSON, unknown fields ignored (others may add some)."""


class Dated(Base, frozen=True, kw_only=True):
    """A payload whose times, all named ``..._date_time``, can be compared, converted and printed everywhere.

    The bounds are those of Python's calendar in any time zone. The bridge checks whether a device's clock is plausible.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name.endswith("_date_time") and (moment := getattr(self, name)) is not None:
                check_year(name, moment)


class Device(Base, frozen=True, kw_only=True):
    """The identity of a reading: (``device_id``, ``boot_id``, ``sequence``) never changes.

    ``sequence`` counts from 0 since the device booted; ``boot_id`` counts its boots. A repeat has the same three.
    """

    device_id: str
    boot_id: Count
    sequence: Count
    device_date_time: Time


class Measurements(Base, frozen=True, kw_only=True):
    """RMO measurements; None where the unit has no such sensor. Cargo probes 1 to 3 are the USDA probes."""

    supply_temperature: float | None = None
    return_temperature: float | None = None
    ambient_temperature: float | None = None
    cargo_probe1_temperature: float | None = None
    cargo_probe2_temperature: float | None = None
    cargo_probe3_temperature: float | None = None
    relative_humidity: float | None = None
    o2: float | None = None
    co2: float | None = None


class Setpoints(Base, frozen=True, kw_only=True):
    """The reefer's setpoints; ``o2`` and ``co2`` where it controls the atmosphere."""

    temperature: float | None = None
    relative_humidity: float | None = None
    o2: float | None = None
    co2: float | None = None


class ReeferSettings(Base, frozen=True, kw_only=True):
    """RMO reeferSettings, limited to the fields that affect how measurements are interpreted.

    ``is_pre_trip_inspection`` is a private extension: the unit is running its pre-trip inspection (PTI) now, and goes
    through cooling, heating and defrost whatever its cargo. RMO's own ``inspection`` has only the result of the last
    one.
    """

    is_defrosting: bool = False
    is_pre_trip_inspection: bool = False


class GeoLocation(Base, frozen=True, kw_only=True):
    """WGS 84 degrees."""

    latitude: float
    longitude: float


EARTH_RADIUS_M: Final = 6_371_008.8  # mean radius, IUGG


def known(place: GeoLocation | None) -> GeoLocation | None:
    """Return the place, or None for values that mean "no fix": (0, 0), and AIS' latitude 91 and longitude 181."""
    if place is None or (place.latitude == 0 and place.longitude == 0):
        return None
    return place if abs(place.latitude) <= 90 and abs(place.longitude) <= 180 else None


def distance_m(a: GeoLocation, b: GeoLocation) -> float:
    """Return the great-circle distance in metres (haversine)."""
    lat_a, lat_b = radians(a.latitude), radians(b.latitude)
    half_lat = sin((lat_b - lat_a) / 2)
    half_lon = sin(radians(b.longitude - a.longitude) / 2)
    return 2 * EARTH_RADIUS_M * asin(min(1.0, sqrt(half_lat**2 + cos(lat_a) * cos(lat_b) * half_lon**2)))


class Motion(Base, frozen=True, kw_only=True):
    """Private extension: motion of the box. ``free_fall_seconds`` > 0 means |a| near 0 g for that long."""

    tilt_degrees: float = 0.0
    peak_g: float = 0.0
    free_fall_seconds: float = 0.0
    immersed: bool = False
    door_open: bool = False


AlarmSeverity = Literal["CRITICAL", "ALARM", "WARNING", "LOG"]
"""RMO alarmSeverity."""


class UnitAlarm(Base, frozen=True, kw_only=True, omit_defaults=False):
    """One active alarm of a reefer unit, RMO ``activeAlarms[]``. ``alarm_severity`` should be an ``AlarmSeverity``."""

    alarm_number: int | str
    alarm_severity: str = "WARNING"
    alarm_date: str = ""


InspectionResult = Literal["PASSED", "FAILED", "CHECK"]
"""RMO inspectionResult."""


class Inspection(Base, frozen=True, kw_only=True, omit_defaults=False):
    """One inspection of a reefer unit before a trip, RMO ``inspection[]``: by people (``PHYSICAL``) or from afar
    (``REMOTE``). It counts until ``expiry_date``; None: without an end."""

    inspection_type: Literal["PHYSICAL", "REMOTE"]
    inspection_date: Time
    inspection_result: InspectionResult
    expiry_date: Time | None = None


class Reading(Base, frozen=True, kw_only=True):
    """One reading of one container. MQTT topic ``fairlead/v1/containers/<equipmentReference>/readings``.

    ``stowage_position`` is a private extension, filled in by a gateway that knows it: the position of the box on board,
    in the notation of ISO 9711, bay, row and tier in six or seven digits (``0340782``: bay 34, row 07, tier 82).
    ``alarms`` is what the reefer unit itself reports, read by ``unit_alarms``; ``inspection`` has its newest
    inspections before a trip, read by ``newest_inspection``. Neither is checked here: a reading is worth keeping
    whatever form they have.

    Plugged and powered are two facts (TIC 4.0 ``ContainerConnected`` and ``ContainerPowered``). Absent means true; null
    means that the unit does not know, which no rule judges; tables keep it as they keep an absent one.
    ``power_state`` joins them.
    """

    equipment_reference: str
    device: Device
    measurements: Measurements = Measurements()
    setpoints: Setpoints = Setpoints()
    reefer_settings: ReeferSettings = ReeferSettings()
    is_connected_to_power_source: bool | None = True  # TIC 4.0 "plugged"
    is_powered: bool | None = True  # TIC 4.0 "powered": plugged and switched on
    geo_location: GeoLocation | None = None
    motion: Motion | None = None
    stowage_position: str | None = None
    alarms: Any = None
    inspection: Any = None


PowerState = Literal["POWERED", "NO_POWER", "UNPLUGGED"]
"""``NO_POWER``: plugged in, but switched off or at a dead socket."""


def power_state(plugged: bool | None, powered: bool | None) -> PowerState | None:
    """Join plugged and powered. What is not known does not count; None where neither is."""
    if plugged is False:
        return "UNPLUGGED"
    if powered is False:
        return "NO_POWER"
    return None if plugged is None and powered is None else "POWERED"


def describe_power_loss(plugged: bool | None) -> str:
    """Return the words for a unit without power."""
    return "not plugged in" if plugged is False else "plugged in, without power"


def unit_alarms(reading: Reading) -> tuple[UnitAlarm, ...] | None:
    """Return the unit's active alarms; None if the reading does not say. Entries of another form are left out.

    ``alarms`` is RMO's object with ``activeAlarms``, or that list alone.
    """
    alarms = reading.alarms.get("activeAlarms") if isinstance(reading.alarms, dict) else reading.alarms
    return tuple(_entries(alarms, UnitAlarm)) if isinstance(alarms, list) else None


def newest_inspection(inspections: Any) -> Inspection | None:
    """Return the newest inspection in ``Reading.inspection``; None if there is none. Entries of another form are left
    out."""
    if not isinstance(inspections, list):
        return None
    return max(_entries(inspections, Inspection), key=lambda each: each.inspection_date, default=None)


def _entries(entries: Iterable[Any], kind: type[T]) -> Iterator[T]:
    for each in entries:
        with contextlib.suppress(msgspec.ValidationError):
            yield msgspec.convert(each, kind)
