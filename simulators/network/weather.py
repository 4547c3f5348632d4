"""The conditions of links at a time: up or down, latency, jitter, loss, bandwidth. Models and pure functions.

A scenario lists deviations from the usual conditions; ``LinkWeather`` computes the conditions of any link at any time,
for proxies and for size tables. The usual conditions depend on the link's carrier: a satellite for a ship's link that
is always open, the port's radio for one that is open at the berth, a cable between sites ashore. A satellite link has
the delay of a geostationary hop (477 ms for a round trip, some 600 ms in use); its bandwidth is the link's own
``rate``. In a storm the ship loses bandwidth and packets (rain fade); those numbers are plausible, not measured.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from topologies.model import Link, Model, SiteKind, SiteName, Topology
from topologies.values import BytesPerSecond, SimulatedDuration, SinceStart

Carrier = Literal["satellite", "berth", "cable"]
Milliseconds = Annotated[float, Field(ge=0, le=60_000)]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a link at a time, in each direction. Latency (one way) and jitter are milliseconds, ``rate`` is
    bytes per second (None: no limit), ``loss`` the share of packets that are lost and sent again."""

    up: bool = True
    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    rate: int | None = None


USUAL: dict[Carrier, Conditions] = {
    "satellite": Conditions(latency=300.0, jitter=40.0, loss=0.005),
    "berth": Conditions(latency=25.0, jitter=10.0, loss=0.001),
    "cable": Conditions(latency=60.0, jitter=2.0, loss=0.0),
}
_FADE_WIND = 15.0  # m/s above the usual wind, from which rain fades a satellite link
_FADE = 0.5  # share of the bandwidth that is left then
_FADE_LOSS = 0.03


class LinkTrouble(Model):
    """Trouble of a link, or of every link of a site, for some time: down, unless other conditions are given.

    Args:
        between: Two linked sites.
        site: Every link of this site, in place of ``between``.
        starts: After the scenario's start.
        carrier: Only links with this carrier: a ship that loses its ``satellite`` keeps its link at the berth.
        latency: One way, milliseconds. Latency, jitter, loss or rate make the link worse instead of cutting it.
    """

    between: tuple[SiteName, SiteName] | None = None
    site: SiteName | None = None
    starts: SinceStart
    lasts: SimulatedDuration
    carrier: Carrier | None = None
    latency: Milliseconds | None = None
    jitter: Milliseconds | None = None
    loss: float | None = Field(default=None, ge=0, lt=1)
    rate: BytesPerSecond | None = None

    @model_validator(mode="after")
    def _check_names(self) -> LinkTrouble:
        if (self.between is None) == (self.site is None):
            raise ValueError("expected either between, with two sites, or site")
        return self

    @property
    def cuts(self) -> bool:
        return (self.latency, self.jitter, self.loss, self.rate) == (None, None, None, None)

    def concerns(self, pair: frozenset[str], carriers: Iterable[Carrier]) -> bool:
        named = self.site in pair if self.between is None else pair == frozenset(self.between)
        return named and (self.carrier is None or self.carrier in carriers)


def carrier_of(link: Link, topology: Topology) -> Carrier:
    """Return the carrier of a link."""
    if link.when == "berthed":
        return "berth"
    kinds = {topology.sites[link.from_].kind, topology.sites[link.to].kind}
    return "satellite" if SiteKind.SHIP in kinds else "cable"


def links_between(topology: Topology) -> dict[frozenset[str], tuple[Link, ...]]:
    """Return every pair of linked sites with its links, in both directions."""
    found: dict[frozenset[str], tuple[Link, ...]] = {}
    for link in topology.directed_links():
        pair = frozenset((link.from_, link.to))
        found[pair] = (*found.get(pair, ()), link)
    return found


