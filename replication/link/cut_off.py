"""What of a fetch answer is not taken: histories that a seizure has cut off, and what the source has no right to write.

The first is refused from any source: two such sites would feed each other for ever. The second concerns ships, which
extend the logs of boxes only in the terms that they hold (``plan.SourceReach``).
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.custody.superseded import overtaken
from fairlead.custody.view import CustodyView, Seizure
from fairlead.kafka.convention import PRODUCER_ID
from fairlead.kafka.protocol.batch import BatchHeader, split
from fairlead.kafka.protocol.types import FetchedPartition
from replication.catalog import EVERYTHING, Catalog, SourceReach
from replication.overrides import Overrides
from topologies.model import Link, Priority


class SourceRules:
    """What may be taken from one link's source, by the ledgers and operators' overrides of this site.

    Both go on changing; every question is answered by what they say at the moment.
    """

    def __init__(self, link: Link, catalog: Catalog, custody: CustodyView, overrides: Overrides) -> None:
        self._link = link
        self._catalog = catalog
        self._custody = custody
        self._overrides = overrides

    def takes(self, topic: str) -> bool:
        """Whether the link may carry a log at all."""
        return self._catalog.takes(self._link, topic)

    def priority(self, topic: str) -> Priority:
        """The class in which a log travels over the link."""
        return self._catalog.priority_on(self._link, topic)

    def is_origin(self, topic: str) -> bool:
        """Whether the source is the site where a log's records first enter, for ever."""
        facts = self._catalog.facts(topic)
        return facts is not None and facts.fixed_holder == self._link.from_

    def reach(self, topic: str) -> SourceReach:
        """How far the source may extend a log."""
        return self._catalog.reach(self._custody, self._link, topic)

    def seizures(self, topic: str) -> Sequence[Seizure]:
        """The seizures of a log that the ledgers know."""
        return self._custody.seizures(topic)

    def may_skip(self, log: str, start: int, stop: int) -> bool:
        """Whether operators gave up the offsets from ``start`` to before ``stop`` of a log."""
        return self._overrides.may_skip(log, start, stop)


def before(part: FetchedPartition, seizures: Sequence[Seizure]) -> tuple[FetchedPartition, Seizure | None]:
    """What comes before the first batch whose term a seizure has ended, and that seizure."""
    for start, _, header in split(part.records):
        seizure = overtaken(seizures, header)
        if seizure is not None:
            return part._replace(records=part.records[:start]), seizure
    return part, None


def within(part: FetchedPartition, reach: SourceReach) -> tuple[FetchedPartition, str]:
    """What comes before the first batch that the source has no right to write, and what is wrong with that batch;
    empty where the whole part may be taken."""
    if reach == EVERYTHING:
        return part, ""
    for start, _, header in split(part.records):
        if problem := _beyond(header, reach):
            return part._replace(records=part.records[:start]), problem
    return part, ""


def _beyond(header: BatchHeader, reach: SourceReach) -> str:
    """Why a batch may not be taken; empty where it may. A holder ends its own term by the marker of the next one, which
    is here before the entry in the ledger about it."""
    what = f"the batch at offset {header.base_offset}"
    if header.producer_id != PRODUCER_ID:
        return f"{what} was written by producer {header.producer_id}, not by Fairlead"
    if reach.stop is not None and header.next_offset > reach.stop:
        return f"{what} lies beyond offset {reach.stop}, where its right to write ended"
    closes = reach.stop is None and header.base_sequence == 0 and header.count == 1
    if header.producer_epoch > reach.term + closes:
        return f"{what} is of term {header.producer_epoch}, and its right to write ends with term {reach.term}"
    return ""
