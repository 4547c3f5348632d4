"""Whether a scenario fits its topology: every name is there, every route is sailed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fairlead.errors import ConfigurationError
from simulators.linkweather import links_between
from simulators.scenario import Scenario
from topologies.model import SiteKind, Topology

SHIP_TAKES = 20_000  # boxes: more than the largest ships carry


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


def check_ships(changes: Mapping[tuple[str, int], int], containers: int) -> None:
    """Whether every ship can carry what it has aboard at once.

    Args:
        changes: By ship and number of its call, how many boxes more it has when it leaves.
        containers: In all, which the error relates to what would fit.

    Raises:
        ConfigurationError: a ship is too full; names how many boxes the scenario may have.
    """
    aboard: Counter[str] = Counter()
    fullest, most = "", 0
    for (ship, _), change in sorted(changes.items()):
        aboard[ship] += change
        if aboard[ship] > most:
            fullest, most = ship, aboard[ship]
    if most > SHIP_TAKES:
        fits = containers * SHIP_TAKES // most
        raise ConfigurationError(
            f"{fullest} would carry {most:,} boxes at once, and a ship takes {SHIP_TAKES:,} at most",
            hint=f"of the {containers:,} boxes of this scenario {fits:,} fit (--containers 1 to {fits}); or let more "
            "ships sail; --scale says how large a fleet for more would be",
            ship=fullest,
            aboard=most,
            most=fits,
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
        for party in (lot.customer, lot.consignee):
            if party is not None:
                yield from unknown(where, "customer", party, set(topology.customers))
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
    for i, trouble in enumerate(scenario.links):
        if trouble.between is not None and frozenset(trouble.between) not in links_between(topology):
            yield f"links[{i}]: the topology has no link between {trouble.between[0]} and {trouble.between[1]}"
        if trouble.site is not None:
            yield from unknown(f"links[{i}]", "site", trouble.site, set(topology.sites))
    for i, closure in enumerate(scenario.closures):
        yield from unknown(f"closures[{i}]", "port", closure.port, ports)
    for i, blackout in enumerate(scenario.blackouts):
        yield from unknown(f"blackouts[{i}]", "port", blackout.port, ports)
    for i, storm in enumerate(scenario.storms):
        yield from unknown(f"storms[{i}]", "port", storm.near, ports)
