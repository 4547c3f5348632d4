"""Makes copies anew that a seizure has cut off (docs/replication.md, "Custody and seizure").

Such a copy has records that are no part of the log any more. Once this site's own bridge reports in its ledger that it
has kept them as strays, and a source has the log as it is now, the copy is deleted; then it is simply missing, and is
made and followed as any new one. So a crash at any moment does no harm. Without such a report it stays ``diverged``;
also while it is not the source's log right before the cut: an earlier seizure, not known here yet, cut off more.
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
from fairlead.wire.types import TopicPartition
from replication.giving import can_give, numbers
from replication.ledger import Ledger
from replication.plan import Catalog
from replication.pull import Pull
from replication.states import LogState, Trouble
from replication.writer import Writer

log = logging.getLogger(__name__)

EVERY: Final = 1.0  # seconds between two looks for sources of copies that may be made anew
GONE_SECONDS: Final = 30.0
_DIFFERENT: Final = (LogState.DIVERGED, LogState.MISPLACED, LogState.SOURCE_TRUNCATED)  # a seizure may explain them
_OLD: Final = (LogState.REBUILDING, LogState.SOURCE_RECREATED)  # not noted any more of what a seizure explains


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
        self._sound: dict[TopicPartition, int] = {}  # copies that have this newest seizure's term
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
        if copy is not None and copy.end > self._newest(tp).marker:
            self._sound[tp] = newest
        if tp.topic in self._ledger.splits:
            return False
        replica = writer.replicas.get(tp)
        trouble = replica.trouble if replica is not None else None
        states = {trouble.state} if trouble is not None else set()
        states |= {pull.troubles[tp].state for pull in self._pulls if tp in pull.troubles}
        again = not states.isdisjoint(_OLD)
        if not states.isdisjoint(_DIFFERENT):
            again |= self._retried.get(tp) != newest
            self._retried[tp] = newest
        return again

    def _stop(self, writer: Writer, tp: TopicPartition, stale: Stale) -> None:
        state, cause = self._said(tp, stale)
        replica = writer.replica(tp, self._catalog.priority(tp.topic))
        if replica.trouble is None or replica.trouble.state is not state:
            writer.stop(replica, state, cause)
        elif replica.trouble.cause != cause:
            replica.trouble = Trouble(state, cause, replica.trouble.since)

    def _said(self, tp: TopicPartition, stale: Stale) -> tuple[LogState, str]:
        story = self._story(tp, stale)
        if not self._is_reported(tp, stale):
            return LogState.DIVERGED, f"{story}; this site's bridge has not kept them as strays yet"
        why = self._why.get(tp)
        if why:
            return LogState.DIVERGED, f"{story}; it is not made anew by itself, since {why}"
        return LogState.REBUILDING, f"is made anew: {story}, and are kept as strays"

    def _story(self, tp: TopicPartition, stale: Stale) -> str:
        by = self._cut(tp, stale)
        if by is None:
            return (
                f"its records up to {stale.end} are not the log's, from its start: a bridge that had slept appended "
                "them when the copy was empty"
            )
        return (
            f"after the seizure by {by.to_site} at offset {by.marker} its records up to {stale.end} are of older terms "
            f"than {by.term}"
        )

    # ---- which source can give it back

    async def run(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        """Look for sources of copies that may be made anew, until cancelled; ``changed`` when there is news."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                if await self.look(cluster):
                    changed()
            except FairleadError as error:
                log.info("copies to be made anew: %s", error.what)

    async def look(self, cluster: Cluster) -> bool:
        """Look once which sources can give copies back that this site's bridge has reported; True when it is news.

        Raises:
            FairleadError: the target does not answer.
        """
        wanted = {tp: each for tp, each in self._stale.items() if self._is_reported(tp, each[0])}
        if not wanted:
            return False
        starts = numbers(await cluster.start_offsets(wanted))
        whole: dict[TopicPartition, set[str]] = {tp: set() for tp in wanted}
        why: dict[TopicPartition, str] = {}
        for pull in self._pulls:
            logs = {tp: stale for tp, (stale, links) in wanted.items() if pull.name in links}
            if logs and pull.cluster is not None:
                good, bad = await can_give(pull.cluster, cluster, self._custody, logs, starts)
                why |= bad
                for tp in good:
                    whole[tp].add(pull.name)
        before = dict(self._ways), dict(self._why)
        self._ways = {tp: Way(wanted[tp][0], frozenset(links)) for tp, links in whole.items() if links}
        self._why = {tp: each for tp, each in why.items() if tp not in self._ways}
        return bool(self._ways) or before != (self._ways, self._why)

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
            log.warning(
                "%s: this site's copy is made anew: %s; what was only here is kept in %s",
                tp,
                self._story(tp, way.stale),
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

    def _cut(self, tp: TopicPartition, stale: Stale) -> Seizure | None:
        """The seizure that cuts this copy off; None where it was never the log."""
        return next((each for each in self._custody.seizures(tp.topic) if each.marker == stale.cut), None)

    def _is_reported(self, tp: TopicPartition, stale: Stale) -> bool:
        """Whether this site's bridge has kept all that the copy has beyond the cut."""
        entry = self._ledger.returned.get(tp.topic)
        return entry is not None and (entry.term, entry.marker_offset, entry.end_offset) == (
            stale.newest,
            stale.cut,
            stale.end,
        )


async def until_gone(cluster: Cluster, topic: str) -> None:
    """Wait until the brokers have taken in that a topic is deleted: one that is made at once would be taken for it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GONE_SECONDS
    while topic in await cluster.topics([topic], refresh=True):
        if loop.time() > deadline:
            raise UnavailableError(f"{topic} is not gone after {GONE_SECONDS:.0f} s", hint="it is tried again")
        await asyncio.sleep(0.05)
