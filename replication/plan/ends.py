"""Confirm the ends of this site's logs in ``ends.<site>``, and read what other sites confirm in theirs.

A site learns what another one has only from these records, as links bring them here; it never asks, and never guesses.
A site without an entry has confirmed nothing. The newest entry of a log counts, also if it is smaller than an earlier
one: a copy that is made again has to be confirmed again.

An entry names a log's end and the term of its last batch. After a seizure two sites may have different records at one
offset until the ledger has reached both, so an end counts only as far as both histories are the same (``shared_end``).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from fairlead.custody.view import Seizure
from fairlead.errors import FairleadError
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, sweep
from fairlead.kafka.convention import PRODUCER_ID, is_data, is_filler, marker_record
from fairlead.kafka.protocol.errors import Conflict
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import ProducerState, TopicPartition
from fairlead.records import UNREADABLE, decoder, encode
from fairlead.records.custody import Marker
from fairlead.records.ends import EndsEntry, LogEnd
from replication.sharing.rules import WorkShare
from topologies.model import ENDS, ENDS_RETENTION

log = logging.getLogger(__name__)

AT_ONCE: Final = 1000  # logs in an entry, and in a request
WHOLE_LIST_MS: Final = int(ENDS_RETENTION.total_seconds() * 1000) // 4
RIVALS: Final = 20  # attempts to append beside other writers of the log
NOTHING: Final = LogEnd(0, 0)
_entries = decoder(EndsEntry)


def term_of(states: Sequence[ProducerState]) -> int:
    """Return the term of a log's newest batch under the convention; 0 if the broker knows none."""
    return max((each.epoch for each in states if each.producer_id == PRODUCER_ID), default=0)


def shared_end(theirs: LogEnd, term: int, known_term: int, seizures: Sequence[Seizure]) -> int:
    """Return the offset before which another site has the same records as this one.

    Args:
        theirs: What the other site confirms.
        term: The term of the last batch of this site's copy.
        known_term: The newest term of the log in this site's ledgers; 0 without one.
        seizures: The seizures of the log in this site's ledgers.
    """
    if theirs.term == term:
        return theirs.end
    if max(theirs.term, term) > known_term:
        return 0  # a seizure that is not known here yet may lie between the two terms
    between = sorted((term, theirs.term))
    apart = [each.marker for each in seizures if between[0] < each.term <= between[1]]
    return min((theirs.end, *apart))


class SiteEnds:
    """What sites have confirmed. Pure; apply entries in the order of their log."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, LogEnd]] = {}
        self._listed_ms: dict[str, int] = {}

    def apply(self, site: str, entry: EndsEntry, timestamp_ms: int) -> None:
        """Apply an entry of ``ends.<site>``; one that names another site is ignored."""
        if entry.site != site:
            log.error("%s.%s has an entry that names %s; it is ignored", ENDS, site, entry.site)
            return
        # The same names come from many sites, and again in every list: each is kept once.
        self._ends.setdefault(site, {}).update((sys.intern(name), end) for name, end in entry.ends.items())
        if entry.part and entry.part == entry.parts:
            self._listed_ms[site] = timestamp_ms

    def forget(self, site: str) -> None:
        """Forget a site's confirmations, because its log began again, or entries are missing."""
        self._ends.pop(site, None)
        self._listed_ms.pop(site, None)

    def of(self, site: str) -> Mapping[str, LogEnd]:
        """Return the newest end of each log that a site has confirmed."""
        return self._ends.get(site, {})

    def listed_ms(self, site: str) -> int | None:
        """Return when a site last completed a list of all its logs, in ms since 1970; None if it never did."""
        return self._listed_ms.get(site)


def changed_ends(confirmed: Mapping[str, LogEnd], actual: Mapping[str, LogEnd]) -> dict[str, LogEnd]:
    """Return the ends to confirm: new ones, others, and ``NOTHING`` for logs that are not here any more."""
    gone = {name: NOTHING for name, there in confirmed.items() if name not in actual and there != NOTHING}
    return {name: end for name, end in actual.items() if confirmed.get(name, NOTHING) != end} | gone


