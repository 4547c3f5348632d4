"""Simulate reefers of all cargoes and climates that lose power, machinery or set point at random, to judge outlooks.

In: a number of boxes, a seed, a kind of trouble. Out: the sensors' readings, and when the cargo really leaves its band.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from simulators.fleet.commodities import COMMODITIES, ReeferUnit
from simulators.fleet.plan import PowerChange
from simulators.fleet.routes import Point
from simulators.physics import climate
from simulators.physics.reefer import STEP, ReeferFleet

Trouble = Literal["UNPLUGGED", "FAILING", "WRONG_SETPOINT"]
BAND: Final = 2.0  # K either side of the set point
INTERVAL: Final = dt.timedelta(minutes=15)  # of readings
_START: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
_FIRST, _LAST = 36.0, 60.0  # hours after the start between which the trouble begins
_HOUR: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Outages:
    """A fleet's troubles. Hours count from the start of the simulation.

    Args:
        trouble: The hour in which each box's trouble begins.
        leaves: The hour in which the cargo of each box leaves its band; infinite if it never does.
        samples: By column of ``readings``, an array (reading, box) of what the probes showed every ``INTERVAL``.
    """

    kind: Trouble
    trouble: npt.NDArray[np.float64]
    leaves: npt.NDArray[np.float64]
    samples: dict[str, npt.NDArray[Any]]

    def readings(self, hours: float) -> pa.Table:
        """Return each box's readings until so many hours after its trouble began, with the columns of ``readings``."""
        count = next(iter(self.samples.values())).shape[0]
        interval = INTERVAL / _HOUR
        ends = (np.arange(count) + 1) * interval
        place, box = np.nonzero(ends[:, None] <= (self.trouble + hours)[None, :])
        names = np.array([name_of(number) for number in range(len(self.trouble))])
        times = [_START + (int(number) + 1) * INTERVAL for number in place]
        columns = {name: values[place, box] for name, values in self.samples.items()}
        return pa.table(
            {
                "equipment_reference": names[box],
                "log": np.char.add("containers.", names[box]),
                "log_offset": place,
                "device_id": names[box],
                "boot_id": np.ones(len(place), np.int64),
                "sequence": place,
                "device_date_time": pa.array(times, pa.timestamp("us", tz="UTC")),
                **columns,
            }
        )

    def left(self, hours: float) -> dict[str, float]:
        """Return, by box, the minutes from the last of these readings until the cargo leaves its band; 0 if it has."""
        interval = INTERVAL / _HOUR
        now = np.floor((self.trouble + hours) / interval) * interval
        return {name_of(box): 60 * max(0.0, float(self.leaves[box] - now[box])) for box in range(len(now))}


def name_of(box: int) -> str:
    """Return the container number of a box."""
    return f"BOXU{box:07d}"


def play(boxes: int, seed: int, kind: Trouble, *, days: float = 8) -> Outages:
    """Simulate ``boxes`` reefers until ``days`` after the latest hour in which trouble begins."""
    chance = np.random.default_rng(seed)
    goods = list(COMMODITIES.values())
    units, places, ashore, changes = [], [], [], []
    trouble = chance.uniform(_FIRST, _LAST, boxes)
    for box in range(boxes):
        cargo = goods[int(chance.integers(len(goods)))]
        units.append(
            ReeferUnit(
                cargo,
                cargo.setpoint,
                leak=float(44 * chance.uniform(0.85, 1.3)),
                strength=float(chance.uniform(0.8, 1.0)),
                on_deck=bool(chance.random() < 0.6),
                first_defrost_hours=float(chance.uniform(0, 12)),
            )
        )
        places.append(Point(float(chance.uniform(-45, 55)), float(chance.uniform(-180, 180))))
        ashore.append(bool(chance.random() < 0.5))
        wrong = cargo.setpoint + float(chance.choice((-1, 1)) * chance.uniform(5, 15))
        changes.append(
            PowerChange(
                _START + dt.timedelta(hours=float(trouble[box])),
                box,
                powered=kind != "UNPLUGGED",
                cooling_works=kind != "FAILING",
                setpoint=wrong if kind == "WRONG_SETPOINT" else None,
            )
        )
    fleet = ReeferFleet(units, _START, changes, chance)
    booked = np.array([unit.setpoint for unit in units])
    leaves = np.full(boxes, np.inf)
    samples: dict[str, list[npt.NDArray[Any]]] = {}
    time, end = _START, _START + dt.timedelta(hours=_LAST, days=days)
    while time < end:
        outside = np.array(
            [
                climate.air_temperature(place, time, ashore=on_land)
                if unit.on_deck
                else climate.hold_temperature(place, time)
                for place, on_land, unit in zip(places, ashore, units, strict=True)
            ]
        )
        sun = np.array([climate.solar_gain(place, time) for place in places])
        for _ in range(INTERVAL // STEP):
            time += STEP
            fleet.advance(time, outside, sun)
            hours = (time - _START) / _HOUR
            out = (hours > trouble) & (np.abs(fleet.cargo - booked) > BAND)
            leaves = np.where(out & np.isinf(leaves), hours, leaves)
        seen = fleet.sample()
        shown = {
            "supply_temperature": seen.supply,
            "return_temperature": seen.return_,
            "ambient_temperature": seen.ambient,
            "cargo_probe1_temperature": seen.cargo,
            "setpoint_temperature": fleet.setpoint.copy(),
            "is_connected_to_power_source": fleet.powered.copy(),
            "is_powered": fleet.powered.copy(),
            "is_defrosting": fleet.defrosting.copy(),
        }
        for name, values in shown.items():
            samples.setdefault(name, []).append(values)
    return Outages(kind, trouble, leaves, {name: np.array(values) for name, values in samples.items()})


class Judgement(NamedTuple):
    """How good outlooks are.

    Args:
        boxes: How many boxes had their cargo still in its band.
        shown: How many of these had an outlook, and left the band in the simulated time.
        median_error, nine_of_ten: Relative error of the minutes, median and ninth decile; nan without any outlook.
        covered: Share of the true minutes that are between the outlook's low and high.
    """

    boxes: int
    shown: int
    median_error: float
    nine_of_ten: float
    covered: float


def judge(outlooks: Mapping[str, tuple[float, float, float]], left: Mapping[str, float]) -> Judgement:
    """Compare outlooks (minutes, low, high, by box) with the minutes that were left."""
    inside = {box: minutes for box, minutes in left.items() if minutes > 0}
    compared = [(outlooks[box], minutes) for box, minutes in inside.items() if box in outlooks and minutes < np.inf]
    if not compared:
        return Judgement(len(inside), 0, np.nan, np.nan, np.nan)
    errors = [abs(minutes - true) / true for (minutes, _, _), true in compared]
    covered = sum(low <= true <= high for (_, low, high), true in compared) / len(compared)
    median, most = (float(value) for value in np.quantile(errors, (0.5, 0.9)))
    return Judgement(len(inside), len(compared), median, most, covered)
