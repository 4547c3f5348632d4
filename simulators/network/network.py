"""The lines of a topology in a thread of its own, with the weather of simulated time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

import uvloop

from fairlead.kafka.clusters import Clusters
from fairlead.kafka.endpoint import Address
from simulators.network.exchange import ProxyRegistry
from simulators.network.leader import NetworkController
from simulators.network.orders import Answer, Order
from simulators.network.weather import LinkWeather
from topologies.endpoints import AddressOverrides
from topologies.model import Topology

_START_SECONDS: Final = 30.0


async def brokers_of(clusters: Clusters, sites: Iterable[str]) -> dict[str, tuple[Address, ...]]:
    """Where each site's brokers are: as clients begin with them, and as they advertise themselves."""
    found = {}
    for site in sites:
        cluster = await clusters.at(site)
        found[site] = tuple(dict.fromkeys((*cluster.endpoint.bootstrap, *cluster.metadata.brokers.values())))
    return found


class Network(NetworkController):
    """All lines of a topology, while it is entered. Its methods may be called from any one thread.

    Args:
        brokers: Of each site that is pulled from.
        seed: The same seed gives the same chances of loss, though not at the same bytes.
    """

    def __init__(
        self, topology: Topology, weather: LinkWeather, brokers: Mapping[str, Sequence[Address]], *, seed: int
    ) -> None:
        super().__init__(topology, weather, self._in_loop)
        pulls = {(link.to, link.from_) for link in topology.directed_links()}
        self._exchange = ProxyRegistry({each: brokers[each[1]] for each in sorted(pulls)}, seed=seed)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    @property
    def address_overrides(self) -> AddressOverrides:
        """What makes replicators take the lines: for ``topologies.endpoints.write_address_overrides``."""
        found: dict[str, dict[str, tuple[tuple[Address, Address], ...]]] = {}
        for (target, source), line in self._exchange.lines.items():
            found.setdefault(target, {})[source] = line.address_overrides
        return found

    def _in_loop(self, order: Order) -> None:
        async def act() -> Answer:
            return self._exchange.carry_out(order)

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
        async with self._exchange:
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await self._stop.wait()
