"""The sensors of all boxes: their identity, what they measure at a moment, and the reading they publish of it.

No I/O. Random numbers are drawn for all boxes at every interval, whether a box reports or not, so that what one box
does never changes what another one says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fairlead.records import encode
from fairlead.records.reading import Device, GeoLocation, Measurements, Motion, Reading, ReeferSettings, Setpoints
from simulators import climate
from simulators.messages import readings_topic
from simulators.overboard import Stage
from simulators.plan import Box, Plan
from simulators.reefer import ReeferFleet
from simulators.routes import Point
from simulators.steps import Kind, Probes, Publish, ReadingId


class Surroundings(NamedTuple):
    """Where a site is at an interval and one minute later, its weather, and how far it rolls (degrees, 0 ashore)."""

    place: Point
    next_place: Point
    ambient: float
    sun: float
    roll: float
    at_sea: bool


def surroundings(place: Point, next_place: Point, time: dt.datetime, wind: float, *, at_sea: bool) -> Surroundings:
    """The surroundings at one time; a ship rolls with the waves that the wind makes."""
    return Surroundings(
        place=place,
        next_place=next_place,
        ambient=climate.air_temperature(place, time, ashore=not at_sea),
        sun=climate.solar_gain(place, time),
        roll=min(22.0, 0.8 + 2.0 * climate.wave_height(wind)) if at_sea else 0.0,
        at_sea=at_sea,
    )


class _Interval(NamedTuple):
    """What every box's probes and chance say at one interval, as plain lists (fast to read one by one)."""

    time: dt.datetime
    supply: list[float]
    return_: list[float]
    ambient: list[float]
    cargo: list[float]
    humidity: list[float]
    plugged: list[bool]
    defrosting: list[bool]
    noise: list[list[float]]  # latitude, longitude, roll
    repeats: list[bool]
    reboots: list[bool]
    delays: list[float]  # seconds after which a repeat comes


