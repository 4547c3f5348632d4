"""Apply the weather of simulated time to the proxies of a topology, in this or another process.

A cut link drops everything silently, as a satellite link does: connections hang, and neither side gets an error. When
the link is back, the controller resets its old connections. ``Network`` runs the proxies in a thread of this process.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import uvloop

from fairlead.kafka.clusters import Clusters
from fairlead.kafka.endpoint import Address
from simulators.network.registry import Direction, Order, OrderAnswer, ProxyRegistry
from simulators.network.weather import Conditions, LinkWeather, links_between
from topologies.endpoints import AddressOverrides
from topologies.model import Topology

SAMPLE: Final = dt.timedelta(hours=1)  # of simulated time between two samples of the weather

Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class CutPeriod:
    """A period without any link between two sites: simulated times, and ``seconds`` of wall time."""

    between: tuple[str, str]
    starts: dt.datetime
    ends: dt.datetime
    seconds: float

    @property
    def days(self) -> float:
        return (self.ends - self.starts) / dt.timedelta(days=1)


class NetworkController:
    """Applies weather to proxies. Its methods may be called from any one thread.

    Args:
        send: Carries an order out; returns when that is done.
    """

    def __init__(self, topology: Topology, weather: LinkWeather, send: Callable[[Order], object]) -> None:
        self._weather = weather
        self._send = send
        self._pairs = {
            pair: tuple(dict.fromkeys((one.from_, one.to) for one in links))
            for pair, links in links_between(topology).items()
        }
        self._now: dict[Direction, Conditions] = {}
        self._edges = sorted(weather.edges())
        self._next = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._down: dict[Pair, tuple[dt.datetime, float]] = {}  # since when, simulated and monotonic
        self._cuts: list[CutPeriod] = []

    @property
    def cut_pairs(self) -> Collection[Pair]:
        """Pairs of sites whose link is cut now."""
        return self._down.keys()

    def seconds_missing(self, sim_time: dt.datetime, least: float) -> float:
        """Return the wall seconds until each link that ``sim_time`` mends has been cut for ``least`` seconds."""
        if sim_time < self._next:
            return 0.0
        began = [
            since
            for pair, (_, since) in self._down.items()
            if any(self._weather.between(*each, sim_time).up for each in self._pairs[pair])
        ]
        return max(0.0, max(began) + least - time.monotonic()) if began else 0.0

    @property
    def cuts(self) -> tuple[CutPeriod, ...]:
        """The cuts that have ended, in order of their beginning."""
        return tuple(sorted(self._cuts, key=lambda cut: (cut.starts, cut.between)))

    def cuts_until(self, sim_time: dt.datetime) -> tuple[CutPeriod, ...]:
        """Return all cuts in order of their beginning; those that have not ended as far as ``sim_time``."""
        now = time.monotonic()
        lasting = [
            CutPeriod(_both(pair)[0], since, sim_time, now - began) for pair, (since, began) in self._down.items()
        ]
        return tuple(sorted([*self._cuts, *lasting], key=lambda cut: (cut.starts, cut.between)))

    def apply_weather(self, sim_time: dt.datetime) -> None:
        """Set every link's conditions at ``sim_time``. Returns at once if nothing can have changed."""
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

    def mend_links(self, sim_time: dt.datetime) -> None:
        """End every cut at ``sim_time``, when the voyage is over, so that replicators can copy the missing records."""
        mended = {each: replace(now, up=True) for each, now in self._now.items() if not now.up}
        self._next = dt.datetime.max.replace(tzinfo=dt.UTC)
        self._now |= mended
        self._change(mended, sim_time)

    def _change(self, changed: Mapping[Direction, Conditions], sim_time: dt.datetime) -> None:
        shape: dict[Direction, Conditions] = {}
        for (source, target), now in changed.items():
            shape[source, target] = now
            if (target, source) not in self._now:  # requests travel the other way
                shape[target, source] = now
        pairs = {frozenset(each) for each in changed}
        up = {pair for pair in pairs if any(self._now[each].up for each in self._pairs[pair])}
        mended = [pair for pair in up if pair in self._down]
        lost = [pair for pair in pairs - up if pair not in self._down]
        self._send(
            Order(
                shape=tuple(shape.items()),
                close=tuple(each for pair in lost for each in _both(pair)),
                reset=tuple(_both(pair)[0] for pair in mended),  # nothing held back arrives late
                open=tuple(each for pair in mended for each in _both(pair)),
            )
        )
        self._down |= dict.fromkeys(lost, (sim_time, time.monotonic()))
        self._cuts.extend(self._ended(mended, sim_time))

    def _ended(self, mended: Iterable[Pair], sim_time: dt.datetime) -> Iterable[CutPeriod]:
        for pair in mended:
            since, began = self._down.pop(pair)
            yield CutPeriod(_both(pair)[0], since, sim_time, time.monotonic() - began)


def _both(pair: Pair) -> tuple[Direction, Direction]:
    first, second = sorted(pair)
    return (first, second), (second, first)


_START_SECONDS: Final = 30.0


async def brokers_of(clusters: Clusters, sites: Iterable[str]) -> dict[str, tuple[Address, ...]]:
    """Return the addresses of each site's brokers: the bootstrap addresses and the advertised ones."""
    found = {}
    for site in sites:
        cluster = await clusters.at(site)
        found[site] = tuple(dict.fromkeys((*cluster.endpoint.bootstrap, *cluster.metadata.brokers.values())))
    return found


class Network(NetworkController):
    """A controller with its proxies in a thread of this process, while it is entered.

    Args:
        brokers: The brokers of every site from which others pull.
        seed: The same seed gives the same random numbers for losses, though not at the same bytes.
    """

    def __init__(
        self, topology: Topology, weather: LinkWeather, brokers: Mapping[str, Sequence[Address]], *, seed: int
    ) -> None:
        super().__init__(topology, weather, self._send_to_thread)
        pulls = {(link.to, link.from_) for link in topology.directed_links()}
        self._registry = ProxyRegistry({each: brokers[each[1]] for each in sorted(pulls)}, seed=seed)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    @property
    def address_overrides(self) -> AddressOverrides:
        """Send replicators through the proxies: for ``topologies.endpoints.write_address_overrides``."""
        found: dict[str, dict[str, tuple[tuple[Address, Address], ...]]] = {}
        for (target, source), proxy in self._registry.proxies.items():
            found.setdefault(target, {})[source] = proxy.address_overrides
        return found

    def _send_to_thread(self, order: Order) -> None:
        async def act() -> OrderAnswer:
            return self._registry.carry_out(order)

        if self._loop is None:
            raise RuntimeError("the network has not been entered")
        asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_SECONDS) or self._failure is not None:
            raise RuntimeError("the proxies could not be opened") from self._failure
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
        async with self._registry:
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await self._stop.wait()
