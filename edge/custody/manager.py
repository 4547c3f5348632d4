"""Creates the parts of a bridge that deal with custody, connects them, and names the tasks that they run."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from edge.custody.drain import StrayDrainer
from edge.custody.handlers import ClaimResponder, OrderHandler
from edge.custody.protocol import CustodyProtocol
from edge.custody.receiver import Receiver
from edge.custody.recovery import CrashRecovery, DivergenceSalvage, recall_strays
from edge.custody.term_writer import TermWriter
from edge.holdings import CustodyState, Holdings
from edge.logwriter.follower import LogFollower
from edge.logwriter.retry import retry_transient
from edge.site_kafka import SiteKafka
from edge.site_logs import custody_logs, fixed_logs
from edge.strays.store import StrayBook, Strays
from edge.writer_registry import AlertWriter, Settlement, SiteCustody, WriterRegistry
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import Record
from fairlead.records.custody import CUSTODY_ORDERS
from topologies.ledger_trust import Believer
from topologies.model import Topology

log = logging.getLogger(__name__)

Work = Mapping[str, Callable[[], Coroutine[Any, Any, None]]]
"""The tasks that run until the bridge ends, by name."""


class CustodyManager:
    """Custody at one site. Creates the site's writers too, because custody decides what they may append.

    Args:
        believer: Decides which ledger entries are believed.
        alerts: The writer of the site's alerts.
    """

    def __init__(
        self,
        topology: Topology,
        kafka: SiteKafka,
        holdings: Holdings,
        believer: Believer,
        alerts: AlertWriter,
        settlement: Settlement,
    ) -> None:
        logs = fixed_logs(topology, holdings.site)
        others = tuple(topic for topic in logs.all_strays if topic != logs.strays)
        self._topology = topology
        self._holdings = holdings
        self._site = holdings.site
        self._cluster = kafka.cluster
        metrics = settlement.metrics
        self.strays = Strays(logs.strays, kafka.appender, metrics, is_box_log=topology.is_box_log, fail=settlement.fail)
        self.book = StrayBook(self.strays, others, holdings.view, trusted=believer.trusts_strays)
        self.protocol = CustodyProtocol(
            holdings,
            self.book,
            sites=topology.sites,
            now=lambda: dt.datetime.now(dt.UTC),
            nonce=lambda: uuid.uuid4().hex,
            disbelieve=believer.refusal,
        )
        self._drainer = StrayDrainer(self.protocol, self.strays, kafka.tails, metrics, self._go_back)
        self.writers = WriterRegistry(logs, kafka, SiteCustody(holdings, self.book, self._drainer), alerts, settlement)
        self._receiver = Receiver(
            kafka.cluster, kafka.appender, self.protocol, custody_logs(topology), believer, self.writers
        )
        self.term_writer = TermWriter(self.protocol, kafka, self.writers, self._receiver)
        self._recovery = CrashRecovery(topology, kafka.cluster, kafka.appender, self.writers, self.term_writer)
        self._salvage = DivergenceSalvage(kafka.cluster, self.term_writer, self.writers)
        self._claim_responder = ClaimResponder(self.writers, self.term_writer, self._receiver.claimed)
        self.orders = OrderHandler(topology, self.writers, self.term_writer)
        self._other_strays = LogFollower(kafka.cluster, others, self._add_stray, metrics.unread)

    async def close(self) -> None:
        await self.term_writer.close()
        await self._drainer.close()

    async def catch_up(self) -> None:
        """Read from the logs what this site holds and which strays wait. Must end before the first MQTT message."""
        for step in (
            self._receiver.catch_up,
            self._recovery.complete,
            lambda: recall_strays(self._cluster, self.writers, self.protocol),
            self._other_strays.catch_up,
        ):
            await retry_transient(step, f"{self._site}: reading its logs")
        self._warn_of_lost_sites()
        for topic in self.book.logs():
            if self._holdings.state(topic) is CustodyState.HELD:
                self.writers.box(topic).taken_over()

    def work(self) -> Work:
        """Return the tasks that run until the bridge ends."""
        unread = self.writers.metrics.unread
        return {
            "ledgers": self._receiver.follow,
            "custody": self._receiver.take_over,
            "strays": self._other_strays.follow,
            "claims": self._claim_responder.run,
            "orders": LogFollower(self._cluster, [CUSTODY_ORDERS], self.orders.add_order, unread).follow,
            "returns": self._salvage.run,
            "broken logs": self._recovery.run,
        }

    def _add_stray(self, topic: str, record: Record, at_start: bool) -> None:
        """Handle a record of another site's strays log; drain it if this site holds the log that it belongs to."""
        waits = self.book.add_record(topic, record)
        if waits is not None and not at_start:
            self.writers.drain_soon(waits)

    def _go_back(self, topic: str, offset: int, error: CorruptBatch) -> None:
        """Let the strays behind a damaged batch of another site's strays log wait until a broker has it whole.

        Raises:
            CorruptBatch: the strays log is this site's own.
        """
        if topic == self.strays.log:
            raise error
        self._other_strays.stop_before(topic, self.book.go_back(topic, offset), error)

    def _warn_of_lost_sites(self) -> None:
        """Log an error about logs whose holder is not in the topology (any more): no site can grant them."""
        for holder, logs in self._holdings.view.holders().items():
            if holder not in self._topology.sites:
                log.error(
                    "%s: %d logs are held by %s, which the topology does not have, for example %s; seize them with "
                    "'fairlead custody seize'",
                    self._site,
                    len(logs),
                    holder,
                    min(logs),
                )
