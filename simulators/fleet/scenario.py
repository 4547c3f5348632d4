"""The typed model of a scenario: which ships call where and when, what they carry, and what goes wrong.

A scenario runs on a topology, which defines the sites. Models are frozen and forbid unknown keys. Every ``starts``
counts from the scenario's start; every duration is simulated time. Troubles of links are in
``simulators.network.weather``; ``scenario_file`` reads YAML, ``planner`` checks a scenario against its topology.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from fairlead.errors import ConfigurationError, OptionError, UnknownNameError
from fairlead.records.reading import AlarmSeverity
from simulators.fleet.commodities import COMMODITIES, commodity
from simulators.network.weather import LinkTrouble
from topologies.model import Imo, Model, OwnerCode, SiteName
from topologies.values import Duration, SimulatedDuration, SinceStart


class BoxFault(Model):
    """A fault of ``containers`` boxes of one lot at sea, ``by`` before their ship reaches the port ``before``."""

    ship: SiteName
    lot: str
    containers: int = Field(ge=1)
    before: SiteName
    by: SimulatedDuration


class OverboardFault(BoxFault):
    """Boxes slip off the stern: lashings part, the boxes fall, hit the water, drift, and stop reporting."""

    kind: Literal["overboard"]


class PowerLossFault(BoxFault):
    """The plug is pulled, and plugged in again ``lasts`` later."""

    kind: Literal["power-loss"]
    lasts: SimulatedDuration = dt.timedelta(hours=8)


class ReeferFault(BoxFault):
    """The machinery runs but does not cool for ``lasts``; without it, to the end of the box's journey."""

    kind: Literal["reefer-failure"]
    lasts: SimulatedDuration | None = None


class DoorOpenFault(BoxFault):
    """A door stands open at sea for ``lasts``."""

    kind: Literal["door-open"]
    lasts: SimulatedDuration = dt.timedelta(minutes=40)


class SetpointFault(BoxFault):
    """The unit is set to ``setpoint`` instead of its own, for ``lasts``; without it, to the end of the journey."""

    kind: Literal["wrong-setpoint"]
    setpoint: float = Field(ge=-65, le=30)
    lasts: SimulatedDuration | None = None


class SilenceFault(BoxFault):
    """The radio of a device is not heard for ``lasts``. If it ``keeps`` its readings, it sends them afterwards, in
    order; if not, it takes none during this time."""

    kind: Literal["silence"]
    lasts: SimulatedDuration = dt.timedelta(hours=24)
    keeps: bool = True


class ReportedAlarm(Model):
    """An alarm that a reefer unit reports itself.

    Args:
        number: The manufacturer's number of the alarm.
        severity: As in DCSA RMO. ``LOG`` is an entry of the unit's log, about which nobody is alerted.
    """

    number: int = Field(default=59, ge=0)
    severity: AlarmSeverity = "ALARM"
    lasts: SimulatedDuration | None = None


class UnitAlarmFault(BoxFault, ReportedAlarm):
    """The reefer unit reports an alarm of its own for ``lasts``; without it, to the end of the journey."""

    kind: Literal["unit-alarm"]


class YardFault(Model):
    """A fault of ``containers`` boxes of one lot in the yard of a port, each ``after`` its discharge there, or after
    its gate-in if it begins its journey there."""

    port: SiteName
    lot: str
    containers: int = Field(ge=1)
    after: SimulatedDuration


class YardPowerLossFault(YardFault):
    """The plug is pulled, and plugged in again ``lasts`` later."""

    kind: Literal["yard-power-loss"]
    lasts: SimulatedDuration = dt.timedelta(hours=6)


class YardSetpointFault(YardFault):
    """The unit is set to ``setpoint`` instead of its own, for ``lasts``; without it, until the box leaves the port."""

    kind: Literal["yard-setpoint"]
    setpoint: float = Field(ge=-65, le=30)
    lasts: SimulatedDuration | None = None


class YardDropFault(YardFault):
    """Discharged boxes slip from the crane that shifts them, fall into the dock, and stop reporting."""

    kind: Literal["yard-drop"]


class YardUnitAlarmFault(YardFault, ReportedAlarm):
    """The reefer unit reports an alarm of its own for ``lasts``; without it, until the box leaves the port."""

    kind: Literal["yard-unit-alarm"]


