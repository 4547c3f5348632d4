"""What a replicator knows from its own site's logs: who holds which container log, and which ship is at which berth.

Follows ``custody.*`` (the ledgers of all sites, as replicated here), ``events.<site>`` and its operators' orders from
their beginning. Nothing has to be asked over a link for it, and a restart rebuilds it. What this site's bridge reports
about copies that a seizure cut off is taken from this site's own ledger only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from fairlead.custody import CustodyView, SplitCustodyError
from fairlead.names import parse_log
from fairlead.records import decoder
from fairlead.records.custody import CustodyEntry, LedgerEntry, ReturnEntry, ledger_entries
from fairlead.records.event import Event
from fairlead.wire.batch import split
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.record import Record, decode_batch
from fairlead.wire.types import TopicPartition
from replication.berth import Berths, needs_berths
from replication.orders import ORDERS_TOPIC, Orders, decode
from topologies.model import Topology

log = logging.getLogger(__name__)

CUSTODY: Final = "custody"
POLL_MS: Final = 1000
AT_ONCE: Final = 1 << 19  # bytes of a log; what is read at start would else be what the process has at most
_events = decoder(Event)


class Ledger:
    """Custody and berths as one site knows them. ``ready`` is set once everything that was there has been read."""

    def __init__(self, topology: Topology, site: str, *, on_change: Callable[[], None]) -> None:
        self.custody = CustodyView()
        self.berths = Berths(topology)
        self.orders = Orders()
        self.splits: dict[str, str] = {}  # logs granted twice, with what the ledger says about it
        self.given: dict[str, CustodyEntry] = {}  # what others gave to this site, by log; kept where ``keep_given``
        self.keep_given = False
        self.returned: dict[str, ReturnEntry] = {}  # this site's newest report about its copy of a seized log
        self.ready = asyncio.Event()
        self._needs_custody = bool(topology.moving_streams)
        self._site = site
        self._own = f"{CUSTODY}.{site}"
        self._events_log = f"events.{site}" if needs_berths(topology, site) else None
        self._on_change = on_change
        self._positions: dict[TopicPartition, int] = {}
        self._wanted = asyncio.Event()
        self._new: set[TopicPartition] = set()

    @property
    def orders_read(self) -> int:
        """The offset in the topic of orders up to which they are taken in."""
        return self._positions.get(TopicPartition(ORDERS_TOPIC), 0)

    def offer(self, topics: Collection[str]) -> None:
        """Tell which topics exist at the site; those that matter are followed from now on."""
        for topic in topics:
            matters = topic in (self._events_log, ORDERS_TOPIC) or (
                self._needs_custody
                and topic.startswith(CUSTODY)
                and (name := parse_log(topic)) is not None
                and name.stream == CUSTODY
            )
            if matters and TopicPartition(topic) not in self._positions:
                self._new.add(TopicPartition(topic))
        if not self._new and not self._positions:
            self.ready.set()  # nothing to know yet; what comes later is news
        self._wanted.set()

    async def run(self, cluster: Cluster) -> None:
        """Follow until cancelled.

        Raises:
            WireError: the site's Kafka cannot be read; run again, nothing is lost by it.
        """
        session = cluster.fetch_session()
        try:
            for tp, position in self._positions.items():
                session.set(tp, position)
            while True:
                if not self._positions and not self._new:
                    self._wanted.clear()
                    await self._wanted.wait()
                    continue
                if self._new:
                    fresh, self._new = self._new, set()
                    try:
                        await self._catch_up(cluster, fresh)
                    except BaseException:
                        self._new |= fresh
                        raise
                    for tp in fresh:
                        session.set(tp, self._positions[tp])
                self.ready.set()
                for tp, part in (await session.poll(max_wait_ms=POLL_MS)).items():
                    if part.error_code:
                        continue  # a deleted or retired log: what is known stays
                    if self._take(tp, part.records):
                        session.set(tp, self._positions[tp])
        finally:
            await session.close()

    async def _catch_up(self, cluster: Cluster, logs: set[TopicPartition]) -> None:
        """Read these logs from their start to their present end."""
        starts, ends = await cluster.start_offsets(logs), await cluster.end_offsets(logs)
        left: dict[TopicPartition, int] = {}
        for tp in logs:
            start, end = starts[tp], ends[tp]
            if not isinstance(start, int) or not isinstance(end, int):
                raise start if not isinstance(start, int) else end  # type: ignore[misc]
            self._positions.setdefault(tp, start)
            if start < end:
                left[tp] = end
        while left:
            answer = await cluster.fetch(
                {tp: self._positions[tp] for tp in left}, max_wait_ms=0, partition_max_bytes=AT_ONCE
            )
            for tp, part in answer.items():
                self._take(tp, part.records)
            left = {tp: end for tp, end in left.items() if self._positions[tp] < end}

    def _take(self, tp: TopicPartition, records: memoryview) -> bool:
        moved = changed = False
        for record in self._records(tp, records):
            moved = True
            self._positions[tp] = record.offset + 1
            if record.value is None or not is_data(record):
                continue
            try:
                if tp.topic == ORDERS_TOPIC:
                    self.orders.apply(decode(record.value))
                    changed = True  # also without effect: whoever gave the order waits to hear that it was read
                elif tp.topic == self._events_log:
                    changed |= self.berths.apply(_events.decode(record.value))
                else:
                    changed |= self._enter(tp.topic, ledger_entries.decode(record.value))
            except SplitCustodyError as split:
                self.splits[str(split.fields["log"])] = split.what
                changed = True
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                log.warning("%s at offset %d is not understood: %s", tp, record.offset, error)
        if changed:
            self._on_change()
        return moved

    def _enter(self, ledger: str, entry: LedgerEntry) -> bool:
        """Take in an entry of a site's ledger; True when it may change what is followed."""
        match entry:
            case CustodyEntry():
                known = len(self.custody.seizures(entry.log))
                if self.keep_given and entry.term > (self.custody.term(entry.log) or 0):
                    self.given.pop(entry.log, None)
                    if entry.to_site == self._site != entry.granted_by:
                        self.given[entry.log] = entry
                return self.custody.apply(entry) or len(self.custody.seizures(entry.log)) > known
            case ReturnEntry() if ledger == self._own:
                self.returned[entry.log] = entry
                return True
        return False

    def _records(self, tp: TopicPartition, records: memoryview) -> Iterator[Record]:
        position = self._positions[tp]
        for start, stop, _ in split(records):
            yield from (record for record in decode_batch(records, start, stop) if record.offset >= position)
