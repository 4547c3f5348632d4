"""Makes copies anew that a seizure has cut off (docs/replication.md, "Custody and seizure").

Such a copy has records that are no part of the log any more. Once this site's own bridge reports in its ledger that it
has kept them as strays, and a source has the log as it is now, the copy is deleted; then it is simply missing, and is
made and followed as any new one. So a crash at any moment does no harm. Without such a report it stays ``diverged``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.admin import delete_logs
from fairlead.custody import Seizure
from fairlead.errors import FairleadError, UnavailableError
from fairlead.lineage import Copy, Stale, copies
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import BrokerError
from fairlead.wire.types import TopicPartition
from replication.ledger import Ledger
from replication.plan import Catalog
from replication.pull import Pull
from replication.states import LogState, Trouble
from replication.writer import Writer

log = logging.getLogger(__name__)

EVERY: Final = 1.0  # seconds between two looks for sources of copies that may be made anew
GONE_SECONDS: Final = 30.0
_DIFFERENT: Final = (LogState.DIVERGED, LogState.MISPLACED, LogState.REBUILDING)


class Way(NamedTuple):
    """Sources that can give a copy back, for the copy as it was when they were asked."""

    stale: Stale
    links: frozenset[str]


class Remaker:
    """The copies of one target that seizures have cut off. Logs whose custody moves have one partition."""

    def __init__(self, site: str, ledger: Ledger, pulls: Sequence[Pull], catalog: Catalog) -> None:
        self._site = site
        self._catalog = catalog
        self._ledger = ledger
        self._custody = ledger.custody
        self._pulls = pulls
        self._stale: dict[TopicPartition, tuple[Stale, frozenset[str]]] = {}  # with the links that carry them
        self._ways: dict[TopicPartition, Way] = {}
        self._why: dict[TopicPartition, str] = {}  # no source can give it back by itself
        self._sound: dict[TopicPartition, int] = {}  # copies that go beyond all seizures up to this term
        self._retried: dict[TopicPartition, int] = {}  # term of the seizure that made an old difference worth a look
        self._begin: dict[TopicPartition, tuple[frozenset[str], int]] = {}  # from where, and up to which offset

    def seized(self, topics: Collection[str]) -> list[str]:
        """Those of these topics that were ever seized."""
        return [topic for topic in self._custody.seized() if topic in topics]

    def sources(self, tp: TopicPartition, end: int, pulls: Sequence[Pull]) -> Sequence[Pull]:
        """Of the links that carry a log, those over which it is begun anew: not every source has all of its past."""
        links, until = self._begin.get(tp, (frozenset(), 0))
        chosen = [pull for pull in pulls if pull.name in links]
        if end > until:
            self._begin.pop(tp, None)
        return chosen if chosen and end <= until else pulls

    async def examine(
        self, cluster: Cluster, writer: Writer, logs: Mapping[TopicPartition, frozenset[str]]
    ) -> set[TopicPartition]:
        """Stop the copies that are no longer the log, before anything is taken over the links that carry them.

        Returns:
            logs that are to be looked at anew, since their trouble was a difference that the ledger explains now.
        """
        self._stale = {tp: each for tp, each in self._stale.items() if tp in logs}
        asked = [tp for tp in logs if self._sound.get(tp) != self._newest(tp).term]
        try:
            found = await copies(cluster, self._custody, [tp.topic for tp in asked]) if asked else {}
        except FairleadError as error:  # the other logs need not wait; what is followed is compared once more anyway
            log.warning("looking at copies of logs that were seized: %s", error.what)
            return set()
        again = set()
        for tp in asked:
            copy = found.get(tp.topic)
            if copy is not None and copy.stale is not None:
                self._stale[tp] = copy.stale, logs[tp]
                self._stop(writer, tp, copy.stale)
            elif self._is_sound(writer, tp, copy):
                again.add(tp)
        return again

    def _is_sound(self, writer: Writer, tp: TopicPartition, copy: Copy | None) -> bool:
        """Note a copy that is the log; True when its trouble is old."""
        self._stale.pop(tp, None)
        newest = self._newest(tp).term
        if copy is not None and copy.end > self._last_marker(tp):
            self._sound[tp] = newest
        replica = writer.replicas.get(tp)
        trouble = replica.trouble if replica is not None else None
        if trouble is None or trouble.state not in _DIFFERENT or tp.topic in self._ledger.splits:
            return False
        first = self._retried.get(tp) != newest
        self._retried[tp] = newest
        return first or trouble.state is LogState.REBUILDING

    def _stop(self, writer: Writer, tp: TopicPartition, stale: Stale) -> None:
        state, cause = self._said(tp, stale)
        replica = writer.replica(tp, self._catalog.priority(tp.topic))
        if replica.trouble is None or replica.trouble.state is not state:
            writer.stop(replica, state, cause)
        elif replica.trouble.cause != cause:
            replica.trouble = Trouble(state, cause, replica.trouble.since)

    def _said(self, tp: TopicPartition, stale: Stale) -> tuple[LogState, str]:
        by = self._cut(tp, stale)
        seizure = f"the seizure by {by.to_site} at offset {by.marker}"
        beyond = f"its records up to {stale.end} are of older terms than {by.term}"
        if not self._is_reported(tp, stale):
            return LogState.DIVERGED, f"after {seizure} {beyond}; this site's bridge has not kept them as strays yet"
        why = self._why.get(tp)
        if why:
            return LogState.DIVERGED, f"after {seizure} {beyond}; it is not made anew by itself, since {why}"
        return LogState.REBUILDING, f"is made anew after {seizure}: {beyond}, and are kept as strays"

    # ---- which source can give it back

    async def run(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        """Look for sources of copies that may be made anew, until cancelled; ``changed`` when there is news."""
        while True:
            await asyncio.sleep(EVERY)
            wanted = {tp: each for tp, each in self._stale.items() if self._is_reported(tp, each[0])}
            try:
                if wanted and await self._look_for(wanted, _numbers(await cluster.start_offsets(wanted))):
                    changed()
            except FairleadError as error:
                log.info("copies to be made anew: %s", error.what)

    async def _look_for(
        self, wanted: Mapping[TopicPartition, tuple[Stale, frozenset[str]]], starts: Mapping[TopicPartition, int]
    ) -> bool:
        """``starts``: where the copies here begin."""
        whole: dict[TopicPartition, set[str]] = {tp: set() for tp in wanted}
        short: dict[TopicPartition, str] = {}
        for pull in self._pulls:
            logs = {tp: stale for tp, (stale, links) in wanted.items() if pull.name in links}
            if logs and pull.cluster is not None:
                for tp, begin in (await self._whole_at(pull.cluster, logs)).items():
                    here = starts.get(tp, 0)
                    if begin <= here or here >= logs[tp].cut:
                        whole[tp].add(pull.name)
                    else:
                        short[tp] = f"no source has its offsets {here}..{min(begin, logs[tp].cut) - 1} any more"
        before = dict(self._ways), dict(self._why)
        self._ways = {tp: Way(wanted[tp][0], frozenset(links)) for tp, links in whole.items() if links}
        self._why = {tp: why for tp, why in short.items() if tp not in self._ways}
        return bool(self._ways) or before != (self._ways, self._why)

    async def _whole_at(self, source: Cluster, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Those of these logs that go beyond all seizures at a source and are the log, with where they begin there."""
        try:
            there = await copies(source, self._custody, [tp.topic for tp in logs])
            good = [
                tp
                for tp in logs
                if (copy := there.get(tp.topic)) is not None and copy.stale is None and copy.end > self._last_marker(tp)
            ]
            return _numbers(await source.start_offsets(good)) if good else {}
        except FairleadError as error:
            log.info("%s: looking for logs that were seized: %s", source.endpoint.site, error.what)
            return {}

    # ---- the deletion

    async def delete(self, cluster: Cluster, writer: Writer) -> list[str]:
        """Delete the copies that a source can give back, if they still are as they were reported. Gives their topics.

        Raises:
            FairleadError: the target does not answer.
        """
        ready = {tp: way for tp, way in self._ways.items() if tp in self._stale and not writer.is_busy(tp)}
        if not ready:
            return []
        self._ways = {}
        here = await copies(cluster, self._custody, [tp.topic for tp in ready])
        gone = []
        for tp, way in ready.items():
            copy = here.get(tp.topic)
            if copy is None or copy.stale != way.stale or not self._is_reported(tp, way.stale):
                continue
            try:
                await asyncio.to_thread(delete_logs, cluster.endpoint, [tp.topic])
                await until_gone(cluster, tp.topic)
            except FairleadError as error:
                log.warning("%s: it is to be made anew, but cannot be deleted: %s", tp, error.what)
                continue  # tried again; the other logs need not wait for it
            gone.append(tp.topic)
            self._stale.pop(tp, None)
            self._begin[tp] = way.links, way.stale.cut
            if tp in writer.replicas:
                writer.replicas[tp].forget()
            by = self._cut(tp, way.stale)
            log.warning(
                "%s: this site's copy, which ended at %d, is made anew after the seizure by %s at offset %d; what was "
                "only here is kept in %s",
                tp,
                way.stale.end,
                by.to_site,
                by.marker,
                self._ledger.returned[tp.topic].strays_log,
            )
        return gone

    # ---- shown

    def waiting(
        self, carried: Container[TopicPartition], holder: Callable[[str], str | None]
    ) -> dict[TopicPartition, Trouble]:
        """Logs that no source has but such whose history a seizure has cut off there; not where this site itself
        seized the log, or holds it."""
        return {
            tp: trouble
            for pull in self._pulls
            if pull.is_up
            for tp, trouble in pull.overtaken.items()
            if tp not in carried
            and self._site not in (holder(tp.topic), *(each.to_site for each in self._custody.seizures(tp.topic)))
        }

    # ---- helpers

    def _newest(self, tp: TopicPartition) -> Seizure:
        return self._custody.seizures(tp.topic)[-1]

    def _last_marker(self, tp: TopicPartition) -> int:
        return max(each.marker for each in self._custody.seizures(tp.topic))

    def _cut(self, tp: TopicPartition, stale: Stale) -> Seizure:
        """The seizure that cuts this copy off."""
        return next(each for each in self._custody.seizures(tp.topic) if each.marker == stale.cut)

    def _is_reported(self, tp: TopicPartition, stale: Stale) -> bool:
        """Whether this site's bridge has kept all that the copy has beyond the cut."""
        entry = self._ledger.returned.get(tp.topic)
        return (
            entry is not None
            and (entry.term, entry.end_offset) == (stale.newest, stale.end)
            and (entry.marker_offset <= stale.cut)
        )


async def until_gone(cluster: Cluster, topic: str) -> None:
    """Wait until the brokers have taken in that a topic is deleted: one that is made at once would be taken for it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GONE_SECONDS
    while topic in await cluster.topics([topic], refresh=True):
        if loop.time() > deadline:
            raise UnavailableError(f"{topic} is not gone after {GONE_SECONDS:.0f} s", hint="it is tried again")
        await asyncio.sleep(0.05)


def _numbers(found: Mapping[TopicPartition, int | BrokerError]) -> dict[TopicPartition, int]:
    return {tp: each for tp, each in found.items() if isinstance(each, int)}