AtSea = OverboardFault | PowerLossFault | ReeferFault | DoorOpenFault | SetpointFault | SilenceFault | UnitAlarmFault
Ashore = YardPowerLossFault | YardSetpointFault | YardDropFault | YardUnitAlarmFault
AnyFault = Annotated[AtSea | Ashore, Field(discriminator="kind")]
FAULTS: dict[str, type[Model]] = {
    "overboard": OverboardFault,
    "power-loss": PowerLossFault,
    "reefer-failure": ReeferFault,
    "door-open": DoorOpenFault,
    "wrong-setpoint": SetpointFault,
    "silence": SilenceFault,
    "unit-alarm": UnitAlarmFault,
    "yard-power-loss": YardPowerLossFault,
    "yard-setpoint": YardSetpointFault,
    "yard-drop": YardDropFault,
    "yard-unit-alarm": YardUnitAlarmFault,
}


class Closure(Model):
    """A port does not work: cranes and gates stop, and a ship that comes waits at anchor. Boxes that are not discharged
    stay in the custody of their ship."""

    port: SiteName
    starts: SinceStart
    lasts: SimulatedDuration
    why: str = ""


class ShipLoss(Model):
    """A ship sinks at sea, ``by`` before it reaches the port ``before``: its site ends for good, and its boxes with it.

    Args:
        seized_at: The port that takes over the logs of its boxes.
        seized_after: How long after the loss.
        recovered: Boxes that float and are landed at ``seized_at``, where they report again.
        landed_after: How long after the loss.
    """

    ship: SiteName
    before: SiteName
    by: SimulatedDuration
    seized_at: SiteName
    seized_after: SimulatedDuration
    recovered: int = Field(default=0, ge=0)
    landed_after: SimulatedDuration = dt.timedelta(days=5)

    @model_validator(mode="after")
    def _check_times(self) -> ShipLoss:
        if self.recovered and self.landed_after <= self.seized_after:
            raise ValueError("landed_after must be later than seized_after: the port has the logs when boxes come")
        return self


class Blackout(Model):
    """The yard of a port has no power for its reefers."""

    port: SiteName
    starts: SinceStart
    lasts: SimulatedDuration


class OtherCall(Model):
    """A ship of another line calls at a port, whose terminal also tells the topology's site about it. Its boxes are not
    heard: their devices report to their own line.

    Args:
        owner: The boxes' owner code, for which the topology has no stream.
        discharged: Boxes that it brings. They leave through the gate a day later.
        loaded: Boxes that come through the gate a day before, and that it takes.
    """

    port: SiteName
    imo: Imo
    owner: OwnerCode
    arrives: SinceStart
    stay: SimulatedDuration = dt.timedelta(hours=18)
    discharged: int = Field(default=0, ge=0, le=10_000)
    loaded: int = Field(default=0, ge=0, le=10_000)


class HeadquartersLoss(Model):
    """Headquarters, where shore runs, end for good ``starts`` after the scenario's start. Shore goes on at ``heir``, a
    site on standby, and customers read on there."""

    site: SiteName
    heir: SiteName
    starts: SinceStart


class StormAt(Model):
    """Bad weather around a port: ``wind`` m/s above the usual at its ``peak``; 1/e of that ``hours`` before and after,
    and half of it at a distance of ``radius`` nautical miles. Every ship in it rolls."""

    near: SiteName
    peak: SinceStart
    wind: float = Field(gt=0, le=70)
    hours: float = Field(default=18.0, gt=0, le=876_000)  # 100 years
    radius: float = Field(default=250.0, gt=0)


def _check_commodity(value: str) -> str:
    try:
        commodity(value)
    except UnknownNameError as error:
        near = f"; did you mean {error.fields['nearest']!r}?" if error.fields["nearest"] else ""
        raise ValueError(f"expected a commodity, one of: {', '.join(sorted(COMMODITIES))}{near}") from None
    return value


