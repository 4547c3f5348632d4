"""What goes wrong in a scenario, as typed models: boxes, ports, power ashore and the sky. Frozen, no unknown keys.

Every ``starts`` counts from the scenario's start; every duration is simulated time.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from topologies.model import Model, SiteName
from topologies.values import Duration


def _check_positive(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(0) < value < dt.timedelta.max:
        raise ValueError("expected a duration above zero, such as 3h")
    return value


Positive = Annotated[Duration, AfterValidator(_check_positive)]


class Fault(Model):
    """Something that happens to boxes of one lot while their ship is at sea, ``by`` before it reaches a port."""

    ship: SiteName
    lot: str
    containers: int = Field(ge=1)
    before: SiteName
    by: Positive


class Overboard(Fault):
    """Boxes slip off the stern: lashings part, they fall, hit the water, drift, and fall silent."""

    kind: Literal["overboard"]


class PowerLoss(Fault):
    """The plug comes out and is put back ``lasts`` later."""

    kind: Literal["power-loss"]
    lasts: Positive = dt.timedelta(hours=8)


class ReeferFailure(Fault):
    """The machinery runs but no longer cools, for ``lasts``; to the end of its journey when that is not given."""

    kind: Literal["reefer-failure"]
    lasts: Positive | None = None


class DoorOpen(Fault):
    """A door stands open at sea for ``lasts``."""

    kind: Literal["door-open"]
    lasts: Positive = dt.timedelta(minutes=40)


class WrongSetpoint(Fault):
    """Somebody sets ``setpoint`` instead of what was booked, and puts it right ``lasts`` later, or never."""

    kind: Literal["wrong-setpoint"]
    setpoint: float = Field(ge=-65, le=30)
    lasts: Positive | None = None


class Silence(Fault):
    """The radio is not heard for ``lasts``. A device that ``keeps`` its readings sends them all when it is heard again,
    in order; one that does not has taken none."""

    kind: Literal["silence"]
    lasts: Positive = dt.timedelta(hours=24)
    keeps: bool = True


AnyFault = Annotated[
    Overboard | PowerLoss | ReeferFailure | DoorOpen | WrongSetpoint | Silence, Field(discriminator="kind")
]
FAULTS: dict[str, type[Fault]] = {
    "overboard": Overboard,
    "power-loss": PowerLoss,
    "reefer-failure": ReeferFailure,
    "door-open": DoorOpen,
    "wrong-setpoint": WrongSetpoint,
    "silence": Silence,
}


class Closure(Model):
    """A port does not work: no crane moves, no gate opens, a ship that comes waits at anchor. What is not discharged
    stays in the custody of its ship."""

    port: SiteName
    starts: Duration
    lasts: Positive
    why: str = ""


class Blackout(Model):
    """The yard of a port has no power for its reefers."""

    port: SiteName
    starts: Duration
    lasts: Positive


class StormAt(Model):
    """Bad weather around a port: ``wind`` m/s above the usual at its ``peak``, half as much after ``hours`` and at
    ``radius`` nautical miles. Every ship in it rolls."""

    near: SiteName
    peak: Duration
    wind: float = Field(gt=0, le=70)
    hours: float = Field(default=18.0, gt=0)
    radius: float = Field(default=250.0, gt=0)
