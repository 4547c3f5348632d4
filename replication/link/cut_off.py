"""Refuse parts of a fetch answer: histories that a seizure cut off, and batches that the source may not write.

A history that was cut off is refused from every source, because two such sites would feed each other forever. The
right to write concerns ships, which extend the logs of containers only in terms that they hold
(``replication.catalog.SourceReach``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from fairlead.custody.superseded import overtaken
from fairlead.custody.view import CustodyView, Seizure
from fairlead.kafka.convention import PRODUCER_ID
from fairlead.kafka.protocol.batch import BatchHeader, BatchView, split, verify_crc
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.types import FetchedPartition
from replication.catalog import EVERYTHING, Catalog, SourceReach
from replication.overrides import Overrides, Skips
from topologies.model import Link, Priority

LONGEST_GAP: Final = 100_000_000  # offsets: fillers take a byte for each, and no log of a ship gets so long in years


class SourceRules:
    """The limits of one link, by the current ledgers and operators' overrides of this site."""

    def __init__(self, link: Link, catalog: Catalog, custody: CustodyView, overrides: Overrides) -> None:
        self._link = link
        self._catalog = catalog
        self._custody = custody
        self._overrides = overrides

    def may_carry(self, topic: str) -> bool:
        """Return whether the link may carry a log at all."""
        return self._catalog.may_carry(self._link, topic)

    @property
    def are_announced(self) -> bool:
        """Whether new logs of the link need not be looked for (``Catalog.are_announced``)."""
        return self._catalog.are_announced(self._link)

    def priority(self, topic: str) -> Priority:
        """Return the class in which a log travels over the link."""
        return self._catalog.priority_on(self._link, topic)

    def is_origin(self, topic: str) -> bool:
        """Return whether the source is the log's fixed holder, where its records are first written."""
        facts = self._catalog.facts(topic)
        return facts is not None and facts.fixed_holder == self._link.from_

    def reach(self, topic: str) -> SourceReach:
        """Return how far the source may extend a log."""
        return self._catalog.reach(self._custody, self._link, topic)

    def seizures(self, topic: str) -> Sequence[Seizure]:
        """Return the seizures of a log in this site's ledgers."""
        return self._custody.seizures(topic)

    def skips(self, log: str) -> Skips:
        """Return the offsets of a log that an operator skips."""
        return self._overrides.skips(log)

    def may_leave_out(self, log: str, start: int, stop: int) -> bool:
        """Return whether a log may have no records from ``start`` to before ``stop``. A ship may forge an offset, and
        the fillers up to it would take this site's disk."""
        if stop - start <= LONGEST_GAP or not self._catalog.is_from_ship(self._link):
            return True
        return self.skips(log).cover(start, stop)


def _readable(part: FetchedPartition) -> Iterator[BatchView]:
    """Yield the batches before the first one without a readable header; ``prepare_batches`` raises at that one."""
    with contextlib.suppress(CorruptBatch):
        yield from split(part.records)


def _before(part: FetchedPartition, batch: BatchView) -> tuple[FetchedPartition, bool]:
    """Return the part before a batch that is refused by its header, and whether the header counts. That of a damaged
    batch may say anything.

    Raises:
        CorruptBatch: the batch is damaged, and nothing is before it.
    """
    is_whole = verify_crc(part.records, batch.start, batch.stop)
    if not is_whole and batch.start == 0:
        raise CorruptBatch(f"the CRC of the batch at offset {batch.header.base_offset} does not match its bytes")
    return msgspec.structs.replace(part, records=part.records[: batch.start]), is_whole


def before_seizure(part: FetchedPartition, seizures: Sequence[Seizure]) -> tuple[FetchedPartition, Seizure | None]:
    """Return the part before the first batch that a seizure cut off, and that seizure.

    Raises:
        CorruptBatch: the first batch seems to be cut off, but is damaged.
    """
    for batch in _readable(part):
        seizure = overtaken(seizures, batch.header)
        if seizure is not None:
            taken, counts = _before(part, batch)
            return taken, seizure if counts else None
    return part, None


def within_reach(part: FetchedPartition, reach: SourceReach) -> tuple[FetchedPartition, str]:
    """Return the part before the first batch that the source may not write, and why it may not; the reason is empty if
    the whole part may be copied.

    Raises:
        CorruptBatch: the source may not write the first batch as it is, but it is damaged.
    """
    if reach == EVERYTHING:
        return part, ""
    for batch in _readable(part):
        if problem := _beyond(batch.header, reach):
            taken, counts = _before(part, batch)
            return taken, problem if counts else ""
    return part, ""


def _beyond(header: BatchHeader, reach: SourceReach) -> str:
    """Return why the source may not write a batch; empty if it may. A holder may also write the marker of the next
    term, which ends its own and arrives before the ledger entry about it."""
    what = f"the batch at offset {header.base_offset}"
    if header.producer_id != PRODUCER_ID:
        return f"{what} was written by producer {header.producer_id}, not by Fairlead"
    if reach.stop is not None and header.next_offset > reach.stop:
        return f"{what} is after offset {reach.stop}, where its right to write ended"
    closes = reach.stop is None and header.base_sequence == 0 and header.count == 1
    if header.producer_epoch > reach.term + closes:
        return f"{what} is of term {header.producer_epoch}, and its right to write ends with term {reach.term}"
    return ""
