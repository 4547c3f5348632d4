"""All proxies of a topology, and the orders that change them.

Two linked sites share one ``ProxyDirection`` each way; each site that pulls from the other has a ``TcpProxy``. A
direction is ``(from, to)``, as the data goes. Between processes, ``Order`` and ``OrderAnswer`` are one line of JSON
each.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import msgspec

from fairlead.kafka.endpoint import Address
from simulators.network.proxy import ProxyDirection, TcpProxy
from simulators.network.weather import Conditions

Direction = tuple[str, str]


class Order(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Changes to directions, made in the order of the fields; the others stay as they are.

    Args:
        shape: New delay, jitter, loss and rate; ``up`` is ignored.
        close: Nothing comes through in these directions; connections stand still.
        reset: Every connection between these two sites is reset.
        open: Data comes through again, first the data that was held back.
        fuse: After so many more bytes the connection that carries the last of them is reset.
    """

    shape: tuple[tuple[Direction, Conditions], ...] = ()
    close: tuple[Direction, ...] = ()
    reset: tuple[Direction, ...] = ()
    open: tuple[Direction, ...] = ()
    fuse: tuple[tuple[Direction, int], ...] = ()


class Carried(msgspec.Struct, frozen=True):
    """A direction's counters: bytes delivered, segments sent again, connections that a fuse has reset; and whether data
    comes through now."""

    bytes: int
    lost: int
    resets: int
    open: bool


class OrderAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to every order, an empty one too: each direction as ``from>to``, or the reason for refusing."""

    ways: dict[str, Carried] = msgspec.field(default_factory=dict)
    refused: str = ""


class ProxyRegistry:
    """All proxies of a topology, while it is entered. Belongs to one event loop.

    Args:
        brokers: By ``(target, source)``, the brokers of the source.
        at: Where each proxy listens for each of them; by default a free port of loopback.
        seed: The same seed gives the same random numbers for losses, though not at the same bytes.
    """

    def __init__(
        self,
        brokers: Mapping[tuple[str, str], Sequence[Address]],
        *,
        at: Mapping[tuple[str, str], Mapping[Address, Address]] | None = None,
        seed: int = 0,
    ) -> None:
        directions = {each for target, source in brokers for each in ((target, source), (source, target))}
        self._directions = {each: ProxyDirection(chance=random.Random(f"{seed}/{each}")) for each in directions}  # noqa: S311 - no secret
        places = at or {}
        self.proxies = {
            (target, source): TcpProxy(
                addresses,
                at=places.get((target, source)),
                up=self._directions[target, source],
                down=self._directions[source, target],
            )
            for (target, source), addresses in brokers.items()
        }
        self._open = contextlib.AsyncExitStack()

    def carry_out(self, order: Order) -> OrderAnswer:
        """Make the changes of an order now; return every direction's counters.

        Raises:
            KeyError: a direction is between sites without a link; nothing has been changed.
        """
        named = [*order.close, *order.reset, *order.open, *(each for each, _ in (*order.shape, *order.fuse))]
        for each in named:
            self._directions[each]
        for each, now in order.shape:
            _shape(self._directions[each], now)
        for each in order.close:
            self._directions[each].open.clear()
        for each in order.reset:
            for proxy in self._between(each):
                proxy.reset()
        for each in order.open:
            self._directions[each].open.set()
        for each, size in order.fuse:
            self._directions[each].fuse = size
        return self.status()

    def calm(self) -> None:
        """End all weather. Connections of closed directions are reset, so that nothing held back arrives late."""
        shut = tuple(each for each, way in self._directions.items() if not way.open.is_set())
        self.carry_out(Order(shape=tuple((each, Conditions()) for each in self._directions), reset=shut, open=shut))
        for way in self._directions.values():
            way.fuse = None

    def status(self) -> OrderAnswer:
        """Return every direction's counters."""
        return OrderAnswer(
            {
                f"{source}>{target}": Carried(way.bytes, way.lost, way.resets, way.open.is_set())
                for (source, target), way in self._directions.items()
            }
        )

    def _between(self, pair: Direction) -> Iterable[TcpProxy]:
        return (proxy for each, proxy in self.proxies.items() if set(each) == set(pair))

    async def __aenter__(self) -> Self:
        for proxy in self.proxies.values():
            await self._open.enter_async_context(proxy)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()


def _shape(way: ProxyDirection, now: Conditions) -> None:
    way.delay, way.jitter, way.loss = now.latency / 1000, now.jitter / 1000, now.loss
    way.rate = (now.rate or 0) * 8.0
