"""Rebuild copies that a seizure has cut off (docs/replication.md, "Custody and seizure").

Such a copy has records that are no longer part of the log. The copy is deleted once this site's bridge reports in its
ledger that it has kept them as strays, and a source has the current log. Then the log is copied like any new one, so a
crash at any moment does no harm. Without the report the copy stays ``diverged``. It also stays ``diverged`` if the
source has another record right before the cut: then an earlier seizure, not known here yet, cut off more.

A source must have the current log and everything that was here before the cut. If two copies have the same record at
an offset, they have the same records before it, because an append is accepted only after records that its writer knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.custody.superseded import Copy, Stale, batches_at, copies
from fairlead.custody.view import CustodyView, Seizure
from fairlead.errors import FairleadError, UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_ours, marker_offset
from fairlead.kafka.protocol.batch import Buffer, parse_header
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch
from fairlead.kafka.protocol.types import TP, TopicPartition
from replication.batch.batch_diff import conflict
from replication.batch.prepared import same_marker
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.link.source_link import SourceLink
from replication.states import LogState, LogTrouble
from replication.target.appender import TargetAppender

log = logging.getLogger(__name__)


async def find_sources(
    source: Cluster, target: Cluster, view: CustodyView, logs: Mapping[TP, Stale], starts: Mapping[TP, int]
) -> tuple[set[TP], dict[TP, str]]:
    """Return the logs that a source can give back, and why it cannot give others.

    Args:
        logs: The stale parts of the target's copies.
        starts: Where these copies start. One that starts at its cut has nothing before it to lose.
    """
    site = source.endpoint.site
    try:
        begins = await _current_at(source, view, logs)
        good = {tp for tp in begins if starts.get(tp, 0) >= logs[tp].cut}
        joined = {tp for tp, begin in begins.items() if tp not in good and begin <= starts.get(tp, 0)}
        same, damaged = await common_at(source, target, {tp: logs[tp].cut - 1 for tp in joined})
    except FairleadError as error:
        log.info("%s: looking for logs that were seized: %s", site, error.what)
        return set(), {}
    bad = {
        tp: f"no source has its offsets {starts.get(tp, 0)}..{min(begin, logs[tp].cut) - 1} any more"
        for tp, begin in begins.items()
        if tp not in good and tp not in joined
    }
    for tp in joined - same - damaged.keys():
        bad[tp] = (
            f"its record at offset {logs[tp].cut - 1} differs from the one at {site}: an earlier seizure, whose ledger "
            "has not arrived here yet, may have cut off more records"
        )
    return good | same, bad | {tp: error.what for tp, error in damaged.items()}


async def _current_at(source: Cluster, view: CustodyView, logs: Collection[TP]) -> dict[TP, int]:
    """Return the start of those logs at a source that are current, beyond the newest seizure.

    An older seizure's marker may have a higher offset, if the newer seizure was made from a shorter copy.
    """
    there = await copies(source, view, [tp.topic for tp in logs])
    good = [
        tp
        for tp in logs
        if isinstance(copy := there.get(tp.topic), Copy)
        and copy.stale is None
        and copy.end > view.seizures(tp.topic)[-1].marker
    ]
    return offsets_only(await source.start_offsets(good)) if good else {}


async def common_at(
    source: Cluster, target: Cluster, offsets: Mapping[TP, int]
) -> tuple[set[TP], dict[TP, CorruptBatch]]:
    """Return the logs of which both sites have the same record at the given offset, and those damaged there.

    Raises:
        BrokerError, ConnectionLost: one of them cannot be asked.
    """
    same: set[TP] = set()
    damaged: dict[TP, CorruptBatch] = {}
    if not offsets:
        return same, damaged
    there, here = await batches_at(source, offsets), await batches_at(target, offsets)
    for tp in there.keys() & here.keys():
        one, other = there[tp], here[tp]
        if isinstance(one, CorruptBatch):
            damaged[tp] = one
        elif isinstance(other, CorruptBatch):
            damaged[tp] = other
        elif same_at(offsets[tp], one, other):
            same.add(tp)
    return same, damaged


def same_at(offset: int, source: Buffer, target: Buffer) -> bool:
    """Return whether two stored batches show that both copies are the same at ``offset``.

    Equal bytes do. A batch that was rebuilt on its way has other bytes: then both must contain the offset, in one term
    with one marker, and must not contradict each other. The last alone is no proof, since a filler agrees with every
    record.
    """
    there, here = parse_header(source), parse_header(target)
    if (there.base_offset, there.crc) == (here.base_offset, here.crc):
        return True
    return (
        all(each.base_offset <= offset < each.next_offset and is_ours(each) for each in (there, here))
        and there.producer_epoch == here.producer_epoch
        and same_marker(marker_offset(there), marker_offset(here))
        and not conflict(source, target)
    )


def offsets_only(found: Mapping[TP, int | BrokerError]) -> dict[TP, int]:
    """Return the offsets in an answer, without logs that have an error."""
    return {tp: each for tp, each in found.items() if isinstance(each, int)}


EVERY: Final = 1.0  # seconds between two searches for sources
GONE_SECONDS: Final = 30.0
_DIFFERENT: Final = (
    LogState.DIVERGED,
    LogState.MISPLACED,
    LogState.SOURCE_TRUNCATED,
)  # states that a seizure may explain
_OLD: Final = (LogState.REBUILDING, LogState.SOURCE_RECREATED)  # states that end once the copy is current


class RebuildSources(NamedTuple):
    """Links whose sources can give a copy back, and the stale part that it had when they were asked."""

    stale: Stale
    links: frozenset[str]


class Rebuilder:
    """Rebuilds copies of one target that seizures cut off. Logs with moving custody have one partition."""

    def __init__(self, site: str, ledger: Ledger, source_links: Sequence[SourceLink], catalog: Catalog) -> None:
        self._site = site
        self._catalog = catalog
        self._ledger = ledger
        self._custody = ledger.custody
        self._source_links = source_links
        self._stale: dict[TopicPartition, tuple[Stale, frozenset[str]]] = {}  # with the links that carry them
        self._rebuild_from: dict[TopicPartition, RebuildSources] = {}
        self._why: dict[TopicPartition, str] = {}  # why no source can give it back
        self._sound: dict[TopicPartition, int] = {}  # copies that have this newest seizure's term
        self._retried: dict[TopicPartition, int] = {}  # term of the seizure that made an old difference worth a look
        self._begin: dict[TopicPartition, tuple[frozenset[str], int]] = {}  # links to copy from, up to which offset

    def seized_topics(self, here: Container[str], topics: Collection[str] | None) -> list[str]:
        """Return those of ``topics`` (None: all) that this site has and that were ever seized."""
        seized = self._custody.seized()
        return [topic for topic in (seized if topics is None else seized & set(topics)) if topic in here]

    def rebuild_links(self, tp: TopicPartition, end: int, source_links: Sequence[SourceLink]) -> Sequence[SourceLink]:
        """Return the links over which a log is rebuilt: not every source has its whole past."""
        links, until = self._begin.get(tp, (frozenset(), 0))
        chosen = [source_link for source_link in source_links if source_link.name in links]
        if end > until:
            self._begin.pop(tp, None)
        return chosen if chosen and end <= until else source_links

    async def stop_stale_copies(
        self,
        cluster: Cluster,
        appender: TargetAppender,
        logs: Mapping[TopicPartition, frozenset[str]],
        topics: Container[str] | None,
    ) -> set[TopicPartition]:
        """Stop copies that are no longer the log, before anything is fetched for them.

        Args:
            logs: The seized logs among those that are planned, with the links that may carry them.
            topics: The topics that are planned; None stands for all.

        Returns:
            Logs to retry, because the ledger now explains their difference.
        """
        kept = {tp for tp in self._stale if topics is not None and tp.topic not in topics}
        self._stale = {tp: each for tp, each in self._stale.items() if tp in logs or tp in kept}
        asked = [tp for tp in logs if self._sound.get(tp) != self._newest(tp).term]
        try:
            found = await copies(cluster, self._custody, [tp.topic for tp in asked]) if asked else {}
        except FairleadError as error:  # other logs need not wait; a fetcher compares again anyway
            log.warning("checking copies of seized logs: %s", error.what)
            return set()
        again = set()
        for tp in asked:
            copy = found.get(tp.topic)
            if isinstance(copy, CorruptBatch):  # looked at again, as when the cluster cannot be asked
                log.warning("checking copies of seized logs: %s", copy.what)
            elif copy is not None and copy.stale is not None:
                self._stale[tp] = copy.stale, logs[tp]
                self._stop(appender, tp, copy.stale)
            elif self._is_sound(appender, tp, copy):
                again.add(tp)
        return again

    def _is_sound(self, appender: TargetAppender, tp: TopicPartition, copy: Copy | None) -> bool:
        """Record that a copy is current; True if its trouble is out of date."""
        self._stale.pop(tp, None)
        newest = self._newest(tp).term
        if copy is not None and copy.end > self._newest(tp).marker:
            self._sound[tp] = newest
        if tp.topic in self._ledger.splits:
            return False
        replica = appender.replicas.get(tp)
        trouble = replica.trouble if replica is not None else None
        states = {trouble.state} if trouble is not None else set()
        of_links = [source_link.logs.troubles for source_link in self._source_links]
        states |= {troubles[tp].state for troubles in of_links if tp in troubles}
        again = not states.isdisjoint(_OLD)
        if not states.isdisjoint(_DIFFERENT):
            again |= self._retried.get(tp) != newest
            self._retried[tp] = newest
        return again

    def _stop(self, appender: TargetAppender, tp: TopicPartition, stale: Stale) -> None:
        state, cause = self._state_and_cause(tp, stale)
        replica = appender.replica(tp, self._catalog.priority(tp.topic))
        if replica.trouble is None or replica.trouble.state is not state:
            appender.stop_log(replica, state, cause)
        elif replica.trouble.cause != cause:
            replica.trouble = LogTrouble(state, cause, replica.trouble.since)

    def _state_and_cause(self, tp: TopicPartition, stale: Stale) -> tuple[LogState, str]:
        story = self._describe_stale(tp, stale)
        if not self._is_reported(tp, stale):
            return LogState.DIVERGED, f"{story}; this site's bridge has not kept them as strays yet"
        why = self._why.get(tp)
        if why:
            return LogState.DIVERGED, f"{story}; not rebuilt automatically, because {why}"
        return LogState.REBUILDING, f"being rebuilt: {story}, and this site keeps them as strays"

    def _describe_stale(self, tp: TopicPartition, stale: Stale) -> str:
        by = self._cut(tp, stale)
        if by is None:
            return (
                f"none of its records up to {stale.end} are part of the log: a bridge that had been suspended appended "
                "them to an empty copy"
            )
        return (
            f"after the seizure by {by.to_site} at offset {by.marker} its records up to {stale.end} are of older terms "
            f"than {by.term}"
        )

    # ---- which source can give it back

    async def run(self, cluster: Cluster, changes: PlanChanges) -> None:
        """Search for sources of stale copies until cancelled; have these copies planned again if there is news."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                if await self.find_rebuild_sources(cluster):
                    changes.add(tp.topic for tp in self._stale)
            except FairleadError as error:
                log.info("copies to rebuild: %s", error.what)

    async def find_rebuild_sources(self, cluster: Cluster) -> bool:
        """Search once for sources of copies that this site's bridge has reported; True if the result changed.

        Raises:
            FairleadError: the target does not answer.
        """
        wanted = {tp: each for tp, each in self._stale.items() if self._is_reported(tp, each[0])}
        if not wanted:
            return False
        starts = offsets_only(await cluster.start_offsets(wanted))
        whole: dict[TopicPartition, set[str]] = {tp: set() for tp in wanted}
        why: dict[TopicPartition, str] = {}
        for source_link in self._source_links:
            logs = {tp: stale for tp, (stale, links) in wanted.items() if source_link.name in links}
            if logs and source_link.cluster is not None:
                good, bad = await find_sources(source_link.cluster, cluster, self._custody, logs, starts)
                why |= bad
                for tp in good:
                    whole[tp].add(source_link.name)
        before = dict(self._rebuild_from), dict(self._why)
        self._rebuild_from = {
            tp: RebuildSources(wanted[tp][0], frozenset(links)) for tp, links in whole.items() if links
        }
        self._why = {tp: each for tp, each in why.items() if tp not in self._rebuild_from}
        return bool(self._rebuild_from) or before != (self._rebuild_from, self._why)

    # ---- the deletion

    async def delete_stale_copies(self, cluster: Cluster, appender: TargetAppender) -> list[str]:
        """Delete the copies that a source can give back, if they are still as reported. Return their topics.

        Deletes by topic id, which is asked for before the copy is checked: another replicator of this target may have
        created the topic again meanwhile.

        Raises:
            FairleadError: the target does not answer.
        """
        ready = {
            tp: rebuild_from
            for tp, rebuild_from in self._rebuild_from.items()
            if tp in self._stale and not appender.is_busy(tp)
        }
        if not ready:
            return []
        self._rebuild_from = {}
        topics = await cluster.topics([tp.topic for tp in ready], refresh=True)
        here = await copies(cluster, self._custody, [tp.topic for tp in ready])
        gone = []
        for tp, rebuild_from in ready.items():
            copy = here.get(tp.topic)
            if tp.topic not in topics or not isinstance(copy, Copy) or copy.stale != rebuild_from.stale:
                continue
            if not self._is_reported(tp, rebuild_from.stale):
                continue
            topic_id = topics[tp.topic].topic_id
            try:
                if not await cluster.delete_topic(topic_id):
                    log.info("%s: another replicator has deleted this copy; checked again", tp)
                    continue
                await until_gone(cluster, tp.topic, topic_id)
            except FairleadError as error:
                log.warning("%s: cannot delete this copy to rebuild it: %s", tp, error.what)
                continue  # retried; other logs need not wait
            gone.append(tp.topic)
            self._stale.pop(tp, None)
            self._begin[tp] = rebuild_from.links, rebuild_from.stale.cut
            if tp in appender.replicas:
                appender.replicas[tp].reset()
            log.warning(
                "%s: rebuilding this site's copy: %s; readings that only this site has are kept in %s",
                tp,
                self._describe_stale(tp, rebuild_from.stale),
                self._ledger.returned[tp.topic].strays_log,
            )
        return gone

    # ---- status

    def waiting_logs(
        self,
        carried: Container[TopicPartition],
        holder: Callable[[str], str | None],
        topics: Container[str] | None,
    ) -> dict[TopicPartition, LogTrouble]:
        """Return the logs whose every source was cut off by a seizure or exceeds its right to write, without logs that
        this site itself seized or holds."""
        return {
            tp: trouble
            for source_link in self._source_links
            if source_link.is_up
            for tp, trouble in (
                *source_link.logs.cut_off.items(),
                *((tp, each) for tp, (_, each) in source_link.logs.beyond.items()),
            )
            if (topics is None or tp.topic in topics)
            and tp not in carried
            and self._site not in (holder(tp.topic), *(each.to_site for each in self._custody.seizures(tp.topic)))
        }

    # ---- helpers

    def _newest(self, tp: TopicPartition) -> Seizure:
        return self._custody.seizures(tp.topic)[-1]

    def _cut(self, tp: TopicPartition, stale: Stale) -> Seizure | None:
        """Return the seizure that cut this copy off; None if the copy was never the log."""
        return next((each for each in self._custody.seizures(tp.topic) if each.marker == stale.cut), None)

    def _is_reported(self, tp: TopicPartition, stale: Stale) -> bool:
        """Return whether this site's bridge reported that it kept everything beyond the cut."""
        entry = self._ledger.returned.get(tp.topic)
        return entry is not None and (entry.term, entry.marker_offset, entry.end_offset) == (
            stale.newest,
            stale.cut,
            stale.end,
        )


async def until_gone(cluster: Cluster, topic: str, topic_id: bytes) -> None:
    """Wait until the brokers no longer list the topic with this id: otherwise a new one could be mistaken for it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GONE_SECONDS
    while (there := (await cluster.topics([topic], refresh=True)).get(topic)) is not None:
        if there.topic_id != topic_id:
            return
        if loop.time() > deadline:
            raise UnavailableError(f"{topic} is not gone after {GONE_SECONDS:.0f} s", hint="it is retried")
        await asyncio.sleep(0.05)
