"""Air, sun, sea and storms at a place and time: plausible, seasonal, and smooth in time. Pure functions.

The formulas are rough fits to common knowledge about the seas, not a climatology: a box on deck in the tropics
is hot at noon, one in a Japanese yard in January is cold, and a storm shows in the ship's readings. Temperatures are in
degrees Celsius, wind in m/s, waves in metres, pressure in hPa. ``storms_of`` and ``link_weather`` read a plan.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import NamedTuple

from simulators.fleet import routes
from simulators.fleet.plan import VoyagePlan
from simulators.fleet.routes import Point, distance
from simulators.fleet.scenario import OverboardFault
from simulators.network.weather import LinkWeather


class Storm(NamedTuple):
    """Bad weather around one moment: it adds ``wind`` m/s at its ``peak``, 1/e of that ``hours`` before and after.

    With a ``centre`` it has this strength only there, and half of it ``radius`` nautical miles away.
    """

    peak: dt.datetime
    wind: float
    hours: float
    centre: Point | None = None
    radius: float = 250.0

    def at(self, place: Point, time: dt.datetime) -> float:
        """Return the wind that it adds, m/s."""
        wind = self.wind * math.exp(-(((time - self.peak) / dt.timedelta(hours=self.hours)) ** 2))
        if self.centre is None or wind < 0.1:
            return wind
        return wind * math.exp2(-((distance(self.centre, place) / self.radius) ** 2))


def solar_hour(place: Point, time: dt.datetime) -> float:
    """Return the local solar time in hours [0, 24)."""
    return (time.hour + time.minute / 60 + time.second / 3600 + place.longitude / 15) % 24


def air_temperature(place: Point, time: dt.datetime, *, ashore: bool) -> float:
    """Return the temperature of the air near the ground. It changes more in a day over land than over water."""
    latitude = place.latitude
    mean = 27.5 - 0.0085 * latitude * latitude
    warmest = 205 if latitude >= 0 else 22  # day of the year; the sea lags the sun by a month
    season = 0.22 * abs(latitude) * math.cos(2 * math.pi * (time.timetuple().tm_yday - warmest) / 365.25)
    swing = (4.5 if ashore else 1.2) * math.cos(2 * math.pi * (solar_hour(place, time) - 14.5) / 24)
    return mean + season + swing


def hold_temperature(place: Point, time: dt.datetime) -> float:
    """Return the temperature of the air below deck: ventilated, but warmed by the reefers that stand there."""
    return air_temperature(place, time, ashore=False) + 4.0


def sea_temperature(place: Point, time: dt.datetime) -> float:
    """Return the temperature of surface water: the air's at noon 20 days before, not below freezing sea water."""
    noon = time.replace(hour=12, minute=0, second=0, microsecond=0) - dt.timedelta(days=20)
    return max(-1.8, air_temperature(place, noon, ashore=False) + 0.3)


def solar_gain(place: Point, time: dt.datetime) -> float:
    """Return by how many kelvin the sun heats the skin of a box on deck above the air; 0 at night."""
    declination = math.radians(-23.44) * math.cos(2 * math.pi * (time.timetuple().tm_yday + 10) / 365.25)
    latitude = math.radians(place.latitude)
    angle = 2 * math.pi * (solar_hour(place, time) - 12) / 24
    elevation = math.sin(latitude) * math.sin(declination) + math.cos(latitude) * math.cos(declination) * math.cos(
        angle
    )
    return 9.0 * max(0.0, elevation)


def wind_speed(place: Point, time: dt.datetime, storms: tuple[Storm, ...] = ()) -> float:
    """Return the wind: trades and westerlies that vary over some days, and the given storms on top."""
    days = time.timestamp() / 86400
    belt = 5.5 + 3.0 * abs(math.sin(math.radians(2 * place.latitude)))
    beats = 1.6 * math.sin(2 * math.pi * days / 4.7) + 0.9 * math.sin(2 * math.pi * days / 1.3)
    stormy = sum(storm.at(place, time) for storm in storms)
    return max(0.3, belt + beats + stormy)


def wave_height(wind: float) -> float:
    """Return the significant height of a fully developed wind sea, 0.21 U²/g, with a little swell."""
    return 0.6 + 0.21 * wind * wind / 9.81


def air_pressure(wind: float) -> float:
    """Return the air pressure, which falls with the wind: about 990 hPa in a fresh gale of 20 m/s."""
    return 1019.0 - 0.075 * wind * wind


_STORM_WIND, _STORM_HOURS = 16.0, 11.0  # the gale in which boxes are lost, m/s above the usual


def storms_of(plan: VoyagePlan, ship: str) -> tuple[Storm, ...]:
    """Return the gales in which this ship loses boxes, and the scenario's storms."""
    return tuple((*_gales(plan, ship), *_storms(plan)))


def _gales(plan: VoyagePlan, ship: str) -> Iterator[Storm]:
    table = plan.timetables[ship]
    for fault in plan.scenario.faults:
        if isinstance(fault, OverboardFault) and fault.ship == ship:
            arrival = next(call.comes for call in table.calls[1:] if call.port == fault.before)
            yield Storm(arrival - fault.by, _STORM_WIND, _STORM_HOURS)


def _storms(plan: VoyagePlan) -> Iterator[Storm]:
    for storm in plan.scenario.storms:
        centre = routes.port(str(plan.topology.sites[storm.near].unlocode))
        # The scenario's ``hours`` is where half of the wind is left; exp(-x^2) is 1/2 at x = 0.83.
        yield Storm(plan.starts + storm.peak, storm.wind, storm.hours / 0.83, centre, storm.radius)


def link_weather(plan: VoyagePlan) -> LinkWeather:
    """Return the weather of a plan's links: its scenario's troubles, and rain fade while a ship is in a storm."""
    storms = {ship: storms_of(plan, ship) for ship in plan.timetables}

    def wind(ship: str, time: dt.datetime) -> float:
        if ship not in storms:
            return 0.0
        place = plan.timetables[ship].at(time)[0].point
        return sum(storm.at(place, time) for storm in storms[ship])

    def berth(ship: str, time: dt.datetime) -> str | None:
        return plan.timetables[ship].berthed_at(time) if ship in plan.timetables else None

    return LinkWeather(plan.topology, plan.starts, plan.scenario.links, wind, berth)
