"""Read the holder of each container log and the berth of each ship from the site's own logs.

The replicator follows ``custody.*`` (the ledgers of all sites, as replicated here), ``events.<site>`` and its
operators' orders from their start. It asks no other site for them, and a restart reads everything again. Reports of a
bridge about copies that a seizure cut off count only in this site's own ledger. Transport events are published at both
the port and the ship (``fairlead.records.event``), so each end of a berth link decides from its own log whether the
link may be used. It also follows the ship's positions: at the ship its own log, ashore the copy, from its last records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator
from typing import Final

from fairlead.custody.ledger import Told
from fairlead.custody.view import CustodyView, SplitCustodyError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.client.reader import is_empty, lacks_batch, readable
from fairlead.kafka.convention import is_data, received_ms
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.errors import (
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    CorruptBatch,
    WireError,
    broker_error,
)
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from fairlead.names import parse_log
from fairlead.records import UNREADABLE, decoder
from fairlead.records.custody import CustodyEntry, ReturnEntry, ledger_entries
from fairlead.records.event import Event
from fairlead.records.ship import Position
from replication.berths import Berths, fix_of, needs_berths, position_logs
from replication.changes import PlanChanges
from replication.overrides import DAMAGED_HINT, ORDERS_TOPIC, Overrides, decode
from replication.states import LogTrouble, now_ms, unavailable
from topologies.ledger_trust import Believer, Refused, Rules
from topologies.model import Topology

log = logging.getLogger(__name__)


CUSTODY: Final = "custody"
WITHOUT_PAST: Final = ("latest", "end")
"""``Link.start`` of links that want no older records."""
POLL_MS: Final = 1000
DAMAGED_RETRY: Final = 10.0  # seconds
SOON: Final = 1.0  # seconds until a log that no broker serves waits for the next poll: the others are read meanwhile
AT_ONCE: Final = 1 << 19  # bytes of a log; limits the process's memory at start
UNKNOWN_END: Final = 1 << 62  # of orders that cannot be read
LAST_POSITIONS: Final = 50  # records to read of a ship's positions at the start
_WHOLE: Final = "make a broker that has it whole its leader"
_events = decoder(Event)
_fixes = decoder(Position)


class Ledger:
    """Custody and berths as known at one site. ``ready`` is set once the existing records have been read."""

    def __init__(self, topology: Topology, site: str, changes: PlanChanges) -> None:
        """``changes`` gets the logs that an entry is about, everything after an operator's order."""
        self.custody = CustodyView()
        self.berths = Berths(topology)
        self.overrides = Overrides()
        self.splits: dict[str, str] = {}  # logs granted twice, with the conflict
        self.given: dict[
            str, CustodyEntry
        ] = {}  # grants to this site, by log; only if a link wants logs without their past
        self._keep_given = any(
            each.start in WITHOUT_PAST and "aboard" in each.streams.values() for each in topology.links_to(site)
        )
        self.returned: dict[str, ReturnEntry] = {}  # this site's newest report about its copy of a seized log
        self.ready = asyncio.Event()
        self._needs_custody = bool(topology.moving_streams)
        self._site = site
        self._own = f"{CUSTODY}.{site}"
        self._events_log = f"events.{site}" if needs_berths(topology, site) else None
        self._position_logs = position_logs(topology, site)
        self._changes = changes
        self.refused = 0  # entries that are not trusted
        self.unread: dict[TopicPartition, LogTrouble] = {}  # other logs than orders that cannot be read to their ends
        self.orders_trouble: LogTrouble | None = None  # why orders cannot be read, and what to do
        self._orders_end = 0  # before the orders are read to here, some from before the start are unknown; 0: none is
        self._orders_listed = False  # whether a list of topics has had them
        self._rules = Rules.of(topology)
        self._believer = Believer(self._rules, self.custody, on_refused=self._refuse)
        self._positions: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, bytes] = {}  # of the topics that were read
        self._wanted = asyncio.Event()
        self._new: set[TopicPartition] = set()
        self._damaged: dict[TopicPartition, float] = {}  # logs with a batch that cannot be read; when to try again

    @property
    def orders_read(self) -> int:
        """The offset in the topic of orders up to which they are applied."""
        return self._positions.get(TopicPartition(ORDERS_TOPIC), 0)

    def follow_topics(self, topics: Collection[str]) -> None:
        """Follow the site's topics of custody, events, positions and orders; ignore the others."""
        self._orders_listed |= ORDERS_TOPIC in topics
        # No list has a topic that this user may not see, but a broker refuses it by its name.
        for topic in topics if self.ready.is_set() else (*topics, ORDERS_TOPIC):
            matters = (
                topic in (self._events_log, ORDERS_TOPIC)
                or topic in self._position_logs
                or (
                    self._needs_custody
                    and topic.startswith(CUSTODY)
                    and (name := parse_log(topic)) is not None
                    and name.stream == CUSTODY
                )
            )
            if matters and TopicPartition(topic) not in self._positions:
                self._new.add(TopicPartition(topic))
        self._wanted.set()

    async def run(self, cluster: Cluster) -> None:
        """Follow until cancelled.

        Raises:
            WireError: the site's Kafka cannot be read. Call ``run`` again; no entry is lost.
        """
        session = cluster.fetch_session()
        try:
            await self._find_recreated(cluster)
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
                        unread = await self._catch_up(cluster, fresh)
                    except BaseException:
                        for tp in fresh:
                            self._positions.pop(tp, None)
                        self._new |= fresh
                        raise
                    for tp in fresh - unread - self._damaged.keys():
                        session.set(tp, self._positions[tp])
                    self._new |= unread
                self._notice_orders()
                self._notice_berths()
                if not self.ready.is_set():
                    self.unread.clear()
                    self.ready.set()
                for tp, part in (await session.poll(max_wait_ms=POLL_MS)).items():
                    if part.error_code:
                        self._reread(tp, broker_error(part.error_code, tp).what)
                    elif self._apply_whole(tp, part):
                        session.set(tp, self._positions[tp])
                    elif tp in self._damaged:
                        session.forget(tp)
                if self._damaged and min(self._damaged.values()) <= time.monotonic():
                    await self._retry_damaged(cluster, session)
                self._notice_orders()
                self._notice_berths()
        finally:
            await session.close()

    def _apply_whole(self, tp: TopicPartition, part: FetchedPartition, *, left_out: bool = True) -> bool:
        """Apply records. A damaged batch stops its own log only: no order and no entry is passed unread, and a broker
        that has it whole may become the leader."""
        try:
            moved = self._apply_records(tp, part, left_out=left_out)
        except CorruptBatch as error:
            if tp not in self._damaged:
                log.warning("%s is not read beyond offset %d: %s", tp, self._positions[tp], error.what)
            if tp.topic not in self._position_logs:
                self._note_unread(tp, error)
            self._damaged[tp] = time.monotonic() + DAMAGED_RETRY
            return False
        if moved:
            self._damaged.pop(tp, None)
            self.unread.pop(tp, None)
        return moved

    def _note_unread(self, tp: TopicPartition, error: WireError) -> None:
        """Note for the status why a log is not read to its end. Before ``ready`` is set it is the log that was tried
        last, and nothing is planned."""
        before = self.unread.get(tp)
        what = f"{tp} is not read beyond offset {self._positions.get(tp, 0)}: {error.what}"
        if tp.topic == ORDERS_TOPIC:
            hint = DAMAGED_HINT.format(site=self._site) if isinstance(error, CorruptBatch) else error.hint
            self.orders_trouble = unavailable(what, self.orders_trouble, hint=hint)
            return
        if not self.ready.is_set():
            self.unread.clear()
            what += "; nothing is copied to this site before"
        hint = _WHOLE if isinstance(error, CorruptBatch) else error.hint
        self.unread[tp] = unavailable(what, before, hint=hint)

    async def _retry_damaged(self, cluster: Cluster, session: FetchSession) -> None:
        await self._find_recreated(cluster)
        again = self._damaged.keys() & self._positions.keys()
        ends = await cluster.end_offsets(again, seconds=0)
        for tp in again:
            end = ends[tp]
            if tp.topic in self._position_logs:  # its newest records may be whole, and no others are needed
                self._new.add(tp)
            elif isinstance(end, int):  # a topic that is missing now may come back with its damage
                session.set(tp, self._positions[tp])
                if end <= self._positions[tp]:  # a new leader has not got the damaged batch
                    self._damaged.pop(tp)
                    self.unread.pop(tp, None)
                if tp.topic == ORDERS_TOPIC:
                    self._orders_end = min(self._orders_end, end)  # nor perhaps the last orders
        self._damaged = dict.fromkeys(self._damaged, time.monotonic() + DAMAGED_RETRY)

    def _reread(self, tp: TopicPartition, why: str) -> None:
        """Schedule a log to be read from its start, because it was created again or lost the followed offset.

        Entries that were read before stay in force; reading them again changes nothing.
        """
        log.warning("reading %s again from its start: %s", tp, why)
        self._positions.pop(tp, None)
        self._ids.pop(tp, None)
        self._damaged.pop(tp, None)
        self.unread.pop(tp, None)
        self._new.add(tp)

    async def _find_recreated(self, cluster: Cluster) -> None:
        """Read logs again whose topics were deleted and created again meanwhile."""
        found = await cluster.topics([tp.topic for tp in self._positions], refresh=True) if self._positions else {}
        for tp in tuple(self._positions):
            if tp.topic in found and found[tp.topic].topic_id != self._ids.get(tp):
                self._reread(tp, "its topic was deleted and created again")

    async def _catch_up(self, cluster: Cluster, logs: set[TopicPartition]) -> set[TopicPartition]:
        """Read these logs from their start to their current end, or to a damaged batch.

        Returns:
            Logs that cannot be read now and must be retried. Before ``ready`` is set that raises instead, because a
            plan needs all of them but the ships' positions. So does a damaged batch. But no trouble with orders does: a
            plan follows nothing that the unread ones may forbid.
        """
        found = await cluster.topics([tp.topic for tp in logs], refresh=True)
        orders = TopicPartition(ORDERS_TOPIC)
        if orders in logs and not self._orders_listed:
            if cluster.metadata.why_no_leader(orders) == UNKNOWN_TOPIC_OR_PARTITION:
                logs.remove(orders)  # nobody has given any
                self._orders_end = 0
        seconds = SOON if self.ready.is_set() else None
        starts = await cluster.start_offsets(logs, seconds=seconds)
        ends = await cluster.end_offsets(logs, seconds=seconds)
        left: dict[TopicPartition, int] = {}
        unread: set[TopicPartition] = set()
        damaged: set[TopicPartition] = set()
        for tp in logs:
            start, end = starts[tp], ends[tp]
            if not isinstance(start, int) or not isinstance(end, int):
                self._put_off(tp, next(each for each in (start, end) if isinstance(each, BrokerError)))
                unread.add(tp)
                continue
            if tp.topic == ORDERS_TOPIC and (self._orders_end or not self.ready.is_set()):
                self._orders_end = end
            self._positions[tp] = max(start, end - LAST_POSITIONS) if tp.topic in self._position_logs else start
            if tp.topic in found:
                self._ids[tp] = found[tp.topic].topic_id
            if self._positions[tp] < end:
                left[tp] = end
        while left:
            # A ship's entries need those of sites ashore, so these are read first.
            first = {tp for tp in left if not self._rules.is_of_ship(tp.topic)} or left.keys()
            answer = await cluster.fetch(
                {tp: self._positions[tp] for tp in first}, max_wait_ms=POLL_MS, partition_max_bytes=AT_ONCE
            )
            left_out = not is_empty(answer)
            for tp, part in answer.items():
                if part.error_code:
                    self._put_off(tp, broker_error(part.error_code, tp))
                    unread.add(tp)
                elif not self._may_wait(tp) and tp.topic != ORDERS_TOPIC:
                    try:
                        self._apply_records(tp, part, left_out=left_out)
                    except CorruptBatch as error:
                        self._note_unread(tp, error)
                        raise
                elif not self._apply_whole(tp, part, left_out=left_out) and tp in self._damaged:
                    damaged.add(tp)
            left = {tp: end for tp, end in left.items() if tp not in unread | damaged and self._positions[tp] < end}
        for tp in unread:
            self._positions.pop(tp, None)
        return unread

    def _put_off(self, tp: TopicPartition, error: BrokerError) -> None:
        """Act on a log that cannot be read now: raise the error if it may not be read later."""
        if tp.topic == ORDERS_TOPIC and (self._orders_end or not self.ready.is_set()):
            self._note_unread(tp, error)
            self._orders_end = self._orders_end or UNKNOWN_END
        elif not self._may_wait(tp):
            self._note_unread(tp, error)
            raise error

    def _may_wait(self, tp: TopicPartition) -> bool:
        """Return whether a log that cannot be read may be read later."""
        return self.ready.is_set() or tp.topic in self._position_logs

    def _apply_records(self, tp: TopicPartition, part: FetchedPartition, *, left_out: bool) -> bool:
        """Apply a log's part of an answer, which may lack its records (``left_out``, as for ``decode_fetched``). Return
        whether there were any.

        Raises:
            CorruptBatch: a batch is damaged; what comes before it is applied.
        """
        changed: set[str] = set()
        ordered, before = False, self._positions[tp]
        try:
            for record in self._records(tp, part.records):
                self._positions[tp] = record.offset + 1
                if record.value is None or not is_data(record):
                    continue
                try:
                    if tp.topic == ORDERS_TOPIC:
                        self.overrides.apply(decode(record.value))
                        ordered = True  # even without effect: its giver waits until it has been read
                    else:
                        changed.update(self._apply_record(tp, record, record.value))
                except UNREADABLE as error:
                    log.warning("%s at offset %d cannot be decoded: %s", tp, record.offset, error)
        finally:  # what comes before a damaged batch counts
            if ordered:
                self._changes.add_all()
            if changed:
                self._changes.add(changed)
        if self._positions[tp] == before and not left_out and part.high_watermark > before:
            raise lacks_batch(tp, part, before)
        return self._positions[tp] > before

    def _apply_record(self, tp: TopicPartition, record: Record, value: bytes) -> Iterator[str]:
        """Apply a record of another topic than that of orders; yield the logs whose plan may change."""
        if tp.topic == self._events_log:
            self.berths.apply(_events.decode(value), record.offset)
        elif (imo := self._position_logs.get(tp.topic)) is not None:
            fix = fix_of(_fixes.decode(value), received_ms(record))
            if fix is not None:
                self.berths.locate(imo, fix)
        else:
            told = Told(tp.topic, record.offset, ledger_entries.decode(value))
            for each in self._believer.hear(told):
                yield from self._apply_entry(each)

    def _notice_orders(self) -> None:
        """Note whether orders from before the start are unread, and have the plan made again when that changes."""
        if self.orders_read >= self._orders_end:
            self._orders_end = 0
        if not self._orders_end and TopicPartition(ORDERS_TOPIC) not in self._damaged:
            self.orders_trouble = None
        unread = self.orders_trouble if self._orders_end else None
        if unread != self.overrides.unread:
            self.overrides.unread = unread
            self._changes.add_all()

    def _notice_berths(self) -> None:
        """Have the plan made again if a berthed link opened or closed, by a record or because a position is too old."""
        if self.berths.has_changed(now_ms()):
            self._changes.add()

    @property
    def waiting(self) -> int:
        """How many entries wait for others that they depend on."""
        return len(self._believer)

    def _refuse(self, entry: Refused) -> None:
        self.refused += 1
        log.error("%s: %s", self._site, entry)

    def _apply_entry(self, told: Told) -> tuple[str, ...]:
        """Apply a trusted entry of a site's ledger; return the log if its plan may change."""
        match told.entry:
            case CustodyEntry() as entry:
                known = len(self.custody.seizures(entry.log))
                if self._keep_given and entry.term > (self.custody.term(entry.log) or 0):
                    self.given.pop(entry.log, None)
                    if entry.to_site == self._site != entry.granted_by:
                        self.given[entry.log] = entry
                try:
                    applied = self.custody.apply(entry) or len(self.custody.seizures(entry.log)) > known
                except SplitCustodyError as split:
                    self.splits[str(split.fields["log"])] = split.what
                    applied = True
                return (entry.log,) if applied else ()
            case ReturnEntry() as entry if told.ledger == self._own:
                self.returned[entry.log] = entry
                return (entry.log,)
        return ()

    def _records(self, tp: TopicPartition, records: memoryview) -> Iterator[Record]:
        position = self._positions[tp]
        for view in split(records):
            yield from (record for record in readable(records, view) if record.offset >= position)
            self._positions[tp] = max(self._positions[tp], view.header.next_offset)