def entries(site: str, ends: Mapping[str, LogEnd], *, whole: bool) -> Iterator[EndsEntry]:
    """Yield the entries for these ends, each with at most ``AT_ONCE`` logs. ``whole``: they are a list of all."""
    names = sorted(ends)
    parts = [names[first : first + AT_ONCE] for first in range(0, len(names), AT_ONCE)] or [[]]
    for number, part in enumerate(parts, 1):
        some = {name: ends[name] for name in part}
        yield EndsEntry(site=site, ends=some, part=number if whole else 0, parts=len(parts) if whole else 0)


class EndsReader:
    """Reads ``ends.<site>`` of these sites, as they are at this one. ``ends`` has what they say."""

    def __init__(self, sites: Collection[str]) -> None:
        self.ends = SiteEnds()
        self._topics = [f"{ENDS}.{site}" for site in sites]
        self._positions: dict[TopicPartition, int] = {}
        self._ids: dict[str, bytes] = {}

    async def read(self, cluster: Cluster, here: Collection[str]) -> None:
        """Read what is new. ``here``: the site's topics.

        Raises:
            FairleadError: a log cannot be read. Call ``read`` again; no entry is lost.
        """
        topics = [topic for topic in self._topics if topic in here]
        for topic, info in (await cluster.topics(topics, refresh=True)).items() if topics else ():
            if self._ids.setdefault(topic, info.topic_id) != info.topic_id:
                self._begin_again(topic, info.topic_id)
        found = await extents(cluster, [TopicPartition(topic) for topic in topics])
        for tp, extent in found.items():
            if self._positions.get(tp, 0) > extent.end:
                self._begin_again(tp.topic, self._ids[tp.topic])
        wanted = {
            tp: extent._replace(start=max(extent.start, self._positions.get(tp, 0))) for tp, extent in found.items()
        }
        async for tp, records in sweep(cluster, wanted):
            site = tp.topic.removeprefix(f"{ENDS}.")
            for record in records:
                self._positions[tp] = record.offset + 1
                if is_filler(record):
                    self.ends.forget(site)  # what is missing may have taken a confirmation back
                if record.value is None or not is_data(record):
                    continue
                try:
                    self.ends.apply(site, _entries.decode(record.value), record.timestamp_ms)
                except UNREADABLE as error:
                    log.warning("%s at offset %d cannot be decoded: %s", tp, record.offset, error)

    def _begin_again(self, topic: str, topic_id: bytes) -> None:
        log.warning("reading %s again from its start: it was created again, or lost records", topic)
        self._ids[topic] = topic_id
        self._positions.pop(TopicPartition(topic), None)
        self.ends.forget(topic.removeprefix(f"{ENDS}."))


