"""The sensors of all boxes: their identity, what they measure, and the readings that they publish. No I/O.

Each interval draws random numbers for all boxes, whether a box reports or not, so that one box never changes what
another one reports. What can be computed for all boxes at once is computed once per interval.

``STAGES`` are the last readings of a box that slips off the stern, ``DROP_STAGES`` those of one that slips from a
crane: motion, tilt, immersion, a position that leaves the ship, lost power. No operational record is published, so
they are a guess (docs/simulators-physics.md). The device reports at once when something happens; its radio reaches the
ship until the ship is some miles away.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlead.records import encode
from fairlead.records.reading import Device, GeoLocation, Measurements, Motion, Reading, ReeferSettings, Setpoints
from simulators.fleet.plan import NEVER, PlannedBox, VoyagePlan, power_changes
from simulators.fleet.routes import Point, destination
from simulators.physics import climate
from simulators.physics.reefer import Floats, ReeferFleet
from simulators.steps import MessageKind, Probes, Publish, ReadingId, readings_topic

LEEWAY_KNOTS = 1.4  # a floating box drifts before wind and sea
DRIFT_COURSE = 40.0


class FallStage(NamedTuple):
    """One reading of a fall, so long ``after`` the lashings part. ``decides``: it must raise the overboard alert."""

    after: dt.timedelta
    motion: Motion
    adrift: bool
    decides: bool


def _stage(seconds: int, motion: Motion, *, adrift: bool = True, decides: bool = False) -> FallStage:
    return FallStage(dt.timedelta(seconds=seconds), motion, adrift, decides)


STAGES: tuple[FallStage, ...] = (
    # Lashings part in a roll, the plug is torn out; still on board.
    _stage(0, Motion(tilt_degrees=31.0, peak_g=2.1), adrift=False),
    # 14 m of free fall take 1.7 s; the water stops the box hard, on its side.
    _stage(4, Motion(tilt_degrees=97.0, peak_g=15.5, free_fall_seconds=1.7, immersed=True), decides=True),
    # The box comes up and floats low, while the ship steams away at 500 m a minute.
    _stage(45, Motion(tilt_degrees=64.0, peak_g=1.6, immersed=True)),
    _stage(110, Motion(tilt_degrees=52.0, peak_g=1.4, immersed=True)),
    _stage(230, Motion(tilt_degrees=58.0, peak_g=1.4, immersed=True)),
)


DROP_STAGES: tuple[FallStage, ...] = (
    # The spreader lets go on one side; the box hangs askew.
    _stage(0, Motion(tilt_degrees=24.0, peak_g=1.8), adrift=False),
    # 8 m down into the dock take 1.3 s.
    _stage(3, Motion(tilt_degrees=61.0, peak_g=9.2, free_fall_seconds=1.3, immersed=True), adrift=False, decides=True),
    _stage(50, Motion(tilt_degrees=48.0, peak_g=1.2, immersed=True), adrift=False),
)
"""The last readings of a box that slips from a crane into the dock."""


def drifted(fell_at: Point, since: dt.timedelta) -> Point:
    """Return where a box floats some time after it hit the water."""
    return destination(fell_at, DRIFT_COURSE, LEEWAY_KNOTS * max(0.0, since / dt.timedelta(hours=1)))


_MINUTE = dt.timedelta(minutes=1)
_COOLING, _DEFROSTING = ReeferSettings(), ReeferSettings(is_defrosting=True)
_INSPECTED = ReeferSettings(is_pre_trip_inspection=True)
_INSPECTED_MELTING = ReeferSettings(is_defrosting=True, is_pre_trip_inspection=True)
_TESTED_K, _MELTED_K = 1.2, 6.0  # kelvin by which the air is warmer while an inspection tests control, and defrosting


class Surroundings(NamedTuple):
    """A site's place at an interval and one minute later, its weather, and how far it rolls (degrees, 0 ashore).

    ``hold`` is the temperature of the air below deck, None ashore.
    """

    place: Point
    next_place: Point
    ambient: float
    sun: float
    roll: float
    at_sea: bool
    hold: float | None = None


def surroundings(
    place: Point, next_place: Point, time: dt.datetime, wind: float, *, at_sea: bool, ship: bool = False
) -> Surroundings:
    """Return the surroundings at one time; at sea a ship rolls with the waves that the wind makes."""
    return Surroundings(
        place=place,
        next_place=next_place,
        ambient=climate.air_temperature(place, time, ashore=not at_sea),
        sun=climate.solar_gain(place, time),
        roll=min(22.0, 0.8 + 2.0 * climate.wave_height(wind)) if at_sea else 0.0,
        at_sea=at_sea,
        hold=climate.hold_temperature(place, time) if ship else None,
    )


class SensorIdentity(NamedTuple):
    """The properties of a sensor that never change."""

    box: PlannedBox
    number: str
    log: str
    device_id: str
    topic: str
    gases: bool  # has sensors for O2 and CO2
    humidity: float | None  # set point of a unit that dries
    entitled_from: dt.datetime  # by the box's booking; ``NEVER`` without one
    entitled_until: dt.datetime


SensorSample = tuple[
    int,  # rank: its place in the order in which sensors report
    SensorIdentity,
    float,  # supply
    float,  # return
    float,  # ambient
    float,  # cargo
    float,  # humidity
    float,  # O2
    float,  # CO2
    float,  # set point
    bool,  # powered
    bool,  # defrosting
    bool,  # the door is open
    bool,  # its GPS sees the sky
    float,  # latitude
    float,  # longitude
    bool,  # rolling
    float,  # tilt
    float,  # peak g
    bool,  # boots again
    bool,  # plugged into a dead socket
    bool,  # its pre-trip inspection runs
]
"""What one sensor sees at one interval. A plain tuple, because a named one takes twice the time to make."""


class Sensors:
    """All sensors of a plan.

    Args:
        seeds: Two independent seeds: one for the probes' noise, one for everything else.
    """

    def __init__(self, plan: VoyagePlan, seeds: Sequence[np.random.SeedSequence]) -> None:
        probes, chances = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds)
        boxes = plan.boxes
        self._chance = plan.scenario.devices
        self._rng = chances
        self._fleet = ReeferFleet([b.unit for b in boxes], plan.starts, list(power_changes(plan)), probes)
        self._on_deck = self._fleet.on_deck
        # Lists that are read one by one are in the order of reports, so that each read is near the last one in memory.
        self.order = sorted(boxes, key=lambda box: (box.phase, box.index))
        self._order = np.array([b.index for b in self.order], dtype=np.intp)
        self._rank = {box.index: rank for rank, box in enumerate(self.order)}
        self._identities = [_identity(box) for box in self.order]
        self._boot = [1 + b.index % 3 for b in self.order]  # devices have booted one to three times
        self._sequence = [0] * len(boxes)
        self._setpoints: dict[tuple[float, float | None], Setpoints] = {}
        # Rows and bays: neighbours in the yard or on deck are metres apart.
        index = np.arange(len(boxes))
        self._row, self._bay = 2e-5 * (index % 13), 2e-5 * (index // 13 % 13)
        self._minutes = np.array([b.phase / _MINUTE for b in boxes], dtype=np.float64)
        spans = [box.inspected or (NEVER, NEVER) for box in boxes]
        self._inspected = np.array([[when.timestamp() for when in span] for span in spans], dtype=np.float64).T
        self._aboard: list[str | None] = [None] * len(boxes)  # the site of the newest reading, by rank
        self._stowage: list[str | None] = [None] * len(boxes)  # and the box's slot there
        self._probed = [self._rank[index] for index in self._fleet.probed.tolist()]
        self._pulp: dict[int, list[float]] = {}  # by rank, what the probes of a box with three of them show
        self._columns: list[Sequence[Any]] = []
        self._repeats: list[bool] = []
        self._delays: list[float] = []  # seconds after which a repeat comes

    def measure(self, time: dt.datetime, sites: Mapping[str, Surroundings], where: Sequence[str | None]) -> None:
        """Advance all boxes to ``time`` and read every probe.

        Args:
            sites: The surroundings of each site.
            where: The site of each box; None if it is at no site, so that its own air is around it.
        """
        fleet, n = self._fleet, len(self._order)
        around = list(sites.values())
        number = {name: k for k, name in enumerate(sites)}
        at = np.array([len(around) if site is None else number[site] for site in where], dtype=np.intp)
        gone = at == len(around)

        def of_box(values: list[float]) -> Floats:
            return np.array([*values, 0.0], dtype=np.float64)[at]

        below = (of_box([s.hold is not None for s in around]) > 0) & ~self._on_deck
        outside = np.where(below, of_box([s.hold or 0.0 for s in around]), of_box([s.ambient for s in around]))
        fleet.advance(time, np.where(gone, fleet.air, outside), of_box([s.sun for s in around]))
        sample = fleet.sample()
        chance = self._rng.random(size=(3, n))
        noise = self._rng.normal(0.0, 1.0, size=(3, n))
        north = of_box([s.next_place.latitude - s.place.latitude for s in around])
        east = of_box([(s.next_place.longitude - s.place.longitude + 180) % 360 - 180 for s in around])
        latitude = of_box([s.place.latitude for s in around]) + self._minutes * north + self._row + 4e-5 * noise[0]
        longitude = of_box([s.place.longitude for s in around]) + self._minutes * east + self._bay + 4e-5 * noise[1]
        tilt = np.minimum(30.0, np.abs(noise[2]) * of_box([s.roll for s in around]) / 2)
        # An inspection tests how the unit keeps its set point, and then its heaters. The cargo stays as it is.
        since, until = self._inspected - time.timestamp()
        inspected = (since <= 0) & (until > 0) & fleet.powered
        melted = inspected & (until < 1800)
        off = np.where(melted, _MELTED_K, np.where(inspected, _TESTED_K, 0.0))
        columns = (
            np.round(sample.supply + off, 2),
            np.round(sample.return_ + np.where(melted, off, 0.0), 2),
            sample.ambient,
            sample.cargo,
            sample.humidity,
            sample.o2,
            sample.co2,
            fleet.setpoint,
            fleet.powered,
            (fleet.defrosting & fleet.powered) | melted,
            fleet.door,
            ~below & ~gone,
            np.round(latitude, 5),
            np.round((longitude + 180) % 360 - 180, 5),
            of_box([s.at_sea for s in around]) > 0,
            np.round(tilt, 1),
            np.round(1.0 + tilt / 40, 2),
            chance[1] < self._chance.reboot,
            fleet.dead_socket,
            inspected,
        )
        self._columns = [range(n), self._identities, *(column[self._order].tolist() for column in columns)]
        self._pulp = dict(zip(self._probed, sample.pulp.T.tolist(), strict=True))
        self._repeats = (chance[0] < self._chance.repeat)[self._order].tolist()
        self._delays = (1.0 + 45.0 * chance[2])[self._order].tolist()

    def reefer_power(self, where: Sequence[str | None], site: str) -> float:
        """Return the power that the reefers at a site draw, in kilowatts."""
        power: list[float] = self._fleet.power.tolist()
        return sum(power[i] for i, at in enumerate(where) if at == site) / 1000

    def seen(self) -> Iterator[tuple[PlannedBox, bool, SensorSample]]:
        """Yield every box in the order of reports, whether its reading is repeated, and what its sensor sees."""
        return zip(self.order, self._repeats, zip(*self._columns, strict=True), strict=True)

    def reading(self, seen: SensorSample, time: dt.datetime, site: str) -> Publish:
        """Return the ordinary reading of a box at this interval; ``time`` is the interval's plus the device's phase."""
        (
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            powered,
            _,
            door,
            located,
            latitude,
            longitude,
            rolling,
            tilt,
            peak,
            boots,
            dead_socket,
            _,
        ) = seen
        geo = GeoLocation(latitude=latitude, longitude=longitude) if located else None
        motion = None
        if rolling:
            motion = Motion(tilt_degrees=tilt, peak_g=peak, door_open=door)
        elif door:
            motion = Motion(door_open=True)
        if boots:
            rank = seen[0]
            self._boot[rank] += 1
            self._sequence[rank] = 0
        return self._publish(seen, time, site, geo, motion, powered, plugged=powered or dead_socket)

    def falling(self, box: PlannedBox, time: dt.datetime, site: str, place: Point, stage: FallStage) -> Publish:
        """Return one reading of a box that goes overboard. ``measure`` must have been called before."""
        geo = GeoLocation(latitude=round(place.latitude, 5), longitude=round(place.longitude, 5))
        if not self._columns:
            raise AssertionError("measure() comes before the first reading")
        rank = self._rank[box.index]
        seen: Any = tuple(column[rank] for column in self._columns)
        return self._publish(seen, time, site, geo, stage.motion, powered=False, plugged=False, decides=stage.decides)

    def repeat_after(self, seen: SensorSample) -> dt.timedelta:
        """Return how long after a reading its repeat is published."""
        return dt.timedelta(seconds=round(self._delays[seen[0]], 3))

    def _wanted(self, key: tuple[float, float | None]) -> Setpoints:
        found = self._setpoints[key] = Setpoints(temperature=key[0], relative_humidity=key[1])
        return found

    def _publish(
        self,
        seen: SensorSample,
        time: dt.datetime,
        site: str,
        geo: GeoLocation | None,
        motion: Motion | None,
        powered: bool,
        plugged: bool,
        decides: bool = False,
    ) -> Publish:
        (rank, identity, supply, return_, ambient, cargo, humidity, o2, co2, setpoint, _, melts, *_, inspected) = seen
        box, number, log, device_id, topic, gases, drying, entitled_from, entitled_until = identity
        sequence = self._sequence[rank]
        self._sequence[rank] = sequence + 1
        boot = self._boot[rank]
        key = (setpoint, drying)
        if site != self._aboard[rank]:
            self._aboard[rank] = site
            self._stowage[rank] = box.stowed(time, site)
        if inspected:
            settings = _INSPECTED_MELTING if melts else _INSPECTED
        else:
            settings = _DEFROSTING if melts and powered else _COOLING
        probes = self._pulp.get(rank) or (cargo, None, None)
        payload = encode(
            Reading(
                equipment_reference=number,
                device=Device(device_id=device_id, boot_id=boot, sequence=sequence, device_date_time=time),
                measurements=Measurements(
                    supply_temperature=supply,
                    return_temperature=return_,
                    ambient_temperature=ambient,
                    cargo_probe1_temperature=probes[0],
                    cargo_probe2_temperature=probes[1],
                    cargo_probe3_temperature=probes[2],
                    relative_humidity=humidity,
                    o2=o2 if gases else None,
                    co2=co2 if gases else None,
                ),
                setpoints=self._setpoints.get(key) or self._wanted(key),
                reefer_settings=settings,
                is_connected_to_power_source=plugged,
                is_powered=powered,
                geo_location=geo,
                motion=motion,
                stowage_position=self._stowage[rank],
                alarms=box.unit_alarms(time) if box.alarms else None,
            )
        )
        return Publish(
            time,
            site,
            topic,
            payload,
            MessageKind.READING,
            number,
            log,
            ReadingId(number, device_id, boot, sequence),
            box.lot.customer if entitled_from <= time < entitled_until else None,
            "",
            Probes(supply, return_, ambient, setpoint, powered),
            (geo.latitude, geo.longitude) if geo else None,
            decides,
        )


def _identity(box: PlannedBox) -> SensorIdentity:
    goods = box.unit.commodity
    return SensorIdentity(
        box=box,
        number=box.number,
        log=box.log,
        device_id=box.device_id,
        topic=readings_topic(box.number),
        gases=goods.atmosphere is not None,
        humidity=goods.humidity if goods.dried else None,
        entitled_from=box.first_load.time if box.lot.customer else NEVER,
        entitled_until=box.released or NEVER,
    )
