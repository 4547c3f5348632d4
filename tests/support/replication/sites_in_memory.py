"""Two or more sites in memory, with replicators that carry out orders at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.kafka.protocol.errors import ConnectionLost
from fairlead.kafka.protocol.types import TopicPartition
from replication.operations.links.access import Status
from replication.overrides import Override, Overrides
from topologies.model import Topology

TP = TopicPartition


@dataclass
class FakeSites:
    """Cluster access for link operations.

    ``away``: sites that do not answer. ``stopped``: sites without a running replicator; ``deaf``: those whose
    replicator reads no orders. ``before`` is called at each request for end offsets.
    """

    topology: Topology
    logs: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    history: dict[str, list[Override]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    troubles: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    before: Callable[[str], None] = lambda site: None
    on_append: Callable[[str], None] = lambda site: None
    fences: dict[str, list[tuple[int, dict[TopicPartition, int]]]] = field(default_factory=dict)
    _reports: int = 0

    async def ends(self, site: str, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        self.before(site)
        self._check(site)
        return {tp: end for tp, end in self.logs.get(site, {}).items() if wanted(tp.topic)}

    async def orders(self, site: str) -> Overrides:
        self._check(site)
        orders = Overrides()
        for order in self.history.get(site, ()):
            orders.apply(order)
        return orders

    async def append(self, site: str, orders: Sequence[Override]) -> int:
        self._check(site)
        self.history.setdefault(site, []).extend(orders)
        self.on_append(site)
        return len(self.history[site])

    async def fence(self, site: str, logs: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        self._check(site)
        found = {tp: self.logs[site][tp] for tp in logs}
        self.fences.setdefault(site, []).append((time_ms, found))
        for tp in logs:
            self.logs[site][tp] += 1
        return found

    def status(self, site: str) -> Status | None:
        if site in self.stopped:
            return None
        self._reports += 1
        orders = Overrides()
        heard = () if site in self.deaf else self.history.get(site, ())
        for order in heard:
            orders.apply(order)
        links = [
            {
                "name": link.name,
                "state": self._state(orders, link.name, link.from_),
                "cause": "",
                "since": "2026-03-01T00:00:00+00:00",
                "logs": len(self.logs.get(link.from_, {})),
                "followed": 1,
                "lag": 0,
            }
            for link in self.topology.links_to(site)
        ]
        released = {
            str(tp): {"verb": str(found.kind), "since": found.at.isoformat(), "by": found.by, "end": found.stop}
            for tp in self.logs.get(site, {})
            if (found := orders.released(str(tp))) is not None
        }
        at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self._reports)
        snapshot = {
            "at": at.isoformat(),
            "links": links,
            "logs": self.troubles.get(site, {}),
            "released": released,
            "orders": len(heard),
        }
        return Status(site, True, snapshot)

    def _state(self, orders: Overrides, link: str, source: str) -> str:
        if orders.link_paused(link) is not None:
            return "paused"
        return "unavailable" if source in self.away else "mirroring"

    def _check(self, site: str) -> None:
        if site in self.away:
            raise ConnectionLost(f"{site} does not answer", site=site)
