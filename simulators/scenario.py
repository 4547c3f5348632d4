"""The typed model of a scenario: which ships call where and when, what they carry, and what goes wrong.

A scenario runs on a topology, which names the sites; a scenario names only what moves. Models are frozen and forbid
unknown keys. ``simulators.scenario_file`` reads YAML and reports mistakes with their line; ``check`` here compares a
scenario with its topology.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from fairlead.errors import ConfigurationError, UnknownNameError
from simulators.commodities import COMMODITIES, commodity
from topologies.model import Model, OwnerCode, SiteKind, SiteName, Topology
from topologies.values import Duration


def _check_commodity(value: str) -> str:
    try:
        commodity(value)
    except UnknownNameError as error:
        near = f"; did you mean {error.fields['nearest']!r}?" if error.fields["nearest"] else ""
        raise ValueError(f"expected a commodity, one of: {', '.join(sorted(COMMODITIES))}{near}") from None
    return value


def _check_positive(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(0) < value < dt.timedelta.max:
        raise ValueError("expected a duration above zero, such as 3h")
    return value


def _check_interval(value: dt.timedelta) -> dt.timedelta:
    if not dt.timedelta(minutes=1) <= value <= dt.timedelta(days=7):
        raise ValueError("expected an interval from 1m to 7d")
    return value


CommodityName = Annotated[str, AfterValidator(_check_commodity)]
Positive = Annotated[Duration, AfterValidator(_check_positive)]
Interval = Annotated[Duration, AfterValidator(_check_interval)]
Knots = Annotated[float, Field(gt=0, le=40)]


class Call(Model):
    """A ship's visit to a port.

    Args:
        stay: The time alongside, in which it discharges and then loads.
        at_sea: For a ship that comes back to the same port next: how long it is away, out along a sea lane and back.
            Between different ports the distance and the ship's speed tell, so it must not be given there.
    """

    port: SiteName
    stay: Positive
    at_sea: Positive | None = None


class Ship(Model):
    """A ship's timetable: it reaches the first port ``first_arrival`` after the start, the others by its own speed."""

    service_speed: Knots = 18.0
    first_arrival: Duration = dt.timedelta(days=2)
    calls: tuple[Call, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_calls(self) -> Ship:
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


class Lot(Model):
    """Containers that have everything in common but their numbers.

    Args:
        containers: How many, before ``--containers`` rescales the mix.
        route: Ports and ships by turns, from gate-in to the last discharge: ``[tokyo, duck-star, singapore]``, or
            with a transhipment ``[tokyo, duck-star, singapore, blue-marlin, sydney]``. A ship that comes back to its
            port may bring boxes back: ``[tokyo, duck-star, tokyo]``.
        customer: The party that booked them, as the topology names it; without one no booking is published.
        gate_in: They come through the gate up to this long before their ship loads them.
        afterwards: ``leave`` through the gate of the last port, or ``wait`` in its yard (for a ship that is not in
            this scenario), or stay ``aboard``: the ship reaches the last port with them, and when the scenario ends
            they have not been discharged.
        released_after: The customer's booking ends this long after discharge; what the box carries then is not the
            customer's business. None: the booking is still running when the scenario ends.
        gate_out_after: They leave through the gate this long after discharge.
    """

    owner: OwnerCode
    commodity: CommodityName
    containers: int = Field(ge=1)
    route: tuple[SiteName, ...] = Field(min_length=3)
    customer: SiteName | None = None
    setpoint: float | None = Field(default=None, ge=-65, le=30)
    gate_in: Positive = dt.timedelta(days=1)
    afterwards: Literal["leave", "wait", "aboard"] = "leave"
    released_after: Positive | None = None
    gate_out_after: Positive = dt.timedelta(days=1)

    @model_validator(mode="after")
    def _check_lot(self) -> Lot:
        if len(self.route) % 2 == 0:
            raise ValueError("expected a route of ports and ships by turns that begins and ends with a port")
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


AnyFault = Annotated[Overboard | PowerLoss | ReeferFailure, Field(discriminator="kind")]


class LinkOutage(Model):
    """A link of the topology is down for a while, both ways. The caller of the player has to switch it."""

    between: tuple[SiteName, SiteName]
    starts: Duration  # after the scenario's start
    lasts: Positive


class Devices(Model):
    """How the sensors misbehave: chances per reading."""

    repeat: float = Field(default=0.005, ge=0, le=1)  # published again with the same identity (QoS 1)
    reboot: float = Field(default=0.001, ge=0, le=1)  # boots again: next boot id, sequence from 0


class Scenario(Model):
    """A whole scenario. Every duration counts simulated time."""

    name: SiteName
    title: str = ""
    description: str = ""
    topology: str
    start: AwareDatetime
    # Real reefers report every 15 to 60 minutes (60 is the common default). A demonstration of weeks on a laptop uses
    # a longer interval to stay in tens of thousands of readings.
    reading_interval: Interval = dt.timedelta(hours=1)
    ship_interval: Interval = dt.timedelta(hours=1)  # a ship's position and environment
    booking_office: SiteName
    ships: dict[SiteName, Ship]
    cargo: dict[str, Lot] = Field(min_length=1)
    faults: tuple[AnyFault, ...] = ()
    links: tuple[LinkOutage, ...] = ()
    devices: Devices = Devices()

    @property
    def containers(self) -> int:
        return sum(lot.containers for lot in self.cargo.values())

    def rescaled(self, containers: int) -> Scenario:
        """The same mix with this many containers in all; every lot keeps at least one.

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
        return self.model_copy(update={"cargo": cargo, "faults": faults})


def check(scenario: Scenario, topology: Topology) -> None:
    """Compare a scenario with its topology.

    Raises:
        ConfigurationError: a name that the topology does not have, or a route that no timetable serves; the message
            lists all mistakes.
    """
    mistakes = list(_mistakes(scenario, topology))
    if mistakes:
        raise ConfigurationError(
            f"scenario {scenario.name} does not fit topology {topology.name}: " + "; ".join(mistakes),
            hint="correct the scenario, or choose the topology that it was written for: " + scenario.topology,
            mistakes=mistakes,
        )


def _mistakes(scenario: Scenario, topology: Topology) -> Iterator[str]:
    ships = {name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP and site.imo}
    ports = {name for name, site in topology.sites.items() if site.kind is SiteKind.PORT and site.unlocode}

    def unknown(where: str, kind: str, name: str, valid: set[str]) -> Iterator[str]:
        if name not in valid:
            yield f"{where}: no {kind} {name!r} (valid: {', '.join(sorted(valid)) or 'none'})"

    yield from unknown("booking_office", "site", scenario.booking_office, set(topology.sites))
    for name, ship in scenario.ships.items():
        yield from unknown(f"ships.{name}", "ship", name, ships)
        for i, call in enumerate(ship.calls):
            yield from unknown(f"ships.{name}.calls[{i}]", "port", call.port, ports)
    for name, lot in scenario.cargo.items():
        where = f"cargo.{name}"
        if topology.container_stream(lot.owner + "0") is None:
            yield f"{where}: no stream of the topology is for owner {lot.owner!r}"
        if lot.customer is not None:
            yield from unknown(where, "customer", lot.customer, set(topology.customers))
        for origin, carrier, destination in lot.legs:
            yield from unknown(f"{where}.route", "ship of the scenario", carrier, set(scenario.ships))
            calls = [call.port for call in scenario.ships[carrier].calls] if carrier in scenario.ships else None
            if calls is not None and (origin not in calls or destination not in calls[calls.index(origin) + 1 :]):
                yield f"{where}.route: {carrier} does not sail from {origin} to {destination}"
    for i, fault in enumerate(scenario.faults):
        where = f"faults[{i}]"
        yield from unknown(where, "lot", fault.lot, set(scenario.cargo))
        yield from unknown(where, "ship of the scenario", fault.ship, set(scenario.ships))
        boxes = scenario.cargo[fault.lot] if fault.lot in scenario.cargo else None
        if boxes and fault.containers > boxes.containers:
            yield f"{where}: {fault.containers} containers, but lot {fault.lot} has {boxes.containers}"
        timetable = scenario.ships.get(fault.ship)
        if timetable and fault.before not in [call.port for call in timetable.calls[1:]]:
            yield f"{where}: {fault.ship} never arrives at {fault.before} from sea"
        if boxes and fault.ship not in {ship for _, ship, _ in boxes.legs}:
            yield f"{where}: lot {fault.lot} never sails on {fault.ship}"
    for i, outage in enumerate(scenario.links):
        linked = {frozenset((link.from_, link.to)) for link in topology.links}
        if frozenset(outage.between) not in linked:
            yield f"links[{i}]: the topology has no link between {outage.between[0]} and {outage.between[1]}"
