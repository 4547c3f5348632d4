"""Start a log without its older records from the ledger alone, if this site was given custody and has no source for it.

A ship takes custody from a ledger that arrived over satellite, and has no link for the log itself before the next
berth. Its links have ``containers: aboard`` and ``start: latest`` or ``end``, so it does not want older records. The
ledger entry has the marker as stored. The log gets fillers up to the marker, then the marker; then everything before
the marker is deleted. After the marker the bridge appends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Container

from fairlead.errors import FairleadError
from fairlead.kafka.admin import create_logs, raise_unavailable
from fairlead.kafka.client.cluster import Cluster, until_served
from fairlead.kafka.convention import PRODUCER_ID
from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header, verify_crc, zero_base_offset
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records.custody import CustodyEntry
from replication.batch.prepared import POSITION_KEY, Gap, PreparedBatch
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import WITHOUT_PAST, Ledger
from replication.sharing.rules import WorkShare
from replication.states import LogState
from replication.target.appender import TargetAppender
from replication.target.topics import TargetTopics
from topologies.model import Link, Topology

log = logging.getLogger(__name__)


class LedgerBootstrap:
    """Feed markers from the ledger to the appender."""

    name = "the ledger"

    def __init__(self, topology: Topology, site: str, ledger: Ledger, catalog: Catalog, changes: PlanChanges) -> None:
        self._site = site
        self._links = topology.links_to(site)
        self._ledger = ledger
        self._catalog = catalog
        self._changes = changes
        self._appender: TargetAppender | None = None
        self.under_way: set[TopicPartition] = set()

    async def begin_logs(
        self,
        cluster: Cluster,
        appender: TargetAppender,
        carried: Container[TopicPartition],
        here: TargetTopics,
        share: WorkShare,
        topics: Collection[str] | None,
    ) -> None:
        """Start those of ``topics`` (None: all) that this process follows, that the site was given without older
        records, and that no open link carries (``carried``). Add the topics that are created to those ``here``. A log
        whose topic the target refuses to create, or does not serve, is stopped; so is one that cannot be read now.

        Raises:
            FairleadError: the target cannot be reached.
        """
        self._appender = appender
        wanted: dict[TopicPartition, tuple[CustodyEntry, PreparedBatch]] = {}
        given = self._ledger.given
        asked = tuple(given) if topics is None else given.keys() & set(topics)
        for entry in [given[topic] for topic in asked]:
            tp = TopicPartition(entry.log)
            if not share.owns(tp):
                continue
            prepared, is_wanted = marker_of(entry), self._is_wanted(entry)
            if prepared is None or not is_wanted:
                if is_wanted:
                    log.error("%s: the marker in the ledger of %s does not match its entry", tp, entry.granted_by)
                del given[entry.log]
            elif tp not in carried and not (tp in self.under_way and appender.is_busy(tp)):  # else it was stopped
                wanted[tp] = entry, prepared
        missing = {tp.topic: dict[str, str]() for tp in wanted if tp.topic not in here}
        await self._begin_present(appender, [tp for tp in wanted if tp.topic not in missing])
        if not missing:
            return
        refused: dict[str, FairleadError] = {}
        created = await asyncio.to_thread(create_logs, cluster.endpoint, missing, failures=refused)
        raise_unavailable(refused)
        logs = [TopicPartition(topic) for topic in missing.keys() - refused.keys()]
        async for new, late, is_last in until_served(cluster, logs):
            served = [tp for tp in new if tp not in late]
            here.create({tp.topic: 1 for tp in served}, created.intersection(tp.topic for tp in served))
            await self._begin_present(appender, served)
            if is_last:
                refused |= {tp.topic: error for tp, error in late.items()}
        for topic, error in refused.items():
            self._stop(appender, TopicPartition(topic), error)

    async def _begin_present(self, appender: TargetAppender, logs: Collection[TopicPartition]) -> None:
        """Begin logs whose topics the target serves."""
        replicas = [appender.replica(tp, self._catalog.priority(tp.topic)) for tp in logs]
        await appender.load_ends([each for each in replicas if each.trouble is None])
        for replica in replicas:
            if replica.trouble is None:
                try:
                    await self._begin_log(appender, replica.tp)
                except (BrokerError, CorruptBatch) as error:
                    self._stop(appender, replica.tp, error)

    def _stop(self, appender: TargetAppender, tp: TopicPartition, error: FairleadError) -> None:
        replica = appender.replica(tp, self._catalog.priority(tp.topic))
        appender.stop_log(replica, LogState.UNAVAILABLE, error.what, error.hint)

    async def _begin_log(self, appender: TargetAppender, tp: TopicPartition) -> None:
        replica, entry = appender.replicas[tp], self._ledger.given.get(tp.topic)
        if entry is None:
            return  # a newer term, which was read since the plan began, gives the log to another site
        replica.limit = entry.marker_offset + 1
        if replica.is_complete:
            del self._ledger.given[tp.topic]
        elif await appender.has_only_fillers(replica):
            log.info("%s: started at offset %d from the ledger of %s", tp, entry.marker_offset, entry.granted_by)
            self.under_way.add(tp)
            self._submit(tp, max(replica.end, 0))

    def _submit(self, tp: TopicPartition, end: int) -> None:
        entry = self._ledger.given.get(tp.topic)
        prepared = marker_of(entry) if entry is not None else None
        if self._appender is None or prepared is None or end >= prepared.stop:
            self._done(tp)
            return
        replica = self._appender.replicas[tp]
        steps: list[PreparedBatch | Gap] = [prepared]
        if end < prepared.base:
            steps.insert(
                0,
                Gap(end, prepared.base, PRODUCER_ID, prepared.term, prepared.base, prepared.timestamp_ms, POSITION_KEY),
            )
        self._appender.submit_steps(replica, steps, self)

    def _is_wanted(self, entry: CustodyEntry) -> bool:
        """Return whether the entry is the newest, and all links for the log want it without older records."""
        grant = self._ledger.custody.grant(entry.log)
        if grant is None or (grant.term, grant.to_site) != (entry.term, self._site):
            return False
        takers = [each for each in self._links if self._catalog.may_carry(each, entry.log)]
        return bool(takers) and all(_is_without_past(each, entry.log) for each in takers)

    def _done(self, tp: TopicPartition) -> None:
        self.under_way.discard(tp)
        self._ledger.given.pop(tp.topic, None)

    def _plan_again(self, tp: TopicPartition) -> None:
        self.under_way.discard(tp)
        self._changes.add([tp.topic])

    # ---- called by the appender

    def rewind(self, tp: TopicPartition, end: int) -> None:
        if tp not in self.under_way:
            return
        if self._appender is not None and self._appender.replicas[tp].filled == end:
            self._submit(tp, end)
        else:  # another client may have started it: the next plan decides again
            self._plan_again(tp)

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None:
        entry = self._ledger.given.get(tp.topic)
        if entry is not None and prepared.stop > entry.marker_offset:
            self._done(tp)
        elif self._appender is not None and not self._appender.is_busy(tp):  # a newer term came meanwhile
            self._plan_again(tp)

    def on_damaged(self, tp: TopicPartition, cause: str) -> None:
        log.error("%s: the marker of its ledger: %s", tp, cause)
        self._done(tp)


def _is_without_past(link: Link, topic: str) -> bool:
    return link.start in WITHOUT_PAST and link.streams.get(topic.partition(".")[0]) == "aboard"


def marker_of(entry: CustodyEntry) -> PreparedBatch | None:
    """Return the marker in an entry, ready to be appended; None if it does not match the entry."""
    data = memoryview(bytearray(entry.marker_batch))
    try:
        header = parse_header(data) if len(data) >= HEADER_BYTES else None
    except FairleadError:
        header = None
    if (
        header is None
        or header.size != len(data)
        or not verify_crc(data)
        or (header.producer_id, header.producer_epoch, header.base_sequence, header.count)
        != (PRODUCER_ID, entry.term, 0, 1)
    ):
        return None
    zero_base_offset(data)
    at = entry.marker_offset
    return PreparedBatch(at, at + 1, data, header.crc, PRODUCER_ID, entry.term, at, header.max_timestamp)
