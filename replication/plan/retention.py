"""Delete records that a site keeps no longer, once every site that keeps them longer has confirmed that it has them.

Kafka's own time retention would empty a log whose records are all old, and an emptied log loses its producer state at
the next restart (docs/append-convention.md). So logs have ``retention.ms=-1``, and the replicator deletes what the
site's retention in the topology no longer covers, never the last batch. Age is counted back from the log's newest
record, not from the wall clock, so a log that waits for its ship keeps its records. A record from the future counts as
one of now.

The same rule applies to logs that the site holds and to copies. A site also keeps what it needs for its own work: the
log of a container that it holds, back to the beginning of its term, and the arrivals of ships that are at a berth.
``topologies.retention`` says which sites keep a log
longer, ``replication.plan.ends`` what they confirm.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch
from fairlead.kafka.protocol.types import ProducerState, TopicPartition, partitions_of
from fairlead.names import parse_log
from replication.batch.header_rewrite import is_ordinary
from replication.custody.ledger import Ledger
from replication.overrides import OverrideKind
from replication.plan.ends import NOTHING, EndsReader, EndsWriter, shared_end, term_of
from replication.sharing.rules import WorkShare
from replication.states import LogState, now
from topologies.model import Topology
from topologies.retention import NOBODY, KeeperGraph, Keepers

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 600.0
SETTLED_SECONDS: Final = 300.0  # a log counts so long after this process took it over: it knows its state by then
SWEEP_AT_ONCE: Final = 1000  # logs in a request
BREATH: Final = 500
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_SAMPLE: Final = 20  # logs of which a batch is read, to estimate bytes
_SAMPLE_BYTES: Final = 256 << 10

DOUBTFUL: Final = frozenset(
    {LogState.SOURCE_TRUNCATED, LogState.SOURCE_RECREATED, LogState.DIVERGED, LogState.REBUILDING, LogState.MISPLACED}
)
"""States in which a copy may have other records than the log: nothing of it is confirmed to other sites."""


class RetentionCut(NamedTuple):
    """What retention does with a log: records before ``before`` go, and ``waits_for`` holds up the rest."""

    before: int
    waits_for: tuple[str, ...]


def decide_cut(expired: int, confirmed: Mapping[str, int]) -> RetentionCut:
    """Decide how far a log is cut.

    Args:
        expired: Records before this offset are older than the site keeps them.
        confirmed: By site that must have them first, the offset before which it has every record.
    """
    late = tuple(sorted(site for site, end in confirmed.items() if end < expired))
    return RetentionCut(min((expired, *confirmed.values())), late)


def newest_timestamp(states: Iterable[ProducerState]) -> int | None:
    """Time of the newest batch appended under the convention; None if the broker knows none."""
    ours = [s.last_timestamp for s in states if not is_ordinary(s.producer_id)]
    return max((moment for moment in ours if moment >= 0), default=None)


@dataclass(slots=True)
class Delay:
    """How much one site holds up: logs, records, and an estimate of their bytes in one copy."""

    logs: int = 0
    records: int = 0
    bytes: int = 0
    example: str = ""


@dataclass(slots=True)
class Swept:
    """What one sweep did: the new starts of logs that were cut, and by site what it holds up."""

    cut: dict[TopicPartition, int] = field(default_factory=dict)
    delays: dict[str, Delay] = field(default_factory=dict)


Confirmed = Callable[[TopicPartition, int], Mapping[str, int]]
"""Returns, for a log whose last batch here has this term, what ``decide_cut`` needs."""


async def delete_expired(
    cluster: Cluster,
    kept_ms: Mapping[TopicPartition, int],
    confirmed: Confirmed = lambda tp, term: {},
    needed: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Swept:
    """Delete records older than their log's retention and confirmed elsewhere, except the last batch.

    Args:
        needed: Offsets from which this site itself needs a log, whatever its age.

    Raises:
        FairleadError: the cluster cannot be asked, or refuses.
    """
    swept = Swept()
    late: dict[str, dict[TopicPartition, tuple[int, int]]] = {}  # by site: offsets that it holds up
    every = list(kept_ms)
    for first in range(0, len(every), SWEEP_AT_ONCE):
        logs = every[first : first + SWEEP_AT_ONCE]
        before: dict[TopicPartition, int] = {}
        for tp, (start, old, term) in (await _find_expired(cluster, {tp: kept_ms[tp] for tp in logs})).items():
            expired = min(old, needed.get(tp, old))
            if expired <= start:
                continue
            ends = confirmed(tp, term)
            cut = decide_cut(expired, ends)
            if cut.before > start:
                before[tp] = cut.before
            for site in cut.waits_for:
                late.setdefault(site, {})[tp] = max(start, ends[site]), expired
        if before:
            done = await cluster.delete_records(before)
            swept.cut |= {tp: start for tp, start in done.items() if isinstance(start, int)}
    for site, held in late.items():
        records = sum(stop - start for start, stop in held.values())
        size = round(records * await _bytes_of_record(cluster, {tp: start for tp, (start, _) in held.items()}))
        swept.delays[site] = Delay(len(held), records, size, str(min(held)))
    return swept


async def _find_expired(
    cluster: Cluster, kept_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int, int]]:
    """Return the logs with records that are too old: start, the end of these records, and the last batch's term.

    A log that cannot be asked now is left out.
    """
    states = {
        tp: found for tp, found in (await cluster.describe_producers(list(kept_ms))).items() if isinstance(found, tuple)
    }
    newest: dict[TopicPartition, int | BrokerError] = {}
    ask: list[TopicPartition] = []
    for tp, producers in states.items():
        moment = newest_timestamp(producers)
        if moment is None or any(is_ordinary(each.producer_id) for each in producers):
            ask.append(tp)  # ordinary clients write it, or did
        else:
            newest[tp] = moment
    if ask:
        newest |= await cluster.newest_times(ask)
    # A writer whose clock is ahead must not make everything before its record old, nor must this machine's clock.
    present = int(time.time() * 1000)
    times = {tp: min(found, present) for tp, found in newest.items() if isinstance(found, int) and found >= 0}
    wanted = {tp: moment - kept_ms[tp] for tp, moment in times.items() if moment > kept_ms[tp]}
    if not wanted:
        return {}
    offsets = await cluster.offsets_at(wanted)
    starts, ends = await cluster.start_offsets(list(wanted)), await cluster.end_offsets(list(wanted))
    out: dict[TopicPartition, tuple[int, int, int]] = {}
    for tp in wanted:
        offset, start, end = offsets[tp], starts[tp], ends[tp]
        if isinstance(offset, int) and isinstance(start, int) and isinstance(end, int):
            expired = min(offset, end - 1)
            if expired > start:
                out[tp] = start, expired, term_of(states[tp])
    return out


async def _bytes_of_record(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> float:
    """Estimate the stored bytes of a record, from some batches of some of these logs; 1 if none can be read. What
    follows a damaged header in a log is left out."""
    some = {tp: positions[tp] for tp in sorted(positions)[:: max(1, len(positions) // _SAMPLE)][:_SAMPLE]}
    size = count = 0
    for content in (await cluster.fetch(some, max_wait_ms=0, partition_max_bytes=_SAMPLE_BYTES)).values():
        with contextlib.suppress(CorruptBatch):
            for view in split(content.records):
                size += view.stop - view.start
                count += view.header.next_offset - view.header.base_offset
    return size / count if count else 1.0


class RetentionKeeper:
    """Applies a site's retention: reads and writes confirmations, deletes, and remembers who holds up what.

    Args:
        here: The site's topics, with their number of partitions.
        holder: The site that appends to a topic, as far as it is known.
        doubtful: The logs in a state of ``DOUBTFUL``.
        share: The logs that this process takes care of. Only that process knows which of them are doubtful.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        ledger: Ledger,
        here: Callable[[], Mapping[str, int]],
        holder: Callable[[str], str | None],
        doubtful: Callable[[], Collection[TopicPartition]],
        share: WorkShare,
    ) -> None:
        self._share = share
        self._topology = topology
        self._site = site
        self._ledger = ledger
        self._here = here
        self._holder = holder
        self._doubtful = doubtful
        graph = KeeperGraph(topology)
        self._graph = graph
        self._confirmed_streams = graph.confirmed_streams(site)
        self._reader = EndsReader(sorted({*graph.awaited(site), site}))
        self._keepers: dict[str, Keepers] = {}
        self._delays: dict[str, Delay] = {}
        self._since: dict[str, dt.datetime] = {}
        self._swept: dt.datetime | None = None

    async def run(self, cluster: Cluster) -> None:
        """Apply retention every ``SWEEP_SECONDS`` until cancelled; a failure is retried the next time."""
        await self._ledger.ready.wait()
        writer = EndsWriter(self._site, cluster, self._share)
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                try:
                    await self.sweep(cluster, writer)
                except FairleadError as error:
                    log.warning("retention: %s", error.what)
        finally:
            await writer.close()

    async def sweep(self, cluster: Cluster, writer: EndsWriter) -> Swept:
        """Read what others confirm, confirm what is here, and delete.

        Raises:
            FairleadError: the site's Kafka cannot be asked, or refuses.
        """
        here, since = self._here(), time.monotonic() - SETTLED_SECONDS
        await self._reader.read(cluster, here)
        if self._confirmed_streams:
            logs = [tp for tp in self._own(_logs(here), since) if tp.topic.partition(".")[0] in self._confirmed_streams]
            await writer.confirm(
                logs,
                self._reader.ends,
                doubtful={*self._doubtful(), *self._undecided(logs)},
                limits=self._failovers(logs),
                is_own=lambda tp: self._share.owned_since(tp, since),
            )
        limits = retention_limits(self._topology, self._site, here, self._holder)
        limits = {tp: limits[tp] for tp in self._own(limits, since)}
        for number, tp in enumerate(limits):
            if number % BREATH == 0:
                await asyncio.sleep(0)  # the first sweep over 10,000 logs must not delay other tasks
            self._keepers_of(tp.topic)
        swept = await delete_expired(cluster, limits, self._confirmed, self._needed(limits))
        if swept.cut:
            log.info("retention: deleted the oldest records of %d logs", len(swept.cut))
        self._remember(swept)
        return swept

    def _own(self, logs: Iterable[TopicPartition], since: float) -> list[TopicPartition]:
        """Return the logs that this process has taken care of since then, without a break."""
        return [tp for tp in logs if self._share.owned_since(tp, since)]

    def snapshot(self) -> dict[str, Any]:
        """Return the time of the last sweep, and the sites that hold up deletions; JSON-ready.

        ``waits_for`` has by site: logs, records, bytes (an estimate from some batches, of one copy), since, and an
        example of the logs.
        """
        return {
            "swept": self._swept.isoformat(timespec="milliseconds") if self._swept else None,
            "waits_for": {
                site: {
                    "logs": each.logs,
                    "records": each.records,
                    "bytes": each.bytes,
                    "example": each.example,
                    "since": self._since[site].isoformat(timespec="milliseconds"),
                }
                for site, each in sorted(self._delays.items())
            },
        }

    def _remember(self, swept: Swept) -> None:
        for site in swept.delays.keys() - self._delays.keys():
            self._since[site] = now()
            delay = swept.delays[site]
            log.warning("retention: %d logs keep %d old records until %s has them", delay.logs, delay.records, site)
        for site in self._delays.keys() - swept.delays.keys():
            del self._since[site]
        self._delays, self._swept = swept.delays, now()

    def _keepers_of(self, topic: str) -> Keepers:
        if topic not in self._keepers:
            name = parse_log(topic)
            self._keepers[topic] = self._graph.keepers(self._site, name) if name is not None else NOBODY
        return self._keepers[topic]

    def _confirmed(self, tp: TopicPartition, term: int) -> dict[str, int]:
        """Return how far each site that must have it has a log."""
        found: dict[str, int] = {}
        for keeper in self._keepers_of(tp.topic).wanted(self._holder(tp.topic)):
            theirs = self._reader.ends.of(keeper).get(str(tp), NOTHING)
            known = self._ledger.custody.term(tp.topic) or 0
            found[keeper] = shared_end(theirs, term, known, self._ledger.custody.seizures(tp.topic))
        return found

    def _needed(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where this site itself needs logs from: the events that say which ships are at a berth, and the log
        of a container that it holds back to where its term began, because a stray is drained once only."""
        found = {}
        for tp in logs:
            grant = self._ledger.custody.grant(tp.topic)
            if grant is not None and grant.to_site == self._site:
                found[tp] = grant.drained_since
        events = TopicPartition(f"events.{self._site}")
        if events in logs and (first := self._ledger.berths.needed_from) is not None:
            found[events] = first
        return found

    def _undecided(self, logs: Sequence[TopicPartition]) -> set[TopicPartition]:
        """Return the logs that an order may have failed over that cannot be read."""
        if self._ledger.overrides.unread is None:
            return set()
        return {tp for tp in logs if self._holder(tp.topic) is None}

    def _failovers(self, logs: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs were failed over: this site's own records from there on are not the old writer's."""
        orders = self._ledger.overrides
        if not any(True for _ in orders.releases()):
            return {}
        released = {tp: orders.released(str(tp)) for tp in logs}
        return {
            tp: order.stop or 0
            for tp, order in released.items()
            if order is not None and order.kind is OverrideKind.FAILOVER
        }


def _logs(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [tp for topic, count in topics.items() for tp in partitions_of(topic, count)]


def retention_limits(
    topology: Topology, site: str, topics: Mapping[str, int], holder: Callable[[str], str | None]
) -> dict[TopicPartition, int]:
    """Return the logs that the site does not keep for ever, with their retention in milliseconds.

    ``topics`` are the site's, with their number of partitions; ``holder`` returns the site that appends to a log.
    """
    out: dict[TopicPartition, int] = {}
    spec = topology.sites[site]
    for topic, partitions in topics.items():
        name = parse_log(topic)
        if name is None or name.stream not in topology.streams:
            continue
        kept = spec.own_retention_of(name.stream) if holder(topic) == site else spec.retention_of(name.stream)
        if kept != dt.timedelta.max:
            out |= dict.fromkeys(_logs({topic: partitions}), kept // _MILLISECOND)
    return out
