"""A thermal model of many reefers at once, in steps of five minutes. Pure but for the random numbers it is given.

Each box is two lumps, the air with what it touches (``air``) and the cargo (``cargo``), between an ambient and an
evaporator:

    C_air   d air/dt   = UA (ambient + sun - air) + hA (cargo - air) + fans + defrost heat - cooling
    C_cargo d cargo/dt = hA (air - cargo) + respiration

The air lump is stepped with its exact exponential, so that no step is too long for it. Return air is ``air``; supply
air follows from the cooling and the fans' flow. Control is as on real units (notes on reefer control): chilled cargo
has its **supply** air modulated to the set point, frozen cargo its **return** air switched on and off within a band.
Defrosting stops cooling and fans while a heater melts the coil, and the return probe above it reads high.

Sizes are those of a 40' high-cube unit: UA about 44 W/K, 1.8 kW/K of air flow, 6 kW of cooling at -20 and 11 kW at
+5 degrees. Units: degrees Celsius, watts, seconds, per cent. All arrays have one element per box, in the order of
``units``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulators.commodities import Commodity

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

STEP = dt.timedelta(minutes=5)
_SECONDS = STEP.total_seconds()
AIR_CAPACITY = 1.5e6  # J/K: air, lining, and the skin of the cargo
FLOW = 1800.0  # W/K: about 5,400 m3/h of air
FAN_HEAT = 800.0  # W, evaporator fans, all of it inside the box
HEATER = 4000.0  # W, evaporator heaters: heating in cold weather, and defrost
DEFROST_LEAK = 900.0  # W of the defrost heat that reaches the cargo space
STILL_AIR = 0.6  # share of the heat transfer to the cargo that is left without fans
FROZEN_BAND = 0.25  # K either side of the set point
PROBE_NOISE = 0.04  # K


@dataclass(frozen=True, slots=True)
class Unit:
    """One box with its machinery: what never changes on a journey."""

    commodity: Commodity
    setpoint: float
    leak: float = 44.0  # UA, W/K
    strength: float = 1.0  # of the machinery, 1 is new
    on_deck: bool = True
    first_defrost_hours: float = 6.0  # running hours until the first defrost, so that boxes differ


class PowerChange(NamedTuple):
    """From ``time`` on, box number ``box`` is plugged in or not, and its machinery cools or not."""

    time: dt.datetime
    box: int
    plugged: bool
    cooling_works: bool = True


class Sample(NamedTuple):
    """What the probes of all boxes show, with probe noise: rounded to 0.01 K and 0.1 % relative humidity."""

    supply: Floats
    return_: Floats
    ambient: Floats
    cargo: Floats
    humidity: Floats


class ReeferFleet:
    """The state of many reefers at ``time``.

    Args:
        units: The boxes.
        start: Time of the initial state: cargo and air at the set point (pre-cooled), plugged in.
        changes: All changes of power, in any order; one takes effect at the first step not before it.
        rng: Source of probe noise.
    """

    def __init__(
        self, units: Sequence[Unit], start: dt.datetime, changes: Sequence[PowerChange], rng: np.random.Generator
    ) -> None:
        self.time = start
        self._rng = rng
        self._changes = sorted(changes)
        self._next_change = 0
        n = len(units)
        cargo = [u.commodity for u in units]
        self.setpoint: Floats = np.array([u.setpoint for u in units], dtype=np.float64)
        self._chilled: Flags = np.array([not c.frozen for c in cargo], dtype=np.bool_)
        self._leak: Floats = np.array([u.leak for u in units], dtype=np.float64)
        self._strength: Floats = np.array([u.strength for u in units], dtype=np.float64)
        self.on_deck: Flags = np.array([u.on_deck for u in units], dtype=np.bool_)
        mass = np.array([c.mass for c in cargo], dtype=np.float64)
        self._cargo_capacity: Floats = mass * 1e6 * np.array([c.heat for c in cargo], dtype=np.float64)
        self._respiration: Floats = mass * np.array([c.respiration for c in cargo], dtype=np.float64)
        self._transfer: Floats = 250.0 + 22.0 * mass  # hA with fans: more pallets, more surface
        self._moisture: Floats = np.array([c.humidity for c in cargo], dtype=np.float64)
        never = math.inf
        self._defrost_every: Floats = np.array([(c.defrost_hours or never) * 3600 for c in cargo], dtype=np.float64)
        first = [u.first_defrost_hours * 3600 if u.commodity.defrost_hours else never for u in units]
        self._until_defrost: Floats = np.array(first, dtype=np.float64)
        self._defrost_left: Floats = np.zeros(n)
        # The exponentials of both states of the fans, once: numpy's may differ in the last bit between processors.
        self._decay_fans = self._decay(self._leak + self._transfer)
        self._decay_still = self._decay(self._leak + STILL_AIR * self._transfer)

        self.air: Floats = self.setpoint.copy()
        self.cargo: Floats = self.setpoint.copy()
        self.supply: Floats = self.setpoint.copy()
        self.humidity: Floats = self._moisture.copy()
        self.plugged: Flags = np.ones(n, dtype=np.bool_)
        self.works: Flags = np.ones(n, dtype=np.bool_)
        self.power: Floats = np.zeros(n)  # electrical, W
        self._compressor: Flags = np.zeros(n, dtype=np.bool_)
        self._outside: Floats = np.zeros(n)

    @staticmethod
    def _decay(conductance: Floats) -> Floats:
        return np.array([math.exp(-_SECONDS * g / AIR_CAPACITY) for g in conductance.tolist()], dtype=np.float64)

    @property
    def defrosting(self) -> Flags:
        return self._defrost_left > 0

    def advance(self, until: dt.datetime, ambient: Floats, sun: Floats) -> None:
        """Take whole steps while they end no later than ``until``.

        Args:
            ambient: Air temperature around each box during this time.
            sun: Kelvin that the sun adds for a box on deck, there.
        """
        self._outside = ambient
        warm = ambient + np.where(self.on_deck, sun, 0.0)
        while self.time + STEP <= until:
            self._apply_changes()
            self._step(warm)
            self.time += STEP

    def _apply_changes(self) -> None:
        while self._next_change < len(self._changes) and self._changes[self._next_change].time <= self.time:
            change = self._changes[self._next_change]
            self.plugged[change.box] = change.plugged
            self.works[change.box] = change.cooling_works
            self._next_change += 1

    def _step(self, warm: Floats) -> None:
        self._defrost_cycle()
        defrosting = self._defrost_left > 0
        fans = self.plugged & ~defrosting
        transfer = np.where(fans, self._transfer, STILL_AIR * self._transfer)
        cooling = np.where(fans, self._cooling(), 0.0)
        inner = np.where(fans, FAN_HEAT, 0.0) + np.where(defrosting & self.plugged, DEFROST_LEAK, 0.0)
        goal = (self._leak * warm + transfer * self.cargo + inner - cooling) / (self._leak + transfer)
        before = self.air
        self.air = goal + (before - goal) * np.where(fans, self._decay_fans, self._decay_still)
        mean_air = (before + self.air) / 2
        flow = transfer * (mean_air - self.cargo) + self._respiration
        self.cargo = self.cargo + _SECONDS * flow / self._cargo_capacity
        blown = before + (FAN_HEAT - cooling) / FLOW
        self.supply = np.where(fans, blown, self.supply + 0.2 * (self.air - self.supply))
        self._dry(fans)
        compressor = np.where(fans, 500.0 + np.abs(cooling) / 1.6, 0.0)
        self.power = compressor + np.where(fans, FAN_HEAT, 0.0) + np.where(defrosting & self.plugged, HEATER, 0.0)

    def _defrost_cycle(self) -> None:
        self._defrost_left = np.where(self.plugged, np.maximum(0.0, self._defrost_left - _SECONDS), 0.0)
        running = self.plugged & (self._defrost_left <= 0)
        self._until_defrost = np.where(running, self._until_defrost - _SECONDS, self._until_defrost)
        begins = running & (self._until_defrost <= 0)
        # Colder coils carry more ice: 30 minutes when chilled, 40 when frozen.
        self._defrost_left = np.where(begins, np.where(self._chilled, 1800.0, 2400.0), self._defrost_left)
        self._until_defrost = np.where(begins, self._defrost_every, self._until_defrost)

    def _cooling(self) -> Floats:
        """Watts taken out of the air by boxes that run; negative where a chilled box heats."""
        capacity = np.where(self.works, self._strength * (9800.0 + 190.0 * self.air), 0.0)
        heater = np.where(self.works, HEATER, 0.0)
        wanted = FLOW * (self.air - self.setpoint) + FAN_HEAT
        modulated = np.minimum(np.maximum(wanted, -heater), capacity)
        on = np.where(self.air > self.setpoint + FROZEN_BAND, True, self._compressor)
        self._compressor = np.where(self.air < self.setpoint - FROZEN_BAND, False, on)
        return np.where(self._chilled, modulated, np.where(self._compressor, capacity, 0.0))

    def _dry(self, fans: Flags) -> None:
        # Near saturation relative humidity falls by about 5 % for each kelvin between air and dew point (Lawrence,
        # 2005); the coil's surface is about as cold as the supply air.
        drop = np.where(fans, 5.0 * np.maximum(0.0, self.air - self.supply), 0.0)
        goal = np.minimum(98.0, np.maximum(25.0, self._moisture - drop + np.where(fans, 0.0, 4.0)))
        self.humidity = self.humidity + 0.08 * (goal - self.humidity)

    def sample(self) -> Sample:
        """Read all probes. Draws the same count of random numbers every time, whatever the state."""
        noise = self._rng.normal(0.0, 1.0, size=(5, len(self.air)))
        melting = np.where(self.defrosting, 3.5 + 1.5 * np.minimum(1.0, self._defrost_left / 1800.0), 0.0)
        return Sample(
            supply=np.round(self.supply + PROBE_NOISE * noise[0], 2),
            return_=np.round(self.air + melting + PROBE_NOISE * noise[1], 2),
            ambient=np.round(self._outside + 0.3 * noise[2], 2),
            cargo=np.round(self.cargo + PROBE_NOISE * noise[3], 2),
            humidity=np.round(np.minimum(100.0, np.maximum(0.0, self.humidity + 0.6 * noise[4])), 1),
        )
