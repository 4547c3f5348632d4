"""Keep what is known of the logs of one link: where they end at the source, and why some are not copied. No I/O.

The link's fetchers report here, and the planner reads it. A log whose state changes is planned again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from fairlead.custody.view import Seizure
from fairlead.kafka.protocol.errors import broker_error
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import PreparedBatch
from replication.catalog import SourceReach
from replication.changes import PlanChanges
from replication.link.byte_budget import LinkBudget
from replication.link.cut_off import SourceRules
from replication.states import LogState, LogTrouble, TroubleTeller, now, unavailable
from topologies.model import Link

log = logging.getLogger(__name__)

Elsewhere = Callable[[Mapping[TopicPartition, int]], Awaitable[Collection[TopicPartition]]]
"""Returns those logs that another link should bring before a link brings them from these offsets on."""


@dataclass(slots=True)
class Counters:
    """Shared by all fetchers of a link."""

    records: int = 0
    batches: int = 0
    bytes: int = 0  # of batches appended to the target
    fetched_bytes: int = 0  # over the link, including batches that another link had brought already

    def add_batch(self, prepared: PreparedBatch) -> None:
        """Count a batch that was appended."""
        self.records += prepared.records
        self.batches += 1
        self.bytes += len(prepared.data)

    def as_json(self) -> dict[str, int]:
        return {
            "records": self.records,
            "batches": self.batches,
            "bytes": self.bytes,
            "fetched_bytes": self.fetched_bytes,
        }


class LinkLogs:
    """The logs of one link. All its fetchers share this.

    Attributes:
        topics: The source's topics that the link may carry, with their number of partitions.
        ends: Where the logs end at the source.
        troubles: Logs that cannot be copied from this source.
        unserved: Followed logs that no broker of the source serves now.
        cut_off: Logs whose history at this source a seizure cut off.
        beyond: Logs that continue beyond what the source may write.
        relist: Set to have the source's topics listed at once.
        elsewhere: Returns those logs that another link should bring before this link brings them; set by the link.
    """

    def __init__(self, link: Link, rules: SourceRules, changes: PlanChanges) -> None:
        """``changes`` gets the topics that must be planned again."""
        self.name = link.name
        self.start = link.start
        self.rules = rules
        self.budget = LinkBudget(link.rate, now=time.monotonic())
        self.counters = Counters()
        self.topics: dict[str, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.troubles: dict[TopicPartition, LogTrouble] = {}
        self.unserved: dict[TopicPartition, LogTrouble] = {}
        self.cut_off: dict[TopicPartition, LogTrouble] = {}
        self.beyond: dict[TopicPartition, tuple[SourceReach, LogTrouble]] = {}
        self.relist = asyncio.Event()
        self.elsewhere: Elsewhere | None = None
        self._source = link.from_
        self._changes = changes
        self._teller = TroubleTeller(log)

    def stop_log(self, tp: TopicPartition, state: LogState, cause: str, hint: str = "") -> None:
        """Stop copying a log over this link; the plan looks for another source. ``hint``: what ends the cause."""
        known = self.troubles.get(tp)
        if known is None or known.state is not state:
            self._teller.tell(tp, state, cause)
            self.troubles[tp] = LogTrouble(state, cause, now(), self.name, hint)
            self.replan(tp.topic)

    def show_unserved(self, tp: TopicPartition, code: int) -> None:
        """Show that no broker of the source serves a log, and the last error. It goes on being asked for; another link
        that has the log brings it meanwhile."""
        known, error = self.unserved.get(tp), broker_error(code, tp)
        cause = f"{self.name}: no broker of the source serves it: {error.what}"
        if known is None or known.cause != cause:
            self._teller.tell(tp, LogState.UNAVAILABLE, cause)
            self.unserved[tp] = unavailable(cause, known, link=self.name, hint=error.hint)
        if known is None:
            self.replan(tp.topic)

    def show_served(self, tp: TopicPartition) -> None:
        """Show that a broker of the source serves a log now, and have it planned again."""
        if self.unserved.pop(tp, None) is not None:
            self.replan(tp.topic)

    def mark_cut_off(self, tp: TopicPartition, seizure: Seizure) -> None:
        """Stop copying a log whose history here was cut off by a seizure, until the source has rebuilt it."""
        if tp not in self.cut_off:
            cause = (
                f"{self.name}: the source's records from offset {seizure.marker} on were cut off by the seizure by "
                f"{seizure.to_site}; copied again when the source has rebuilt its copy"
            )
            log.info("%s: %s", tp, cause)
            self.cut_off[tp] = LogTrouble(LogState.UNAVAILABLE, cause, now(), self.name)
            self.replan(tp.topic)

    def clear_cut_off(self, logs: Iterable[TopicPartition]) -> None:
        """Copy logs again that the target no longer has: it needs what lies before the seizure."""
        for tp in logs:
            del self.cut_off[tp]

    def refuse_log(self, tp: TopicPartition, reach: SourceReach, problem: str) -> None:
        """Stop copying a log that continues beyond what the source may write, until its right changes."""
        known = self.beyond.get(tp)
        if known is None or known[0] != reach:
            cause = f"{self.name}: {problem}, by this site's ledgers; nothing more is copied from {self._source}"
            log.log(logging.WARNING if reach.stop is None else logging.INFO, "%s: %s", tp, cause)
            self.beyond[tp] = reach, LogTrouble(LogState.UNAVAILABLE, cause, now(), self.name)
            self.replan(tp.topic)

    def replan(self, topic: str) -> None:
        """Have a log planned again: another source may have what comes next."""
        self._changes.add([topic])

    async def brought_first(self, logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        """Return the logs that another link should copy before this link copies them from these offsets on."""
        return await self.elsewhere(logs) if self.elsewhere is not None else ()

    def may_give(self, tp: TopicPartition) -> bool:
        """Return whether a log that this link carries can be copied from here now."""
        known = self.beyond.get(tp)
        if known is not None and self.rules.reach(tp.topic) != known[0]:
            del self.beyond[tp]
        return tp not in self.troubles and tp not in self.cut_off and tp not in self.beyond