class Sensors:
    """All sensors of a plan.

    Args:
        seeds: Two independent seeds: for the probes' noise, and for everything else.
    """

    def __init__(self, plan: Plan, seeds: Sequence[np.random.SeedSequence]) -> None:
        probes, chances = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds)
        self._boxes = plan.boxes
        self._chance = plan.scenario.devices
        self._rng = chances
        self._fleet = ReeferFleet([b.unit for b in plan.boxes], plan.starts, list(plan.power_changes()), probes)
        self._boot = [1 + b.index % 3 for b in plan.boxes]  # not every device is at its first boot
        self._sequence = [0] * len(plan.boxes)
        self._topics = [readings_topic(b.number) for b in plan.boxes]
        self._now: _Interval | None = None

    def measure(self, time: dt.datetime, sites: Mapping[str, Surroundings], where: Sequence[str | None]) -> None:
        """Advance all boxes to ``time`` and read every probe.

        Args:
            where: The site of each box; one that is nowhere keeps the air it had.
        """
        fleet = self._fleet
        around = [sites[site] if site else None for site in where]
        last = self._now.ambient if self._now else fleet.setpoint.tolist()
        ambient = np.array([s.ambient if s else last[i] for i, s in enumerate(around)], dtype=np.float64)
        sun = np.array([s.sun if s else 0.0 for s in around], dtype=np.float64)
        fleet.advance(time, ambient, sun)
        sample = fleet.sample()
        n = len(self._boxes)
        chance = self._rng.random(size=(3, n))
        self._now = _Interval(
            time,
            sample.supply.tolist(),
            sample.return_.tolist(),
            sample.ambient.tolist(),
            sample.cargo.tolist(),
            sample.humidity.tolist(),
            fleet.plugged.tolist(),
            fleet.defrosting.tolist(),
            self._rng.normal(0.0, 1.0, size=(3, n)).tolist(),
            (chance[0] < self._chance.repeat).tolist(),
            (chance[1] < self._chance.reboot).tolist(),
            (1.0 + 45.0 * chance[2]).tolist(),
        )

    def reefer_power(self, where: Sequence[str | None], site: str) -> float:
        """Kilowatts that the reefers at a site draw."""
        power: list[float] = self._fleet.power.tolist()
        return sum(power[i] for i, at in enumerate(where) if at == site) / 1000

    def reading(self, box: Box, time: dt.datetime, site: str, around: Surroundings) -> Publish:
        """The ordinary reading of a box at this interval; ``time`` is the interval's time and the device's delay."""
        now, i = self._measured(), box.index
        place = self._place(box, time, around)
        motion = None
        if around.at_sea:
            tilt = abs(now.noise[2][i]) * around.roll / 2
            motion = Motion(tilt_degrees=round(min(tilt, 30.0), 1), peak_g=round(1.0 + tilt / 40, 2))
        if now.reboots[i]:
            self._boot[i] += 1
            self._sequence[i] = 0
        return self._publish(box, time, site, place, motion, plugged=now.plugged[i])

    def falling(self, box: Box, time: dt.datetime, site: str, place: Point, stage: Stage) -> Publish:
        """A reading of a box that goes overboard."""
        return self._publish(box, time, site, place, stage.motion, plugged=False, decides=stage.decides)

    def repeat_after(self, box: Box) -> dt.timedelta | None:
        """When the box's reading of this interval is published once more, or None."""
        now = self._measured()
        return dt.timedelta(seconds=round(now.delays[box.index], 3)) if now.repeats[box.index] else None

    def _measured(self) -> _Interval:
        if self._now is None:
            raise AssertionError("measure() comes before the first reading")
        return self._now

    def _place(self, box: Box, time: dt.datetime, around: Surroundings) -> Point | None:
        """Where the device's GPS says it is: nowhere when it stands below deck."""
        now, i = self._measured(), box.index
        if around.at_sea and not box.unit.on_deck:
            return None
        minutes = (time - now.time) / dt.timedelta(minutes=1)
        (lat, lon), (lat2, lon2) = around.place, around.next_place
        # Rows and bays: neighbours in the yard or on deck are metres apart.
        lat += minutes * (lat2 - lat) + 2e-5 * (i % 13) + 4e-5 * now.noise[0][i]
        lon += minutes * ((lon2 - lon + 180) % 360 - 180) + 2e-5 * (i // 13 % 13) + 4e-5 * now.noise[1][i]
        return Point(lat, (lon + 180) % 360 - 180)

    def _publish(
        self,
        box: Box,
        time: dt.datetime,
        site: str,
        place: Point | None,
        motion: Motion | None,
        *,
        plugged: bool,
        decides: bool = False,
    ) -> Publish:
        now, i = self._measured(), box.index
        identity = ReadingId(box.number, box.device_id, self._boot[i], self._sequence[i])
        self._sequence[i] += 1
        geo = GeoLocation(latitude=round(place.latitude, 5), longitude=round(place.longitude, 5)) if place else None
        reading = Reading(
            equipment_reference=box.number,
            device=Device(
                device_id=identity.device_id,
                boot_id=identity.boot_id,
                sequence=identity.sequence,
                device_date_time=time,
            ),
            measurements=Measurements(
                supply_temperature=now.supply[i],
                return_temperature=now.return_[i],
                ambient_temperature=now.ambient[i],
                cargo_probe1_temperature=now.cargo[i],
                relative_humidity=now.humidity[i],
            ),
            setpoints=Setpoints(temperature=box.unit.setpoint),
            reefer_settings=ReeferSettings(is_defrosting=now.defrosting[i] and plugged),
            is_connected_to_power_source=plugged,
            is_powered=plugged,
            geo_location=geo,
            motion=motion,
        )
        return Publish(
            sim_time=time,
            site=site,
            topic=self._topics[i],
            payload=encode(reading),
            kind=Kind.READING,
            key=box.number,
            log=box.log,
            reading=identity,
            customer=box.entitled(time) if box.lot.customer else None,
            probes=Probes(now.supply[i], now.return_[i], now.ambient[i], box.unit.setpoint, plugged),
            place=(geo.latitude, geo.longitude) if geo else None,
            decides=decides,
        )
