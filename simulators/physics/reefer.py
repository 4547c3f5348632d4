"""A thermal model of many reefers at once, in steps of five minutes. Pure, but draws from a given random generator.

Each box has two lumps, the air with what it touches (``air``) and the cargo (``cargo``), between the ambient air and
an evaporator:

    C_air   d air/dt   = UA (ambient + sun - air) + hA (cargo - air) + fans + defrost heat - cooling
    C_cargo d cargo/dt = hA (air - cargo) + respiration

The air lump is solved exactly within a step, so that no step is too long for it. Return air is ``air``; supply air
follows from the cooling and the fans' flow. Control is as on real units (Carrier 69NT40 manual): for chilled cargo the
unit modulates its cooling to keep the **supply** air at the set point, for frozen cargo it switches cooling on and
off to keep the **return** air within a band. Defrosting stops cooling and fans while a heater melts the coil's ice, and
the return probe above it reads high. An open door lets ambient air in. Fruit turns O2 into CO2 in proportion to its
heat; vents, or the machinery of a controlled atmosphere while it has power, work against that.

A unit with three probes also has the pulp around each of them (``PULP``). It follows the air there with a lag of its
own and gives nothing back: a carton weighs little in 20 tonnes.

    d pulp/dt = (air there + respiration / hA - pulp) / lag

Sizes are those of a 40' high-cube unit: UA about 44 W/K, 1.8 kW/K of air flow (half of it for frozen cargo, with the
fans at low speed), 6 kW of cooling at -20 and 11 kW at +5 degrees. docs/simulators-physics.md compares with published
figures. Units: degrees Celsius, watts, seconds, per cent. All arrays have one element per box, in the order of
``units``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulators.fleet.commodities import FROZEN_BELOW, Atmosphere, ReeferUnit
from simulators.fleet.plan import PowerChange

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

STEP = dt.timedelta(minutes=5)
_SECONDS = STEP.total_seconds()
AIR_CAPACITY = 1.5e6  # J/K: air, lining, and the skin of the cargo
FLOW = 1800.0  # W/K: about 5,400 m3/h of air
FAN_HEAT = 800.0  # W, evaporator fans, all of it inside the box
LOW_FLOW = 900.0  # fans at half speed move half the air
LOW_FAN_HEAT = 100.0  # and need an eighth of the power (Container Handbook, 7.2.7.1)
DOOR_LEAK = 1200.0  # W/K through open doors with pallets behind them
DOOR_AIR = 600.0  # m3/h through them
HEATER = 4000.0  # W, evaporator heaters: heating in cold weather, and defrost
CONTROLS, CONDENSER_FAN = 150.0, 750.0  # W
COP = 1.25  # watts moved for each watt of the compressor, controls and fans not counted
DEFROST_LEAK = 900.0  # W of the defrost heat that reach the cargo space
STILL_AIR = 0.6  # share of the heat transfer to the cargo that remains without fans
FROZEN_BAND = 0.25  # K either side of the set point
PROBE_NOISE = 0.04  # K
PULP_NOISE = 0.02  # K; fruit is steadier than air
FREE_AIR = 38.0  # m3 around the cargo
TIGHTNESS = 0.1  # m3/h that any box leaks
CO2_PER_WATT = 1 / (2.96 * 1960)  # m3/h: 1 mg/(kg h) of CO2 goes with 2.96 W/t of heat (USDA); 1.96 kg/m3
OUTSIDE_O2, OUTSIDE_CO2 = 20.9, 0.04  # per cent
ATMOSPHERE_RATE = 0.5  # per cent; the most by which a controlled atmosphere is corrected in a step of five minutes


class PulpPlace(NamedTuple):
    """Where a probe sticks in the cargo: what air is there, and how slowly the pulp follows it.

    Args:
        rise: Share of the way from supply to return air, in kelvins, that the air has come there.
        wall: Share of the difference from the air inside to the outside that reaches the cartons.
        lag: Of the pulp, in parts of the lag of the whole cargo (its heat capacity by hA).
    """

    rise: float
    wall: float
    lag: float


PULP = (
    PulpPlace(rise=1.0, wall=0.0, lag=0.7),  # beside the return air intake, on top of the load
    PulpPlace(rise=0.5, wall=0.0, lag=1.8),  # in a centre carton, half as high as the load, near the doors
    PulpPlace(rise=0.6, wall=0.01, lag=1.3),  # at a side wall, half as high, near the doors
)
"""The places of probes 1, 2 and 3 in a cold treatment (USDA; Carrier 69NT40-541 manual, 4.6.12)."""


class Sample(NamedTuple):
    """What the probes of all boxes show, with probe noise: 0.01 K, 0.1 % relative humidity, 0.01 % of O2 and CO2.

    ``pulp``: the three probes of the boxes ``ReeferFleet.probed``, one row a probe; it stands for ``cargo`` there.
    """

    supply: Floats
    return_: Floats
    ambient: Floats
    cargo: Floats
    humidity: Floats
    o2: Floats
    co2: Floats
    pulp: Floats


class ReeferFleet:
    """The state of many reefers at ``time``.

    Args:
        units: The boxes.
        start: Time of the initial state: cargo and air at the set point (pre-cooled), plugged in.
        changes: All changes of the boxes, in any order; each takes effect at the first step not before its time.
        rng: Source of probe noise.
    """

    def __init__(
        self, units: Sequence[ReeferUnit], start: dt.datetime, changes: Sequence[PowerChange], rng: np.random.Generator
    ) -> None:
        self.time = start
        self._rng = rng
        self._changes = sorted(changes, key=lambda change: (change.time, change.box))
        self._next_change = 0
        n = len(units)
        cargo = [u.commodity for u in units]
        self.setpoint: Floats = np.array([u.setpoint for u in units], dtype=np.float64)
        self._booked = self.setpoint.copy()
        self._chilled: Flags = self.setpoint > FROZEN_BELOW
        self._leak: Floats = np.array([u.leak for u in units], dtype=np.float64)
        self._strength: Floats = np.array([u.strength for u in units], dtype=np.float64)
        self.on_deck: Flags = np.array([u.on_deck for u in units], dtype=np.bool_)
        mass = np.array([c.mass for c in cargo], dtype=np.float64)
        self._cargo_capacity: Floats = mass * 1e6 * np.array([c.heat for c in cargo], dtype=np.float64)
        self._respiration: Floats = mass * np.array([c.respiration for c in cargo], dtype=np.float64)
        self._transfer: Floats = 250.0 + 22.0 * mass  # hA with fans: more pallets, more surface
        self._moisture: Floats = np.array([c.humidity for c in cargo], dtype=np.float64)
        self._dried: Flags = np.array([c.dried for c in cargo], dtype=np.bool_)
        self._vent: Floats = TIGHTNESS + np.array([c.vent for c in cargo], dtype=np.float64)
        kept = [c.atmosphere or Atmosphere(OUTSIDE_O2, OUTSIDE_CO2) for c in cargo]
        self._controlled: Flags = np.array([c.atmosphere is not None for c in cargo], dtype=np.bool_)
        self._kept_o2: Floats = np.array([a.o2 for a in kept], dtype=np.float64)
        self._kept_co2: Floats = np.array([a.co2 for a in kept], dtype=np.float64)
        never = math.inf
        self._defrost_every: Floats = np.array([(c.defrost_hours or never) * 3600 for c in cargo], dtype=np.float64)
        first = [u.first_defrost_hours * 3600 if u.commodity.defrost_hours else never for u in units]
        self._until_defrost: Floats = np.array(first, dtype=np.float64)
        self._defrost_left: Floats = np.zeros(n)
        # math.exp and not numpy's, which may differ in the last bit between processors; computed once for speed.
        self._decay_fans = self._decay(self._leak + self._transfer)
        self._decay_still = self._decay(self._leak + STILL_AIR * self._transfer)
        self._decay_door_fans = self._decay(self._leak + DOOR_LEAK + self._transfer)
        self._decay_door_still = self._decay(self._leak + DOOR_LEAK + STILL_AIR * self._transfer)

        self.air: Floats = self.setpoint.copy()
        self.cargo: Floats = self.setpoint.copy()
        self.supply: Floats = self.setpoint.copy()
        self.probed = np.flatnonzero([u.three_probes for u in units])
        self.pulp: Floats = np.tile(self.setpoint[self.probed], (len(PULP), 1))
        places = np.array(PULP, dtype=np.float64)[:, :, np.newaxis]
        self._rise, self._wall, lag = places[:, 0], places[:, 1], places[:, 2]
        self._pulp_share = _SECONDS / (lag * self._cargo_capacity[self.probed])  # times hA: what a step takes over
        self.humidity: Floats = self._moisture.copy()
        self.powered: Flags = np.ones(n, dtype=np.bool_)
        self.dead_socket: Flags = np.zeros(n, dtype=np.bool_)  # the plug is in, and there is no power
        self.works: Flags = np.ones(n, dtype=np.bool_)
        self.door: Flags = np.zeros(n, dtype=np.bool_)
        self.o2: Floats = self._kept_o2.copy()
        self.co2: Floats = self._kept_co2.copy()
        self.power: Floats = np.zeros(n)  # electrical, W
        self._compressor: Flags = np.zeros(n, dtype=np.bool_)
        self._outside: Floats = np.zeros(n)
        self._rearrange()

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
            sun: Kelvin that the sun adds there for a box on deck.
        """
        self._outside = ambient
        warm = ambient + np.where(self.on_deck, sun, 0.0)
        while self.time + STEP <= until:
            self._apply_changes()
            self._step(warm)
            self.time += STEP

    def _apply_changes(self) -> None:
        before = self._next_change
        while self._next_change < len(self._changes) and self._changes[self._next_change].time <= self.time:
            change = self._changes[self._next_change]
            self.powered[change.box] = change.powered
            self.dead_socket[change.box] = change.dead_socket
            self.works[change.box] = change.cooling_works
            self.door[change.box] = change.door_open
            wanted = self._booked[change.box] if change.setpoint is None else change.setpoint
            self.setpoint[change.box] = wanted
            self._chilled[change.box] = wanted > FROZEN_BELOW
            self._next_change += 1
        if self._next_change != before:
            self._rearrange()

    def _rearrange(self) -> None:
        """Compute what only a ``PowerChange`` changes; saves most of the time that a small fleet takes."""
        self._fan_heat = np.where(self._chilled, FAN_HEAT, LOW_FAN_HEAT)
        self._flow = np.where(self._chilled, FLOW, LOW_FLOW)
        self._defrost_time = np.where(self._chilled, 1800.0, 2400.0)  # colder coils carry more ice
        self._heater = np.where(self.works, HEATER, 0.0)
        self._any_door = bool(self.door.any())
        self._swept = _SECONDS / 3600 * np.where(self.door, DOOR_AIR, self._vent) / FREE_AIR
        self._kept = self._controlled & self.powered & self.works & ~self.door

    def _step(self, warm: Floats) -> None:
        self._defrost_cycle()
        defrosting = self._defrost_left > 0
        fans = self.powered & ~defrosting
        heating = defrosting & self.powered
        fan_heat = np.where(fans, self._fan_heat, 0.0)
        transfer = np.where(fans, self._transfer, STILL_AIR * self._transfer)
        leak, decay = self._leak, np.where(fans, self._decay_fans, self._decay_still)
        if self._any_door:
            leak = np.where(self.door, leak + DOOR_LEAK, leak)
            decay = np.where(self.door, np.where(fans, self._decay_door_fans, self._decay_door_still), decay)
        cooling = np.where(fans, self._cooling(fan_heat), 0.0)
        inner = fan_heat + np.where(heating, DEFROST_LEAK, 0.0)
        goal = (leak * warm + transfer * self.cargo + inner - cooling) / (leak + transfer)
        before = self.air
        self.air = goal + (before - goal) * decay
        mean_air = (before + self.air) / 2
        # Fruit breathes about 10 % faster for each kelvin of warming, and hardly at all without oxygen.
        eager = np.minimum(5.0, np.maximum(0.3, 1.0 + 0.1 * (self.cargo - self._booked)))
        breath = self._respiration * eager * self.o2 / (self.o2 + 0.5)
        heat = transfer * (mean_air - self.cargo) + breath
        self.cargo = self.cargo + _SECONDS * heat / self._cargo_capacity
        blown = before + (fan_heat - cooling) / self._flow
        self.supply = np.where(fans, blown, self.supply + 0.2 * (self.air - self.supply))
        if len(self.probed):
            self._warm_pulp(warm, mean_air, breath, transfer)
        self._dry(fans)
        self._breathe(breath)
        compressor = np.where(cooling > 0, CONDENSER_FAN + cooling / COP, -cooling)
        machine = np.where(fans, CONTROLS + compressor + fan_heat, 0.0)
        self.power = machine + np.where(heating, HEATER, 0.0)

    def _defrost_cycle(self) -> None:
        self._defrost_left = np.where(self.powered, np.maximum(0.0, self._defrost_left - _SECONDS), 0.0)
        running = self.powered & (self._defrost_left <= 0)
        self._until_defrost = np.where(running, self._until_defrost - _SECONDS, self._until_defrost)
        begins = running & (self._until_defrost <= 0)
        if begins.any():
            self._defrost_left = np.where(begins, self._defrost_time, self._defrost_left)
            self._until_defrost = np.where(begins, self._defrost_every, self._until_defrost)

    def _cooling(self, fan_heat: Floats) -> Floats:
        """Return the watts that running units take out of the air; negative if a chilled box heats."""
        capacity = np.where(self.works, self._strength * (9800.0 + 190.0 * self.air), 0.0)
        wanted = self._flow * (self.air - self.setpoint) + fan_heat
        modulated = np.minimum(np.maximum(wanted, -self._heater), capacity)
        above = self.air - self.setpoint
        self._compressor = (above > FROZEN_BAND) | (self._compressor & (above >= -FROZEN_BAND))
        return np.where(self._chilled, modulated, np.where(self._compressor, capacity, 0.0))

    def _warm_pulp(self, warm: Floats, air: Floats, breath: Floats, transfer: Floats) -> None:
        at = self.probed
        supply, air, transfer = self.supply[at], air[at], transfer[at]
        there = supply + self._rise * (air - supply) + self._wall * (warm[at] - air)
        self.pulp = self.pulp + self._pulp_share * (transfer * (there - self.pulp) + breath[at])

    def _dry(self, fans: Flags) -> None:
        # Near saturation, relative humidity falls by about 5 % for each kelvin between air and dew point (Lawrence,
        # 2005). The coil's surface is about as cold as the supply air.
        drop = np.where(fans & ~self._dried, 5.0 * np.maximum(0.0, self.air - self.supply), 0.0)
        goal = np.minimum(98.0, np.maximum(25.0, self._moisture - drop + np.where(fans, 0.0, 4.0)))
        if self._any_door:
            self.humidity = np.where(self.door, self.humidity + 0.5 * (80.0 - self.humidity), self.humidity)
        self.humidity = self.humidity + np.where(self.door, 0.0, 0.08) * (goal - self.humidity)

    def _breathe(self, breath: Floats) -> None:
        # An implicit step, so that it stays stable for any exchange of air.
        made = 100.0 * _SECONDS / 3600 * CO2_PER_WATT / FREE_AIR * breath
        swept = self._swept
        co2 = (self.co2 + made + swept * OUTSIDE_CO2) / (1.0 + swept)
        o2 = np.maximum(0.0, (self.o2 - made + swept * OUTSIDE_O2) / (1.0 + swept))
        if self._kept.any():
            co2 = np.where(self._kept, _towards(co2, self._kept_co2), co2)
            o2 = np.where(self._kept, _towards(o2, self._kept_o2), o2)
        self.co2 = np.minimum(100.0, co2)
        self.o2 = o2

    def sample(self) -> Sample:
        """Read all probes. Draws the same number of random numbers every time, whatever the state."""
        noise = self._rng.normal(0.0, 1.0, size=(7, len(self.air)))
        in_pulp = self._rng.normal(0.0, 1.0, size=self.pulp.shape)
        melting = np.where(self.defrosting, 3.5 + 1.5 * np.minimum(1.0, self._defrost_left / 1800.0), 0.0)
        return Sample(
            supply=np.round(self.supply + PROBE_NOISE * noise[0], 2),
            return_=np.round(self.air + melting + PROBE_NOISE * noise[1], 2),
            ambient=np.round(self._outside + 0.3 * noise[2], 2),
            cargo=np.round(self.cargo + PROBE_NOISE * noise[3], 2),
            humidity=np.round(np.minimum(100.0, np.maximum(0.0, self.humidity + 0.6 * noise[4])), 1),
            o2=np.round(np.maximum(0.0, self.o2 + 0.05 * noise[5]), 2),
            co2=np.round(np.maximum(0.0, self.co2 + 0.05 * noise[6]), 2),
            pulp=np.round(self.pulp + PULP_NOISE * in_pulp, 2),
        )


def _towards(now: Floats, wanted: Floats) -> Floats:
    return now + np.minimum(ATMOSPHERE_RATE, np.maximum(-ATMOSPHERE_RATE, wanted - now))
