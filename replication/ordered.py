"""What operators' orders mean for the logs of one site: which are paused, released, or to be tried again. No I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from fairlead.wire.types import TopicPartition
from replication.orders import Order, Orders
from replication.plan import Catalog
from replication.states import LogState, Trouble


class Ordered:
    """The orders of a site, applied to logs as they are planned."""

    def __init__(self, orders: Orders, catalog: Catalog) -> None:
        self._orders = orders
        self._catalog = catalog
        self._tried: dict[TopicPartition, dt.datetime] = {}  # the newest order to try a log again that was followed
        self._paused: dict[TopicPartition, tuple[str, Order]] = {}
        self._released: dict[TopicPartition, Order] = {}

    def begin(self, here: Mapping[str, int]) -> None:
        """A new plan is made for a site with these topics (and numbers of partitions): what is released is found out
        now, what is paused by ``allows``."""
        self._paused, self._released = {}, {}
        if any(True for _ in self._orders.releases()):
            for topic, count in here.items():
                if self._catalog.facts(topic) is not None:
                    for tp in map(TopicPartition, [topic] * count, range(count)):
                        release = self._orders.released(str(tp))
                        if release is not None:
                            self._released[tp] = release

    def link_pause(self, link: str) -> str:
        """Why a whole link is paused; empty when it is not."""
        order = self._orders.link_paused(link)
        return said(order) if order is not None else ""

    def allows(self, link: str, tp: TopicPartition) -> bool:
        """Whether a log may be followed over a link."""
        if tp in self._released:
            return False
        facts = self._catalog.facts(tp.topic)
        pause = self._orders.paused(link, facts.stream if facts else "", str(tp))
        if pause is not None:
            self._paused[tp] = link, pause
        return pause is None

    def carried(self, logs: Container[TopicPartition]) -> None:
        """These logs have a link that may carry them, so they are not paused whatever other links may not do."""
        self._paused = {tp: pause for tp, pause in self._paused.items() if tp not in logs}

    def to_try(self, stopped: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Of these logs, those that an order since the last call wants tried again."""
        again = set()
        for tp in stopped:
            order = self._orders.retries(str(tp))
            if order is not None and self._tried.get(tp) != order:
                self._tried[tp] = order
                again.add(tp)
        return again

    # ---- shown

    def pauses(self) -> Iterator[tuple[TopicPartition, Trouble]]:
        """Logs that only orders keep from being mirrored."""
        for tp, (link, order) in self._paused.items():
            yield tp, Trouble(LogState.PAUSED, said(order), order.at, link)

    def releases(self, is_busy: Callable[[TopicPartition], bool]) -> dict[str, dict[str, Any]]:
        """Logs that are written here since they were promoted or failed over, JSON-ready; not those to which something
        is on its way yet."""
        return {
            str(tp): {"verb": str(order.kind), "since": order.at.isoformat(), "by": order.by, "end": order.stop}
            for tp, order in self._released.items()
            if not is_busy(tp)
        }


def said(order: Order) -> str:
    """An order as the cause of a state."""
    return f"{order.kind} ordered by {order.by}" + (f": {order.reason}" if order.reason else "")
