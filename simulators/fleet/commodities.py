"""The kinds of cargo in reefers: set point, thermal properties, humidity, atmosphere. Pure data.

Set points are the trades' usual carriage temperatures. Specific heats come from food tables, rounded to 0.1 kJ/(kg K).
Heat of respiration is that of cooled fruit at its set point. All are defaults for a simulation, not advice for
carriage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fairlead.errors import UnknownNameError

FROZEN_BELOW = -10.0  # C; at or below, units switch cooling on and off by return air (docs/simulators-physics.md)


class Atmosphere(NamedTuple):
    """A controlled atmosphere: the O2 and CO2 that the unit keeps, per cent by volume. Such boxes report both."""

    o2: float
    co2: float


@dataclass(frozen=True, slots=True)
class Commodity:
    """One kind of cargo of a 40' high-cube reefer.

    Args:
        setpoint: Degrees Celsius.
        mass: Tonnes in the box.
        heat: Specific heat, kJ/(kg K).
        respiration: Heat that the cargo itself gives off, watts per tonne.
        humidity: Relative humidity, per cent, towards which the cargo brings the air.
        defrost_hours: Running hours between defrosts; None if the coil stays above freezing.
        vent: Fresh air, m3/h, for cargo that breathes without a controlled atmosphere.
        dried: The unit dries the air down to ``humidity``, which is then a set point.
    """

    name: str
    setpoint: float
    mass: float
    heat: float
    respiration: float = 0.0
    humidity: float = 85.0
    defrost_hours: float | None = 12.0
    vent: float = 0.0
    dried: bool = False
    atmosphere: Atmosphere | None = None

    @property
    def frozen(self) -> bool:
        return self.setpoint <= FROZEN_BELOW


@dataclass(frozen=True, slots=True)
class ReeferUnit:
    """One box, its machinery and its cargo: what does not change on a journey."""

    commodity: Commodity
    setpoint: float
    leak: float = 44.0  # UA, W/K
    strength: float = 1.0  # of the machinery, 1 is new
    on_deck: bool = True
    first_defrost_hours: float = 6.0  # running hours until the first defrost, so that boxes differ
    three_probes: bool = False  # three probes in the cargo, as a cold treatment has them


_APPLES = Atmosphere(o2=2.5, co2=2.5)
_AVOCADOS = Atmosphere(o2=4.0, co2=4.0)
_ALL = (
    Commodity("toy-ducks", 18.0, 9.0, 1.7, humidity=62.0, defrost_hours=None),
    Commodity("frozen-fish", -20.0, 22.0, 1.9, humidity=92.0, defrost_hours=12.0),
    Commodity("ice-cream", -25.0, 14.0, 1.9, humidity=92.0, defrost_hours=12.0),
    Commodity("chilled-beef", -1.4, 18.0, 3.2, humidity=92.0, defrost_hours=6.0),
    Commodity("bananas", 13.3, 19.0, 3.4, respiration=45.0, humidity=95.0, defrost_hours=None, vent=25.0),
    Commodity("oranges", 4.0, 21.0, 3.8, respiration=10.0, humidity=90.0, defrost_hours=6.0, vent=15.0),
    Commodity("apples", 0.5, 20.0, 3.6, respiration=12.0, humidity=94.0, defrost_hours=6.0, vent=20.0),
    Commodity("cut-flowers", 2.0, 6.0, 3.7, respiration=60.0, humidity=92.0, defrost_hours=6.0, vent=15.0),
    Commodity("pharmaceuticals", 5.0, 6.0, 2.5, humidity=60.0, defrost_hours=8.0),
    # Carriers' lists: apples in a controlled atmosphere 2-3 % O2 and 2-3 % CO2, avocados 3-5 % of each.
    Commodity("apples-ca", 0.5, 20.0, 3.6, respiration=7.0, humidity=94.0, defrost_hours=6.0, atmosphere=_APPLES),
    Commodity("avocados", 5.0, 19.0, 3.3, respiration=40.0, humidity=88.0, defrost_hours=8.0, atmosphere=_AVOCADOS),
    Commodity("onions", 0.5, 22.0, 3.8, respiration=8.0, humidity=70.0, defrost_hours=8.0, vent=30.0, dried=True),
    Commodity("wine", 14.0, 16.0, 3.8, humidity=70.0, defrost_hours=None),
)
COMMODITIES: dict[str, Commodity] = {c.name: c for c in _ALL}


def commodity(name: str) -> Commodity:
    """Return a commodity by name.

    Raises:
        UnknownNameError: no commodity has this name; the error lists the names.
    """
    if name not in COMMODITIES:
        raise UnknownNameError("commodity", name, COMMODITIES)
    return COMMODITIES[name]