class EndsWriter:
    """Appends to ``ends.<site>``: what changed, and from time to time all, so that older entries can be deleted.

    A process that shares the site's logs with others lists its own, again after every change of its share.
    """

    def __init__(self, site: str, cluster: Cluster, share: WorkShare) -> None:
        self._share = share
        self._listed: tuple[int, float] | None = None  # the share and when its logs were listed, if it is shared
        self._site = site
        self._topic = f"{ENDS}.{site}"
        self._cluster = cluster
        self._appender = Appender(cluster)
        self._is_open = False

    async def close(self) -> None:
        """Close the appender."""
        await self._appender.close()

    async def confirm(
        self,
        logs: Collection[TopicPartition],
        known: SiteEnds,
        *,
        doubtful: Collection[TopicPartition],
        limits: Mapping[TopicPartition, int],
        is_own: Callable[[TopicPartition], bool] = lambda tp: True,
    ) -> int:
        """Confirm the ends of these logs where they changed; return how many entries were appended.

        Args:
            known: What this site and others confirmed before, read up to now.
            doubtful: Logs whose copy may not be the log any more; nothing of them is confirmed.
            limits: Logs that are confirmed up to an offset at most.
            is_own: Whether this process confirms a log; what others confirmed stays as it is.

        Raises:
            FairleadError: the site's Kafka does not answer, or refuses.
        """
        confirmed = known.of(self._site)
        if self._share.is_shared:
            confirmed = {name: end for name, end in confirmed.items() if is_own(TopicPartition.parse(name))}
        actual = await self._read_ends([tp for tp in logs if tp not in doubtful], confirmed)
        for tp, limit in limits.items():
            if (end := actual.get(str(tp))) is not None and end.end > limit:
                actual[str(tp)] = end._replace(end=limit)
        now = int(time.time() * 1000)
        whole = bool(actual) and self._is_list_due(known, now)
        changes = actual | changed_ends(confirmed, actual) if whole else changed_ends(confirmed, actual)
        if not changes:
            return 0
        await self._open()
        written = list(entries(self._site, changes, whole=whole and not self._share.is_shared))
        try:
            for entry in written:
                await self._append(NewRecord(value=encode(entry), key=self._site.encode(), timestamp_ms=now))
        except FairleadError:
            self._is_open = False  # the topic may be another one now
            raise
        if whole:
            self._listed = self._share.changes, time.monotonic()
        return len(written)

    def _is_list_due(self, known: SiteEnds, now_ms: int) -> bool:
        """Return whether all logs of this process are to be listed."""
        if self._share.is_shared:
            changes, at = self._listed or (-1, 0.0)
            return changes != self._share.changes or time.monotonic() - at > WHOLE_LIST_MS / 1000
        listed = known.listed_ms(self._site)
        return listed is None or not now_ms - WHOLE_LIST_MS < listed <= now_ms

    async def _append(self, record: NewRecord) -> None:
        """Append an entry; again if another process that shares the site's logs appended one at the same moment."""
        for _ in range(RIVALS if self._share.is_shared else 0):
            with contextlib.suppress(Conflict):
                await self._appender.append(TopicPartition(self._topic), [record])
                return
        await self._appender.append(TopicPartition(self._topic), [record])

    async def _read_ends(self, logs: Sequence[TopicPartition], confirmed: Mapping[str, LogEnd]) -> dict[str, LogEnd]:
        """Return the ends of logs that can be read. Terms are read before ends, so that a term is never too new."""
        found: dict[str, LogEnd] = {}
        for first in range(0, len(logs), AT_ONCE):
            some = logs[first : first + AT_ONCE]
            ends = await self._cluster.end_offsets(some)
            moved: list[TopicPartition] = []
            for tp in some:
                end, before = ends[tp], confirmed.get(str(tp))
                if not isinstance(end, int):
                    continue
                if before is not None and before.end == end:
                    found[str(tp)] = before
                else:
                    moved.append(tp)
            if moved:
                states = await self._cluster.describe_producers(moved)
                ends = await self._cluster.end_offsets(moved)
                for tp in moved:
                    end, producers = ends[tp], states[tp]
                    if isinstance(end, int) and isinstance(producers, tuple):
                        found[str(tp)] = LogEnd(end, term_of(producers))
        return found

    async def _open(self) -> None:
        """Create the log if it is missing, and begin it with the marker of term 1 if it is empty."""
        if self._is_open:
            return
        tp = TopicPartition(self._topic)
        if self._topic not in await self._cluster.topics([self._topic], refresh=True):
            await asyncio.to_thread(create_logs, self._cluster.endpoint, {self._topic: {}})
            await self._cluster.wait_writable([tp])
        now = dt.datetime.now(dt.UTC)
        marker = Marker.opening(self._topic, self._site, now)
        await self._appender.renew(tp)
        await self._appender.ensure_open(tp, marker_record(encode(marker), timestamp_ms=int(now.timestamp() * 1000)))
        self._is_open = True
