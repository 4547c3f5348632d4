"""All that a bridge does about custody, put together: what it holds, takes, gives, drains, keeps and answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from edge.answering import Answering
from edge.completion import Completion
from edge.custodian import Custodian
from edge.drain import Drainer
from edge.follower import Follower
from edge.handwork import Handwork
from edge.holdings import Custody, Holdings
from edge.lane import Control
from edge.lanes import SiteLanes
from edge.logs import FixedLogs, custody_logs
from edge.markers import Markers
from edge.metrics import Metrics
from edge.opening import recall_strays
from edge.patience import patiently
from edge.receiver import Receiver
from edge.returns import Returns
from edge.seizing import Seizer
from edge.tails import Tails
from fairlead.records.custody import CUSTODY_ORDERS, ClaimEntry, LedgerEntry
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from topologies.model import Topology

log = logging.getLogger(__name__)

Work = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]
"""What goes on until the bridge ends, by name."""


class CustodySide:
    """Custody at one site, as its bridge sees to it.

    Args:
        create: Creates topics that are missing and waits until they can be written.
    """

    def __init__(
        self,
        topology: Topology,
        logs: FixedLogs,
        holdings: Holdings,
        cluster: Cluster,
        appender: Appender,
        tails: Tails,
        lanes: SiteLanes,
        create: Callable[[Sequence[str]], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        self._topology = topology
        self._holdings = holdings
        self._site = holdings.site
        self._cluster = cluster
        self._lanes = lanes
        self._metrics = metrics
        self._waiting_events: Callable[[], None] | None = None
        self._drainer = Drainer(tails, lanes.book, holdings, on_drained=self._count_drained)
        lanes.drain_with(self._drainer)
        self._markers = Markers(cluster)
        self.custodian = Custodian(
            holdings,
            appender,
            lanes.book,
            lanes.ledger,
            create,
            self._markers,
            read_ledgers=lambda: self._receiver.read_to_ends(),
            sites=topology.sites,
        )
        self._answering = Answering(self._site, lanes, self.custodian, metrics)
        self._completion = Completion(
            topology, holdings, cluster, appender, self._markers, self.custodian, on_held=self._took_over
        )
        self._returns = Returns(self._site, cluster, tails, holdings.view, lanes)
        seizer = Seizer(holdings, cluster, appender, self._markers, self.custodian)
        self._handwork = Handwork(topology, holdings, lanes, self.custodian, seizer, metrics, on_held=self._took_over)
        self._receiver = Receiver(
            cluster,
            appender,
            holdings,
            self.custodian,
            custody_logs(topology),
            on_own=self._own_entry,
            on_claim=self._claimed,
            on_grant=lambda grant: lanes.book.passed_on(grant.log, grant.drained),
            on_held=self._took_over,
            on_lost=lambda topic: lanes.box(topic).unload(),
        )
        self._others = Follower(cluster, [topic for topic in logs.all_strays if topic != logs.strays], lanes.book.take)

    async def close(self) -> None:
        await self.custodian.close()
        await self._markers.close()
        await self._drainer.close()

    async def catch_up(self) -> None:
        """Learn from the logs what this site holds and what waits here; no message is taken before that is done."""
        for step in (
            self._receiver.catch_up,
            self._completion.complete,
            lambda: recall_strays(self._cluster, self._lanes, self._holdings.view),
            self._others.catch_up,
        ):
            await patiently(step, f"{self._site}: reading its logs")
        self._warn_of_lost_sites()
        for topic in self._lanes.book.logs():
            if self._holdings.state(topic) is Custody.HELD:
                self._took_over(topic)

    def work(self) -> Work:
        """What goes on until the bridge ends."""
        return {
            "ledgers": self._receiver.follow,
            "custody": self._receiver.take_over,
            "strays": self._others.follow,
            "claims": self._answering.run,
            "orders": Follower(self._cluster, [CUSTODY_ORDERS], self._handwork.take).follow,
            "returns": self._returns.run,
        }

    def wake_with(self, waiting_events: Callable[[], None]) -> None:
        """Say what carries out the events that have waited for custody."""
        self._waiting_events = waiting_events

    def lost(self, topic: str) -> None:
        """An append was refused: perhaps a grant of this site's own was left half done."""
        self._lanes.box(topic).put(Control(partial(self._completion.recheck, topic)))

    def _took_over(self, topic: str) -> None:
        """A log is held here now: bring its strays in, even when no reading comes."""
        lane = self._lanes.box(topic)
        lane.unload()
        if topic in self._holdings.view.seized() or self._lanes.book.wait_for(topic):
            lane.put(Control(lane.prepare))
        if self._waiting_events is not None and topic in self._lanes.strays.events:
            self._waiting_events()

    def _own_entry(self, entry: LedgerEntry) -> None:
        self._returns.learn(entry)
        self._handwork.learn(entry)

    def _claimed(self, claim: ClaimEntry) -> None:
        if self.custodian.claims.learn(claim):
            self._answering.wake()

    def _count_drained(self, count: int) -> None:
        self._metrics.drained += count

    def _warn_of_lost_sites(self) -> None:
        """Logs whose holder the topology does not have (any more) can be moved by nobody."""
        for holder, logs in self._holdings.view.holders().items():
            if holder not in self._topology.sites:
                log.error(
                    "%s: %d logs are held by %s, which the topology does not have, for example %s; give them to a site "
                    "with 'fairlead custody seize'",
                    self._site,
                    len(logs),
                    holder,
                    min(logs),
                )
