"""The lines of a topology in a thread of its own, with the weather of simulated time.

Every pair of linked sites has one way in each direction, which all that goes between the two shares; and one line for
each of the two that pulls from the other. A link that is cut swallows everything, as one at sea does: connections
stand still, and nobody is told. When it is back its old connections are reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import uvloop

from fairlead.clusters import Clusters
from fairlead.endpoint import Address
from simulators.links.line import Line
from simulators.links.way import Way
from simulators.linkweather import Conditions, LinkWeather, links_between
from topologies.detours import Detours
from topologies.model import Topology

SAMPLE: Final = dt.timedelta(hours=1)  # of simulated time between two looks at the weather
_START_SECONDS: Final = 30.0

Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class Cut:
    """A time without any link between two sites, simulated and (``seconds``) in truth."""

    between: tuple[str, str]
    starts: dt.datetime
    ends: dt.datetime
    seconds: float


async def brokers_of(clusters: Clusters, sites: Iterable[str]) -> dict[str, tuple[Address, ...]]:
    """Where each site's brokers are: as clients begin with them, and as they advertise themselves."""
    found = {}
    for site in sites:
        cluster = await clusters.at(site)
        found[site] = tuple(dict.fromkeys((*cluster.endpoint.bootstrap, *cluster.metadata.brokers.values())))
    return found


class Network:
    """All lines of a topology, while it is entered. Its methods may be called from any one thread.

    Args:
        brokers: Of each site that is pulled from.
        seed: The same seed gives the same chances of loss, though not at the same bytes.
    """

    def __init__(
        self, topology: Topology, weather: LinkWeather, brokers: Mapping[str, Sequence[Address]], *, seed: int
    ) -> None:
        self._weather = weather
        self._pairs = {
            pair: tuple(dict.fromkeys((one.from_, one.to) for one in links))
            for pair, links in links_between(topology).items()
        }
        both = [(a, b) for pair in self._pairs for a, b in (sorted(pair), sorted(pair, reverse=True))]
        self._ways = {each: Way(chance=random.Random(f"{seed}/{each}")) for each in both}  # noqa: S311 - no secret
        self._lines = {
            (target, source): Line(brokers[source], up=self._ways[target, source], down=self._ways[source, target])
            for source, target in {each for directions in self._pairs.values() for each in directions}
        }
        self._now: dict[tuple[str, str], Conditions] = {}
        self._edges = sorted(weather.edges())
        self._next = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._down: dict[Pair, tuple[dt.datetime, float]] = {}  # since when, simulated and in truth
        self._cuts: list[Cut] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    # --- what voyages ask

    @property
    def detours(self) -> Detours:
        """What makes replicators take the lines: for ``topologies.detours.write_detours``."""
        found: dict[str, dict[str, tuple[tuple[Address, Address], ...]]] = {}
        for (target, source), line in self._lines.items():
            found.setdefault(target, {})[source] = line.detours
        return found

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
            self._in_loop(lambda: self._change(changed, sim_time))

    def mend(self, sim_time: dt.datetime) -> None:
        """The voyage is over at ``sim_time``: nothing is cut any more, so that what is missing can follow."""
        mended = {each: replace(now, up=True) for each, now in self._now.items() if not now.up}
        self._next = dt.datetime.max.replace(tzinfo=dt.UTC)
        self._now |= mended
        self._in_loop(lambda: self._change(mended, sim_time))

    # --- in the thread

    def _change(self, changed: Mapping[tuple[str, str], Conditions], sim_time: dt.datetime) -> None:
        for (source, target), now in changed.items():
            backward = () if (target, source) in self._now else ((target, source),)  # requests have to travel, too
            for each in ((source, target), *backward):
                _shape(self._ways[each], now)
        for pair in {frozenset(each) for each in changed}:
            up = any(self._now[each].up for each in self._pairs[pair])
            if up and pair in self._down:
                self._mend(pair, sim_time)
            elif not up and pair not in self._down:
                self._down[pair] = sim_time, time.monotonic()
                for way in self._of(pair):
                    way.open.clear()

    def _mend(self, pair: Pair, sim_time: dt.datetime) -> None:
        since, began = self._down.pop(pair)
        first, second = sorted(pair)
        self._cuts.append(Cut((first, second), since, sim_time, time.monotonic() - began))
        for each, line in self._lines.items():
            if frozenset(each) == pair:
                line.reset()  # what was swallowed does not come out late
        for way in self._of(pair):
            way.open.set()

    def _of(self, pair: Pair) -> Iterable[Way]:
        return (way for each, way in self._ways.items() if frozenset(each) == pair)

    # --- running

    def _in_loop(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        if self._loop is None:
            raise RuntimeError("the network has not been entered")
        asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_SECONDS) or self._failure is not None:
            raise RuntimeError("the lines could not be opened") from self._failure
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for line in self._lines.values():
                await stack.enter_async_context(line)
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await self._stop.wait()


def _shape(way: Way, now: Conditions) -> None:
    way.delay, way.jitter, way.loss = now.latency / 1000, now.jitter / 1000, now.loss
    way.rate = (now.rate or 0) * 8.0