def _check_interval(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(minutes=1) <= value <= dt.timedelta(days=7):
        raise ValueError("expected an interval from 1m to 7d")
    return value


FIGURES = {
    "ships": "ships that sail",
    "ports": "ports that they call at",
    "calls": "calls in all",
    "transhipped": "boxes that change ships",
    "overboard": "boxes that fall",
    "power_lost": "boxes whose plug is out at sea",
    "power_lost_ashore": "boxes without power in a yard",
    "dropped": "boxes that fall in a port",
    "failed": "boxes whose machinery stops cooling",
    "doors_open": "boxes whose doors stand open at sea",
    "wrong_setpoint": "boxes with another set point than booked",
    "cold_treatments": "boxes whose booking asks for a cold treatment",
    "unit_alarms": "boxes whose reefer unit reports an alarm",
    "sunk": "boxes that are aboard a ship when it sinks",
    "landed": "of these, boxes that are found and landed",
    "days_after_loss": "days from the loss of the headquarters to the end",
    "silent": "boxes that are not heard for a while",
    "other_lines": "boxes of other lines that ports see",
    "days": "days from start to end",
    "days_cut": "days of the longest outage of a link",
    "days_waiting": "days that a ship waits at anchor, the longest wait",
    "links_cut": "pairs of sites that lose their link",
}
"""The figures of a plan that a scenario may expect, and what each counts."""

CommodityName = Annotated[str, AfterValidator(_check_commodity)]
Interval = Annotated[Duration, AfterValidator(_check_interval)]
_SHORTEST_INTERVAL = dt.timedelta(minutes=1)
Knots = Annotated[float, Field(gt=0, le=40)]


class ScenarioCall(Model):
    """A ship's visit to a port.

    Args:
        stay: The time alongside, in which it discharges and then loads.
        at_sea: If the next call is at the same port: how long the ship is away, out along a sea lane and back. Not
            allowed between different ports, where distance and speed determine it.
    """

    port: SiteName
    stay: SimulatedDuration
    at_sea: SimulatedDuration | None = None


class ScenarioShip(Model):
    """A ship's timetable: it reaches the first port ``first_arrival`` after the start, the others by its own speed."""

    service_speed: Knots = 18.0
    first_arrival: SinceStart = dt.timedelta(days=2)
    calls: tuple[ScenarioCall, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_calls(self) -> ScenarioShip:
        for one, other in zip(self.calls, (*self.calls[1:], None), strict=True):
            again = other is not None and one.port == other.port
            if again and one.at_sea is None:
                raise ValueError(
                    f"calls at {one.port} twice in a row; make it one call with a longer stay, or give the first "
                    "an at_sea, such as 24h, for a round trip between them"
                )
            if one.at_sea is not None and not again:
                raise ValueError(f"at_sea of the call at {one.port} is for a ship that calls there again next")
        return self


class ColdTreatment(Model):
    """A quarantine treatment: ``days`` without a break at or below ``temperature``, in degrees Celsius."""

    temperature: float = Field(ge=-65, le=30)
    days: float = Field(gt=0, le=100)


class Lot(Model):
    """Containers that differ only in their numbers.

    Args:
        containers: How many, before ``--containers`` rescales the mix.
        route: Alternating ports and ships, from gate-in to the last discharge: ``[tokyo, duck-star, singapore]``, or
            with a transhipment ``[tokyo, duck-star, singapore, blue-marlin, sydney]``. A ship that comes back to its
            port may bring boxes back: ``[tokyo, duck-star, tokyo]``.
        customer: The party that booked them, as the topology names it; without one no booking is published.
        consignee: The receiver of the goods, as the topology names it; part of the booking.
        gate_in: They come through the gate up to this long before their ship loads them.
        afterwards: ``leave`` through the gate of the last port, ``wait`` in its yard (for a ship that is not in this
            scenario), or stay ``aboard``: the ship takes them to the last port, but the scenario ends before they are
            discharged.
        released_after: The customer's booking ends this long after discharge. None: it ends at the gate-out; without
            a gate-out it still runs when the scenario ends.
        gate_out_after: They leave through the gate about this long after discharge.
        inspected: Customs keep each box's doors open for this long, two hours after its last discharge.
        cold_treatment: The booking asks for it, and each box has three probes in its cargo.
    """

    owner: OwnerCode
    commodity: CommodityName
    containers: int = Field(ge=1)
    route: tuple[SiteName, ...] = Field(min_length=3)
    customer: SiteName | None = None
    consignee: SiteName | None = None
    setpoint: float | None = Field(default=None, ge=-65, le=30)
    gate_in: SimulatedDuration = dt.timedelta(days=1)
    afterwards: Literal["leave", "wait", "aboard"] = "leave"
    released_after: SimulatedDuration | None = None
    gate_out_after: SimulatedDuration = dt.timedelta(days=1)
    inspected: SimulatedDuration | None = None
    cold_treatment: ColdTreatment | None = None

    @model_validator(mode="after")
    def _check_lot(self) -> Lot:
        if len(self.route) % 2 == 0:
            raise ValueError("expected a route of ports and ships by turns that begins and ends with a port")
        if self.consignee and not self.customer:
            raise ValueError("a consignee without a customer: nobody books these boxes")
        if self.cold_treatment and not self.customer:
            raise ValueError("a cold_treatment without a customer: a booking asks for it, and nobody books these boxes")
        if self.released_after and self.afterwards == "leave" and self.released_after > self.gate_out_after:
            raise ValueError("released_after is later than gate_out_after: release it before it leaves")
        if self.released_after and self.afterwards == "aboard":
            raise ValueError("released_after counts from the discharge, and these boxes stay aboard")
        return self

    @property
    def legs(self) -> tuple[tuple[str, str, str], ...]:
        """``(port, ship, port)`` for each leg."""
        r = self.route
        return tuple((r[i], r[i + 1], r[i + 2]) for i in range(0, len(r) - 2, 2))


class Devices(Model):
    """How sensors misbehave: probabilities per reading."""

    repeat: float = Field(default=0.005, ge=0, le=1)  # the reading is published again with the same identity (QoS 1)
    reboot: float = Field(default=0.001, ge=0, le=1)  # the device boots again: next boot id, sequence from 0


class Expectation(Model):
    """One purpose of a scenario: a sentence and, if any, the figure of the plan that proves it (one of
    ``FIGURES``)."""

    says: str
    figure: str | None = None
    at_least: float | None = None

    @model_validator(mode="after")
    def _check_figure(self) -> Expectation:
        if (self.figure is None) != (self.at_least is None):
            raise ValueError("figure and at_least go together")
        if self.figure is not None and self.figure not in FIGURES:
            raise ValueError(f"no figure {self.figure!r}, expected one of: {', '.join(FIGURES)}")
        return self


class Scenario(Model):
    """A whole scenario. Every duration counts simulated time."""

    name: SiteName
    title: str = ""
    description: str = ""
    topology: str
    start: AwareDatetime
    # Real reefers report every 15 to 60 minutes (60 is the common default). Demonstrations of weeks on a laptop use a
    # longer interval, so that there are only tens of thousands of readings.
    reading_interval: Interval = dt.timedelta(hours=1)
    ship_interval: Interval = dt.timedelta(hours=1)  # a ship's position and environment
    booking_office: SiteName
    ships: dict[SiteName, ScenarioShip]
    cargo: dict[str, Lot] = Field(min_length=1)
    faults: tuple[AnyFault, ...] = ()
    links: tuple[LinkTrouble, ...] = ()
    closures: tuple[Closure, ...] = ()
    lost_ships: tuple[ShipLoss, ...] = ()
    blackouts: tuple[Blackout, ...] = ()
    storms: tuple[StormAt, ...] = ()
    other_calls: tuple[OtherCall, ...] = ()
    lost_headquarters: HeadquartersLoss | None = None
    devices: Devices = Devices()
    expects: tuple[Expectation, ...] = ()

    @property
    def containers(self) -> int:
        return sum(lot.containers for lot in self.cargo.values())

    def adjusted(
        self,
        *,
        containers: int | None = None,
        start: dt.datetime | None = None,
        reading_interval: dt.timedelta | None = None,
    ) -> Scenario:
        """Return the same scenario with other settings; None keeps the scenario's own.

        Args:
            containers: See ``rescaled``.
            start: The new start; moves everything in time, devices' clocks included.

        Raises:
            ConfigurationError: too few containers, a start without time zone, or an interval under a minute.
        """
        changed: dict[str, object] = {}
        if start is not None:
            if start.tzinfo is None:
                raise ConfigurationError("the start of a voyage has no time zone", hint="give it in UTC, ending in Z")
            changed["start"] = start.replace(microsecond=0)
        if reading_interval is not None:
            if reading_interval < _SHORTEST_INTERVAL:
                raise OptionError(
                    f"a reading interval of {reading_interval} is too short", hint=f"give at least {_SHORTEST_INTERVAL}"
                )
            changed["reading_interval"] = reading_interval
        scaled = self if containers is None else self.rescaled(containers)
        return scaled.model_copy(update=changed)

    def rescaled(self, containers: int) -> Scenario:
        """Return the same mix of lots with this many containers in all; every lot keeps at least one.

        Raises:
            ConfigurationError: fewer containers than lots.
        """
        if containers < len(self.cargo):
            raise ConfigurationError(
                f"scenario {self.name} has {len(self.cargo)} lots, which {containers} containers cannot fill",
                hint=f"ask for at least {len(self.cargo)} containers",
            )
        total = self.containers
        exact = {name: lot.containers * containers / total for name, lot in self.cargo.items()}
        count = {name: max(1, int(share)) for name, share in exact.items()}
        # Largest remainders first; the names break ties, so that the result never depends on chance.
        order = sorted(exact, key=lambda name: (count[name] - exact[name], name))
        while (rest := containers - sum(count.values())) != 0:
            if rest > 0:
                for name in order[:rest]:
                    count[name] += 1
            else:
                count[max(count, key=lambda name: (count[name], name))] -= 1
        cargo = {name: lot.model_copy(update={"containers": count[name]}) for name, lot in self.cargo.items()}
        faults = tuple(
            fault.model_copy(update={"containers": min(fault.containers, count[fault.lot])}) for fault in self.faults
        )
        lost = tuple(
            loss.model_copy(update={"recovered": loss.recovered * containers // total}) for loss in self.lost_ships
        )
        return self.model_copy(update={"cargo": cargo, "faults": faults, "lost_ships": lost})