class LinkWeather:
    """The conditions of every link of a topology through a scenario.

    Args:
        storm: Returns the wind in m/s that storms add at a ship and time; without it, there are no storms.
        berth: Returns the port where a ship lies at a time, if any; without it, links at berths are always usable.
    """

    def __init__(
        self,
        topology: Topology,
        start: dt.datetime,
        troubles: Iterable[LinkTrouble],
        storm: Callable[[str, dt.datetime], float] = lambda _ship, _time: 0.0,
        berth: Callable[[str, dt.datetime], str | None] | None = None,
    ) -> None:
        self._topology = topology
        self._start = start
        self._troubles = tuple(troubles)
        self._storm = storm
        self._berth = berth
        self._pairs = links_between(topology)

    def at(self, link: Link, time: dt.datetime) -> Conditions:
        """Return the conditions of one link; those of a berthed link as if the ship were at the berth."""
        carrier = carrier_of(link, self._topology)
        now = replace(USUAL[carrier], rate=link.rate)
        if carrier == "satellite":
            ship = next(n for n in (link.from_, link.to) if self._topology.sites[n].kind is SiteKind.SHIP)
            if self._storm(ship, time) > _FADE_WIND:
                rate = None if now.rate is None else int(now.rate * _FADE)
                now = replace(now, rate=rate, loss=max(now.loss, _FADE_LOSS))
        since = time - self._start
        for trouble in self._troubles:
            if not trouble.starts <= since < trouble.starts + trouble.lasts:
                continue
            if trouble.concerns(frozenset((link.from_, link.to)), (carrier,)):
                now = replace(now, up=False) if trouble.cuts else _worse(now, trouble)
        return now

    def between(self, source: str, target: str, time: dt.datetime) -> Conditions:
        """Return the conditions under which a target pulls from a source: those of the best link that is usable then. A
        ship uses the port's radio at the berth, and its satellite at sea."""
        links = [link for link in self._pairs[frozenset((source, target))] if (link.from_, link.to) == (source, target)]
        usable = [link for link in links if self._is_usable(link, time)]
        return min((self.at(link, time) for link in usable or links), key=lambda now: (not now.up, now.latency))

    def _is_usable(self, link: Link, time: dt.datetime) -> bool:
        if link.when != "berthed" or self._berth is None:
            return True
        ship, port = link.from_, link.to
        if self._topology.sites[ship].kind is not SiteKind.SHIP:
            ship, port = port, ship
        return self._berth(ship, time) == port

    def edges(self) -> set[dt.datetime]:
        """Return the times when a trouble begins or ends. Between two of them only storms and berths change."""
        return {self._start + since for one in self._troubles for since in (one.starts, one.starts + one.lasts)}

    def outages(self) -> Iterator[tuple[tuple[str, str], dt.datetime, dt.datetime]]:
        """Yield every span in which two sites have no link at all: ``(sites, from, until)``; a pair's never touch.

        If a pair has links of several carriers, a trouble of one carrier leaves the others.
        """
        for pair, links in sorted(self._pairs.items(), key=lambda item: sorted(item[0])):
            carriers = {carrier_of(link, self._topology) for link in links}
            cuts = [t for t in self._troubles if t.cuts and t.concerns(pair, carriers)]
            cuts = [t for t in cuts if t.carrier is None or carriers == {t.carrier}]
            named = next((t.between for t in cuts if t.between), None)
            first, second = named or tuple(sorted(pair))
            for start, end in _union((t.starts, t.starts + t.lasts) for t in cuts):
                yield (first, second), self._start + start, self._start + end


def _worse(now: Conditions, trouble: LinkTrouble) -> Conditions:
    rates = [rate for rate in (now.rate, trouble.rate) if rate is not None]
    return replace(
        now,
        latency=max(now.latency, trouble.latency or 0.0),
        jitter=max(now.jitter, trouble.jitter or 0.0),
        loss=max(now.loss, trouble.loss or 0.0),
        rate=min(rates, default=None),
    )


def _union(spans: Iterable[tuple[dt.timedelta, dt.timedelta]]) -> list[tuple[dt.timedelta, dt.timedelta]]:
    joined: list[tuple[dt.timedelta, dt.timedelta]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
