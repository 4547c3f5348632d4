"""Check whether a site's copy of a log is still valid. A seizure cuts off the lost holder's later records.

``edge`` keeps the records beyond the cut as strays; ``replication`` copies none of them and rebuilds such copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairlead.custody.view import CustodyView, Seizure
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.guard import read_positions
from fairlead.kafka.client.reader import batches_of
from fairlead.kafka.convention import FIRST_TERM, PRODUCER_ID, is_ours
from fairlead.kafka.protocol.batch import BatchHeader, Buffer, parse_header
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, CorruptBatch, broker_error
from fairlead.kafka.protocol.types import TP, LogPosition

_ONE_BATCH = 1  # bytes: a broker sends at least one whole batch


class Stale(NamedTuple):
    """A copy that has records of an older term beyond a seizure."""

    cut: int  # its records from this offset on are no part of the log
    end: int
    term: int  # term of its last record
    newest: int  # term of the newest seizure


class Copy(NamedTuple):
    """One site's copy of a log that was seized."""

    end: int
    stale: Stale | None  # None: the copy matches the log, as far as it goes


def overtaken(seizures: Sequence[Seizure], header: BatchHeader) -> Seizure | None:
    """Return the seizure that ended a batch's term at or before the batch's last record; None when there is none.

    Fillers that only position a log belong to no term, so no seizure applies to them.
    """
    term = header.producer_epoch if header.producer_id == PRODUCER_ID else 0
    if term < FIRST_TERM:
        return None
    return next((each for each in seizures if term < each.term and header.next_offset > each.marker), None)


async def copies(cluster: Cluster, view: CustodyView, logs: Iterable[str]) -> Mapping[str, Copy | CorruptBatch]:
    """Return a site's copies of those logs that were seized at any time; leave out copies that are missing or empty.

    The result has the error of a copy that is damaged where it is looked at, since nobody knows then whether it is
    stale.

    A copy is stale when its record at the offset of a seizure's marker is of an older term. Its last term does not
    prove as much: a later marker may have been appended after the stale part, because a broker accepts the first record
    of a term at any end. A copy is stale from offset 0 when it begins in the middle of a term: after a topic is created
    again, a broker accepts any first append, even from a bridge that was suspended meanwhile.

    Raises:
        BrokerError, ConnectionLost: the site's Kafka cannot be asked.
    """
    seized = {TP(topic) for topic in logs if view.seizures(topic)}
    here = {TP(topic) for topic in await cluster.topics([tp.topic for tp in seized], refresh=True)} if seized else set()
    found: dict[str, Copy | CorruptBatch] = {}
    positions: dict[TP, LogPosition] = {}
    left: dict[TP, list[Seizure]] = {}
    for tp, position in (await read_positions(cluster, here)).items():
        if isinstance(position, LogPosition):
            found[tp.topic] = Copy(position.end, None)
            positions[tp] = position
            below = [each for each in view.seizures(tp.topic) if each.marker < position.end]
            left[tp] = sorted(below, key=lambda each: each.marker)
        elif isinstance(position, CorruptBatch):
            found[tp.topic] = position

    def stale_from(tp: TP, cut: int) -> None:
        newest = view.seizures(tp.topic)[-1].term
        found[tp.topic] = Copy(positions[tp].end, Stale(cut, positions[tp].end, positions[tp].term, newest))

    async def headers_at(offsets: Mapping[TP, int]) -> dict[TP, BatchHeader]:
        headers: dict[TP, BatchHeader] = {}
        for tp, batch in (await batches_at(cluster, offsets)).items():
            if isinstance(batch, CorruptBatch):
                found[tp.topic] = batch
            else:
                headers[tp] = parse_header(batch)
        return headers

    while left := {tp: below for tp, below in left.items() if below and isinstance(found[tp.topic], Copy)}:
        terms = _terms(await headers_at({tp: below[0].marker for tp, below in left.items()}))
        for tp, below in left.items():
            seizure, there = below.pop(0), terms.get(tp, positions[tp].term)
            if FIRST_TERM <= there < seizure.term and isinstance(found[tp.topic], Copy):
                stale_from(tp, seizure.marker)
                below.clear()
    asked = [tp for tp in positions if _may_be_begun_amid(found[tp.topic], view, tp)]
    for tp, header in (await headers_at(dict.fromkeys(asked, 0))).items():
        if header.base_offset == 0 and is_ours(header) and header.base_sequence > 0:  # not the first of its term
            stale_from(tp, 0)
    return found


async def stale_copies(cluster: Cluster, view: CustodyView, logs: Iterable[str]) -> Mapping[str, Stale | CorruptBatch]:
    """Return those of these logs whose copy here is stale, or damaged; otherwise as ``copies``."""
    found: dict[str, Stale | CorruptBatch] = {}
    for log, each in (await copies(cluster, view, logs)).items():
        known = each if isinstance(each, CorruptBatch) else each.stale
        if known is not None:
            found[log] = known
    return found


async def batches_at(cluster: Cluster, offsets: Mapping[TP, int]) -> dict[TP, Buffer | CorruptBatch]:
    """Return the stored batch at each of these offsets or, where there is none, the next batch.

    Leaves out logs that begin later or end before. The result has the error of a batch with a damaged header.

    Raises:
        BrokerError, ConnectionLost: the site's Kafka cannot be asked.
    """
    found: dict[TP, Buffer | CorruptBatch] = {}
    left = dict(offsets)
    while left:
        answers = await cluster.fetch(left, max_wait_ms=0, partition_max_bytes=_ONE_BATCH)
        answered = {tp for tp, part in answers.items() if part.error_code or len(part.records)}
        for tp in answered:
            part = answers[tp]
            if part.error_code and part.error_code != OFFSET_OUT_OF_RANGE:
                raise broker_error(part.error_code, tp)
            try:
                for view in batches_of(tp, part):
                    if view.header.last_offset >= offsets[tp]:
                        found[tp] = part.records[view.start : view.stop]
                        break
            except CorruptBatch as error:
                found[tp] = error
        # A full answer leaves out logs, but never the first one; an empty answer means that no log has such a record.
        left = {tp: at for tp, at in left.items() if answered and tp not in answered}
    return found


def _terms(headers: Mapping[TP, BatchHeader]) -> dict[TP, int]:
    """Return the terms of the records in these batches, 0 for a record of no term."""
    return {tp: each.producer_epoch if each.producer_id == PRODUCER_ID else 0 for tp, each in headers.items()}


def _may_be_begun_amid(copy: Copy | CorruptBatch, view: CustodyView, tp: TP) -> bool:
    """Whether the copy may begin in the middle of a term; not if it is valid beyond the newest seizure."""
    if isinstance(copy, CorruptBatch):
        return False
    return copy.stale is not None or copy.end <= view.seizures(tp.topic)[-1].marker
