"""The lines between sites, and the directions that they share: what carries out orders (``orders``).

Every pair of linked sites has one way in each direction, which all that goes between the two shares; and one line for
each of the two that pulls from the other.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from fairlead.kafka.endpoint import Address
from simulators.network.line import TcpProxy
from simulators.network.orders import Answer, Carried, Direction, Order
from simulators.network.way import ProxyDirection
from simulators.network.weather import Conditions


class ProxyRegistry:
    """All lines, while it is entered. Belongs to one event loop.

    Args:
        lines: By ``(target, source)``, the brokers of the source.
        at: Where each line listens for each of them; any free port of loopback where nothing is said.
        seed: The same seed gives the same chances of loss, though not at the same bytes.
    """

    def __init__(
        self,
        lines: Mapping[tuple[str, str], Sequence[Address]],
        *,
        at: Mapping[tuple[str, str], Mapping[Address, Address]] | None = None,
        seed: int = 0,
    ) -> None:
        directions = {each for target, source in lines for each in ((target, source), (source, target))}
        self._ways = {each: ProxyDirection(chance=random.Random(f"{seed}/{each}")) for each in directions}  # noqa: S311 - no secret
        places = at or {}
        self.lines = {
            (target, source): TcpProxy(
                brokers,
                at=places.get((target, source)),
                up=self._ways[target, source],
                down=self._ways[source, target],
            )
            for (target, source), brokers in lines.items()
        }
        self._open = contextlib.AsyncExitStack()

    def carry_out(self, order: Order) -> Answer:
        """Do it now.

        Raises:
            KeyError: it names sites that no line links; nothing has been done.
        """
        named = [*order.close, *order.reset, *order.open, *(each for each, _ in (*order.shape, *order.fuse))]
        for each in named:
            self._ways[each]
        for each, now in order.shape:
            _shape(self._ways[each], now)
        for each in order.close:
            self._ways[each].open.clear()
        for each in order.reset:
            for line in self._between(each):
                line.reset()
        for each in order.open:
            self._ways[each].open.set()
        for each, size in order.fuse:
            self._ways[each].fuse = size
        return self.answer()

    def calm(self) -> None:
        """Let everything through as fast as it comes. Connections of directions that were closed are reset: what was
        swallowed does not come out late."""
        shut = tuple(each for each, way in self._ways.items() if not way.open.is_set())
        self.carry_out(Order(shape=tuple((each, Conditions()) for each in self._ways), reset=shut, open=shut))
        for way in self._ways.values():
            way.fuse = None

    def answer(self) -> Answer:
        """What there is to tell."""
        return Answer(
            {
                f"{source}>{target}": Carried(way.bytes, way.lost, way.resets, way.open.is_set())
                for (source, target), way in self._ways.items()
            }
        )

    def _between(self, pair: Direction) -> Iterable[TcpProxy]:
        return (line for each, line in self.lines.items() if set(each) == set(pair))

    async def __aenter__(self) -> Self:
        for line in self.lines.values():
            await self._open.enter_async_context(line)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()


def _shape(way: ProxyDirection, now: Conditions) -> None:
    way.delay, way.jitter, way.loss = now.latency / 1000, now.jitter / 1000, now.loss
    way.rate = (now.rate or 0) * 8.0
