"""Repairs custody: grants that a crash interrupted, broken logs, and copies that a seizure has cut off.

A grant is a marker and then a ledger entry. A crash between the two leaves a log whose last record is the marker of a
term that no ledger names. The marker holds all that the entry needs, so the site that wrote it writes the entry at the
next start. The bridge does the same while it runs, as soon as an append is refused, and for logs whose entries a
truncated ledger has lost: a marker that is stored in a log is valid, whatever the ledgers have.

When another site has seized a log, this site's copy has other records at the same offsets and must be rebuilt from the
seizure's offset on. Before that, this site keeps every reading beyond that offset in ``strays.<site>``, from where the
present holder drains them. A ``ReturnEntry`` in the ledger then lets the replicator delete the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial

from edge.custody.protocol import CustodyProtocol
from edge.custody.term_writer import TermWriter
from edge.logwriter.retry import retry_transient
from edge.strays.store import Refusals, WaitingEvent
from edge.writer_registry import WriterRegistry
from fairlead.custody.superseded import Stale, stale_copies
from fairlead.custody.view import Grant
from fairlead.errors import FairleadError
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, read_log, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError, Conflict, CorruptBatch
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.names import parse_log
from fairlead.records import UNREADABLE
from fairlead.records.custody import CustodyEntry, ledger_entries
from fairlead.waiting import wait_set
from topologies.model import Topology

log = logging.getLogger(__name__)

_POSITIONS_AT_ONCE = 2_000
_MEND_AGAIN = 30.0  # seconds after a repair in which the same log is not repaired again
_LOOK_LATEST = 30.0  # seconds, at most, between checks of a log that cannot be checked now
_LOOKS_AT_ONCE = 200

EVERY = 2.0  # seconds between checks of seized logs


class CrashRecovery:
    """Finds the holders of logs from the logs themselves, where the ledgers are not enough."""

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        appender: Appender,
        writers: WriterRegistry,
        term_writer: TermWriter,
    ) -> None:
        self._topology = topology
        self._protocol = term_writer.protocol
        self._site = term_writer.protocol.site
        self._cluster = cluster
        self._appender = appender
        self._writers = writers
        self._term_writer = term_writer
        self._broken = writers.broken
        self._mended: dict[str, float] = {}

    async def complete(self) -> int:
        """Hold the logs that this site may append to, write ledger entries that a crash left out, and count these.

        A log that cannot be read now stays INCOMING, as one whose copy is not complete. Call it when the ledgers have
        been read, before the first MQTT message.
        """
        visible = await self._cluster.topics(None, refresh=True)
        moving = self._topology.moving_streams
        candidates = self._protocol.begin(
            topic for topic in visible if (parsed := parse_log(topic)) and parsed.stream in moving
        )
        written = 0
        unread: list[FairleadError] = []
        for first in range(0, len(candidates), _POSITIONS_AT_ONCE):
            part = [TP(topic) for topic in candidates[first : first + _POSITIONS_AT_ONCE]]
            later: list[tuple[str, LogPosition]] = []
            for tp, position in (await self._appender.renew_all(part)).items():
                if isinstance(position, FairleadError):
                    unread.append(position)
                elif self._protocol.take_up(tp.topic, position) and position is not None:
                    later.append((tp.topic, position))
            procedures = [self._protocol.complete(*each) for each in later]
            written += sum(await asyncio.gather(*map(self._term_writer.run, procedures)))
        if unread:
            log.warning("%s: %d logs cannot be read now, the first: %s", self._site, len(unread), unread[0].what)
        if written:
            log.warning("%s: wrote %d ledger entries that were missing after a crash", self._site, written)
        return written

    async def run(self) -> None:
        """Check each broken log until its holder is known, after growing pauses. Runs until cancelled."""
        while True:
            due = [topic for topic, look in self._broken.looks.items() if look.due <= time.monotonic()][:_LOOKS_AT_ONCE]
            await asyncio.gather(
                *(self._writers.box(topic).run_alone(partial(self._check_log, topic)) for topic in due)
            )
            self._broken.added.clear()
            next_due = min((look.due for look in self._broken.looks.values()), default=None)
            timeout = max(0.0, next_due - time.monotonic()) if next_due is not None else None
            await wait_set(self._broken.added, timeout)

    async def _check_log(self, topic: str) -> None:
        look = self._broken.looks.get(topic)
        if look is None or await self.recheck(topic, retriable=look.retriable):
            self._broken.looks.pop(topic, None)
            return
        look.due = time.monotonic() + look.delay
        look.delay = min(look.delay * 2, _LOOK_LATEST)

    async def recheck(self, topic: str, *, retriable: bool = False) -> bool:
        """Find out from the log itself who holds it. Runs as a barrier of the log's writer.

        Returns False when the log must be checked again later.

        Args:
            retriable: The log broke by a retriable error, so it may be repaired any number of times. Otherwise at most
                once in ``_MEND_AGAIN`` seconds.
        """
        try:
            held = await self._term_writer.run(
                self._protocol.recheck(topic, mend=partial(self._may_mend, retriable=retriable))
            )
        except FairleadError as error:
            log.warning("%s: cannot determine the holder of %s: %s", self._site, topic, error)
            return not (error.retriable or isinstance(error, Conflict))  # Conflict: an append is still in flight
        if held:
            log.warning("%s: %s is intact; appending continues", self._site, topic)
            self._writers.box(topic).taken_over()
        return True

    def _may_mend(self, grant: Grant, *, retriable: bool) -> bool:
        now = time.monotonic()
        if not retriable and now - self._mended.get(grant.log, -_MEND_AGAIN) < _MEND_AGAIN:
            return False
        self._mended[grant.log] = now
        return True


async def recall_strays(cluster: Cluster, writers: WriterRegistry, protocol: CustodyProtocol) -> None:
    """Fill the strays' index from this site's strays log. A call after an error continues where the last one failed.

    Events that are neither a log's newest grant nor among the newest events of the site are looked up in the site's
    whole ledger and events log: an event that was carried out must not move its log a second time. One that was refused
    is among the dead letters, and waits no more unless its message came again since.
    """
    while True:
        try:
            return await _recall_strays(cluster, writers, protocol)
        except BrokerError as error:  # retention has deleted records of a log while it was read
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            log.warning("%s; reading it again", error.what)


async def _recall_strays(cluster: Cluster, writers: WriterRegistry, protocol: CustodyProtocol) -> None:
    strays = writers.strays

    def done(topic: str, event: WaitingEvent) -> bool:
        known = event.event_id in writers.event_ids
        return protocol.is_settled(topic, event.event_id, event.at, known=known)

    own = TP(strays.log)
    there = (await extents(cluster, [own]))[own]
    async for record in read_log(cluster, own, max(there.start, strays.index.end), there.end):
        strays.recall_record(record, lambda topic: writers.book.floor(topic, strays.log), done)
    waiting = [(topic, event) for topic, events in strays.events.items() for event in events]
    if not waiting:
        return
    wanted = {event.event_id for _, event in waiting}
    entered: set[tuple[str, str]] = set()
    known: set[str] = set()
    refusals = Refusals(wanted)
    logs = [TP(writers.ledger.log), TP(writers.events.log), TP(writers.letters.log)]
    async for tp, found in sweep(cluster, await extents(cluster, logs)):
        for record in found:
            if not is_data(record) or record.value is None or record.key is None:
                continue
            if tp.topic == writers.events.log:
                known |= {record.key.decode(errors="replace")} & wanted
            elif tp.topic == writers.letters.log:
                refusals.add(tp.topic, record)
            elif record.key.decode(errors="replace") in strays.events:
                with contextlib.suppress(*UNREADABLE):
                    entry = ledger_entries.decode(record.value)
                    if isinstance(entry, CustodyEntry):
                        entered.add((entry.log, entry.event_id))
    for topic, event in waiting:
        key = topic, event.event_id
        if protocol.is_settled(*key, event.at, known=event.event_id in known, entered=key in entered):
            strays.carried_out(*key)
        elif refusals.cover(writers.letters.log, *key, event.received_ms):
            strays.refused(topic, event)


# -- copies that a seizure has cut off


class DivergenceSalvage:
    """Saves the readings in this site's copies that a seizure has cut off."""

    def __init__(self, cluster: Cluster, term_writer: TermWriter, writers: WriterRegistry) -> None:
        self._cluster = cluster
        self._term_writer = term_writer
        self._protocol = term_writer.protocol
        self._writers = writers
        self._damaged: dict[str, Stale | None] = {}  # tails that cannot be read; told once

    async def run(self) -> None:
        """Check seized logs every ``EVERY`` seconds, until cancelled."""
        while True:
            await retry_transient(self.salvage_copies, "checking logs that were seized")
            await asyncio.sleep(EVERY)

    async def salvage_copies(self) -> int:
        """Keep the readings beyond a seizure in every copy here as strays. Returns how many logs had any to report.

        A copy with a damaged batch there is not reported, so the replicator does not delete it.
        """
        done = 0
        view = self._protocol.view
        for topic, stale in (await stale_copies(self._cluster, view, tuple(view.seized()))).items():
            if isinstance(stale, CorruptBatch):
                self._tell(topic, None, "whether a seizure cut off readings cannot be known", stale)
                continue
            if self._protocol.is_returned(topic, stale) or self._damaged.get(topic) == stale:
                continue
            try:
                await self._writers.box(topic).run_alone(partial(self._return_tail, topic))
                done += 1
            except CorruptBatch as error:
                self._tell(topic, stale, "a seizure cut off readings that cannot be kept", error)
        return done

    def _tell(self, topic: str, stale: Stale | None, what: str, error: CorruptBatch) -> None:
        """Log once that a copy is damaged, in its stale tail or where it must be looked at to find one (None)."""
        if topic not in self._damaged or self._damaged[topic] != stale:
            log.error("%s: %s: %s", self._protocol.site, what, error)
        self._damaged[topic] = stale

    async def _return_tail(self, topic: str) -> None:
        """Keep the readings of one copy beyond the seizure as strays. Runs as a barrier of the log's writer."""
        entry = await self._term_writer.run(self._protocol.return_tail(topic))
        if entry is not None:
            log.error(
                "%s: %s was seized (term %d), which cuts off this site's copy from offset %d to %d. Its %d readings "
                "there are kept in %s, and the replicator rebuilds the copy",
                entry.returned_by,
                topic,
                entry.term,
                entry.marker_offset,
                entry.end_offset,
                entry.kept,
                entry.strays_log,
            )
