"""Leads the lines of a topology through the weather of simulated time, wherever the lines are.

A link that is cut swallows everything, as one at sea does: connections stand still, and nobody is told. When it is back
its old connections are reset.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from simulators.network.orders import Direction, Order
from simulators.network.weather import Conditions, LinkWeather, links_between
from topologies.model import Topology

SAMPLE: Final = dt.timedelta(hours=1)  # of simulated time between two looks at the weather

Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class Cut:
    """A time without any link between two sites, simulated and (``seconds``) in truth."""

    between: tuple[str, str]
    starts: dt.datetime
    ends: dt.datetime
    seconds: float


class NetworkController:
    """Tells lines what to be like. Its methods may be called from any one thread.

    Args:
        give: Takes an order to the lines and returns when it has been carried out.
    """

    def __init__(self, topology: Topology, weather: LinkWeather, give: Callable[[Order], object]) -> None:
        self._weather = weather
        self._give = give
        self._pairs = {
            pair: tuple(dict.fromkeys((one.from_, one.to) for one in links))
            for pair, links in links_between(topology).items()
        }
        self._now: dict[Direction, Conditions] = {}
        self._edges = sorted(weather.edges())
        self._next = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._down: dict[Pair, tuple[dt.datetime, float]] = {}  # since when, simulated and in truth
        self._cuts: list[Cut] = []

    @property
    def cut_sites(self) -> Collection[str]:
        """Sites that have lost a link at this moment."""
        return {site for pair in self._down for site in pair}

    def too_early(self, sim_time: dt.datetime, least: float) -> float:
        """Real seconds that are missing until what would be mended at ``sim_time`` has been cut for ``least``."""
        if sim_time < self._next:
            return 0.0
        began = [
            since
            for pair, (_, since) in self._down.items()
            if any(self._weather.between(*each, sim_time).up for each in self._pairs[pair])
        ]
        return max(0.0, max(began) + least - time.monotonic()) if began else 0.0

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was cut and is mended, in order of its beginning."""
        return tuple(sorted(self._cuts, key=lambda cut: (cut.starts, cut.between)))

    def at(self, sim_time: dt.datetime) -> None:
        """It is ``sim_time``: let links be what they are then. Cheap while nothing can have changed."""
        if sim_time < self._next:
            return
        self._next = min((sim_time + SAMPLE, *(edge for edge in self._edges if edge > sim_time)))
        changed = {}
        for directions in self._pairs.values():
            for source, target in directions:
                now = self._weather.between(source, target, sim_time)
                if now != self._now.get((source, target)):
                    changed[source, target] = now
        if changed:
            self._now |= changed
            self._change(changed, sim_time)

    def mend(self, sim_time: dt.datetime) -> None:
        """The voyage is over at ``sim_time``: nothing is cut any more, so that what is missing can follow."""
        mended = {each: replace(now, up=True) for each, now in self._now.items() if not now.up}
        self._next = dt.datetime.max.replace(tzinfo=dt.UTC)
        self._now |= mended
        self._change(mended, sim_time)

    def _change(self, changed: Mapping[Direction, Conditions], sim_time: dt.datetime) -> None:
        shape: dict[Direction, Conditions] = {}
        for (source, target), now in changed.items():
            shape[source, target] = now
            if (target, source) not in self._now:  # requests have to travel, too
                shape[target, source] = now
        pairs = {frozenset(each) for each in changed}
        up = {pair for pair in pairs if any(self._now[each].up for each in self._pairs[pair])}
        mended = [pair for pair in up if pair in self._down]
        lost = [pair for pair in pairs - up if pair not in self._down]
        self._give(
            Order(
                shape=tuple(shape.items()),
                close=tuple(each for pair in lost for each in _both(pair)),
                reset=tuple(_both(pair)[0] for pair in mended),  # what was swallowed does not come out late
                open=tuple(each for pair in mended for each in _both(pair)),
            )
        )
        self._down |= dict.fromkeys(lost, (sim_time, time.monotonic()))
        self._cuts.extend(self._ended(mended, sim_time))

    def _ended(self, mended: Iterable[Pair], sim_time: dt.datetime) -> Iterable[Cut]:
        for pair in mended:
            since, began = self._down.pop(pair)
            yield Cut(_both(pair)[0], since, sim_time, time.monotonic() - began)


def _both(pair: Pair) -> tuple[Direction, Direction]:
    first, second = sorted(pair)
    return (first, second), (second, first)
