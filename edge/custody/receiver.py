"""Follows all ledgers in the site's own Kafka. Takes over each log granted to this site once its copy is complete."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Sequence
from functools import partial

from edge.custody.protocol import FUTURE, CustodyProtocol
from edge.errors import SecondBridgeError
from edge.holdings import CustodyState
from edge.logwriter.follower import LogFollower
from edge.logwriter.retry import retry_transient
from edge.writer_registry import WriterRegistry
from fairlead.custody.ledger import Told
from fairlead.errors import FairleadError
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE
from fairlead.records.custody import ClaimEntry, CustodyEntry, ledger_entries
from topologies.ledger_trust import Believer

log = logging.getLogger(__name__)

_SOONEST, _LATEST = 0.05, 0.5  # seconds between reads of the ends of incoming logs
_PER_LOG = 0.0002  # added per incoming log: several times the broker's cost of one
_AT_ONCE = 2_000
_SOON = 2.0  # seconds for which a log that is not served may hold up the others


class Receiver:
    """Applies ledger entries to the protocol's view and holdings, and takes over incoming logs.

    Args:
        ledgers: Topics of all sites' ledgers; missing ones are followed as soon as they appear.
        believer: Decides which entries are believed.
    """

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        protocol: CustodyProtocol,
        ledgers: tuple[str, ...],
        believer: Believer,
        writers: WriterRegistry,
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._protocol = protocol
        self._believer = believer
        self._holdings = protocol.holdings
        self._own = f"custody.{protocol.site}"
        self._writers = writers
        self.claimed = asyncio.Event()  # set when a claim arrives that this site must answer
        self._incoming = asyncio.Event()
        self._follower = LogFollower(cluster, ledgers, self._apply_record, writers.metrics.unread, own=self._own)

    @property
    def truncated(self) -> dict[str, int]:
        """Ledgers with missing entries: those that no longer begin at offset 0, with their first offset."""
        return self._follower.starts

    async def catch_up(self) -> None:
        """Read every ledger that is here up to its present end, without taking over any log."""
        await self._follower.catch_up()
        for topic, start in self.truncated.items():
            log.error(
                "%s: the ledger %s has lost its first %d entries; the bridge uses the markers in the logs instead. "
                "Set the ledger's retention to forever",
                self._holdings.site,
                topic,
                start,
            )

    async def follow(self) -> None:
        """Follow the ledgers until cancelled.

        Raises:
            SecondBridgeError: another process writes to this site's ledger.
        """
        await self._follower.follow()

    async def read_to_ends(self) -> None:
        """Wait until ``follow`` has applied every entry that the ledgers have now. Raises as ``LogFollower`` does."""
        await self._follower.read_to_ends()

    def _apply_record(self, topic: str, record: Record, at_start: bool) -> None:
        if record.value is None or not is_data(record):
            return
        try:
            entry = ledger_entries.decode(record.value)
        except UNREADABLE as error:
            log.error("%s@%d is not a ledger entry: %s", topic, record.offset, error)
            return
        for told in self._believer.hear(Told(topic, record.offset, entry)):
            if isinstance(told.entry, CustodyEntry):
                waited = (told.ledger, told.offset) != (topic, record.offset)
                self._apply(told.ledger, told.entry, at_start=at_start, waited=waited)
                if not at_start:  # an entry, however old, may be the first that gives the log to the ship with strays
                    self._writers.drain_soon(told.entry.log)
            elif isinstance(told.entry, ClaimEntry):
                if self._protocol.claims.learn(told.entry):
                    self.claimed.set()
            if told.ledger == self._own:
                self._protocol.learn(told.entry)

    def _apply(self, topic: str, entry: CustodyEntry, *, at_start: bool, waited: bool) -> None:
        if entry.event_date_time > dt.datetime.now(dt.UTC) + FUTURE:
            log.error(
                "%s has an entry from the future: term %d of %s, %s; the entry counts, because terms decide which is "
                "newer, but its time is ignored",
                topic,
                entry.term,
                entry.log,
                entry.event_date_time.isoformat(),
            )
        news = self._protocol.apply(entry, own=topic == self._own and not waited, at_start=at_start)
        if news is None:
            return
        if topic == self._own and not waited:
            raise SecondBridgeError(
                f"another bridge of {self._holdings.site} is running: it granted {entry.log} to {entry.to_site} (term "
                f"{entry.term})",
                hint="run one bridge per site; this one stops without losing messages",
                site=self._holdings.site,
                log=entry.log,
            )
        if news.now is CustodyState.INCOMING:
            self._incoming.set()
        elif news.before is CustodyState.HELD and news.now is CustodyState.ELSEWHERE:
            log.error(
                "%s: the ledger gives term %d to %s without a grant of this site", entry.log, entry.term, entry.to_site
            )
            self._writers.box(entry.log).unload()

    # -- taking over

    async def take_over(self) -> None:
        """Take over logs that the ledgers give to this site as soon as their copies are complete, until cancelled."""
        delay = _SOONEST
        while True:
            if not self._holdings.incoming:
                self._incoming.clear()
                await self._incoming.wait()
                delay = _SOONEST
            ready = await retry_transient(self._complete_copies, "checking incoming logs")
            before = len(self._holdings.incoming)
            await self._adopt(ready)
            # The replicator writes the copies, in another process, so their ends must be polled. Polling very many of
            # them slows down the broker that stores them.
            await asyncio.sleep(max(delay, _PER_LOG * len(self._holdings.incoming)))
            delay = _SOONEST if len(self._holdings.incoming) < before else min(delay * 1.5, _LATEST)

    async def _complete_copies(self) -> list[str]:
        """Return the incoming logs whose copy here includes the marker of the grant."""
        here = await self._cluster.topics(list(self._holdings.incoming))  # refreshes topics that were missing before
        ends = await self._cluster.end_offsets([TP(topic) for topic in here], seconds=_SOON)
        self._holdings.note_unserved({tp.topic for tp, end in ends.items() if isinstance(end, BrokerError)})
        ready: list[str] = []
        for tp, end in ends.items():
            marker = self._holdings.view.marker(tp.topic)
            if not isinstance(end, BrokerError) and marker is not None and end > marker:
                ready.append(tp.topic)
        return ready

    async def _adopt(self, topics: Sequence[str]) -> None:
        for first in range(0, len(topics), _AT_ONCE):
            grants = {
                TP(topic): grant
                for topic in topics[first : first + _AT_ONCE]
                if topic in self._holdings.incoming and (grant := self._holdings.view.grant(topic)) is not None
            }
            terms = {tp: grant.term for tp, grant in grants.items()}
            found = await retry_transient(partial(self._appender.adopt_many, terms), f"taking over {len(terms)} logs")
            for tp, result in found.items():
                if self._protocol.adopted(grants[tp], result):
                    self._writers.box(tp.topic).taken_over()
                elif isinstance(result, FairleadError) and self._holdings.state(tp.topic) is CustodyState.BROKEN:
                    self._writers.broken.add(tp.topic, result)
