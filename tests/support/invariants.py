"""Check the logs of containers after a run: invariants I1 to I6 of docs/custody.md. Pure.

Each check returns one line per violation, and none for correct logs. ``stored`` reads a log for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from edge.logwriter.records import identity_of, is_late
from fairlead.custody.history import TermInterval, chain
from fairlead.custody.view import CustodyView
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data, is_marker, marker_offset
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import Record, decode_batch
from fairlead.kafka.protocol.types import TP
from fairlead.records.custody import CustodyEntry, LedgerEntry

Name = tuple[str, int, int]  # device, boot and sequence identify a reading


class Stored(NamedTuple):
    """A stored record with its batch's term and marker offset."""

    term: int
    marker: int  # offset at which the term begins
    record: Record


async def stored(cluster: Cluster, topic: str) -> list[Stored]:
    """Return every record of a log up to its present end, including markers and fillers."""
    log = TP(topic)
    end = (await cluster.end_offsets([log]))[log]
    start = (await cluster.start_offsets([log]))[log]
    if not isinstance(end, int) or not isinstance(start, int):
        raise end if not isinstance(end, int) else start  # type: ignore[misc]
    found: list[Stored] = []
    position = start
    while position < end:
        part = (await cluster.fetch({log: position}))[log]
        for view in split(part.records):
            header = view.header
            for record in decode_batch(part.records[view.start : view.stop]):
                if position <= record.offset < end:
                    found.append(Stored(header.producer_epoch, marker_offset(header), record))
            position = max(position, header.next_offset)
    return found


def names(log: Sequence[Stored]) -> Counter[Name]:
    """Count how often each reading is in a log."""
    found = (identity_of(each.record) for each in log if is_data(each.record))
    return Counter((each.device, each.boot, each.sequence) for each in found if each is not None)


def view_of(entries: Iterable[LedgerEntry]) -> CustodyView:
    """Return the holder of every log according to these entries."""
    view = CustodyView()
    for entry in entries:
        if isinstance(entry, CustodyEntry):
            view.apply(entry)
    return view


def same_copies(log: str, copies: Mapping[str, Sequence[Stored]]) -> list[str]:
    """I1: no two copies hold different records at one offset."""
    wrong: list[str] = []
    first: dict[int, tuple[str, Stored]] = {}
    for site, copy in copies.items():
        for each in copy:
            other, known = first.setdefault(each.record.offset, (site, each))
            if known != each:
                wrong.append(f"{log} at offset {each.record.offset}: {known} at {other}, {each} at {site}")
                break
    return wrong


def once(log: str, copy: Sequence[Stored], published: Iterable[Name]) -> list[str]:
    """I2 and I4: every acknowledged reading is stored, and no record is stored twice or was never published."""
    found, wanted = names(copy), set(published)
    lost = sorted(wanted - found.keys())
    twice = sorted(name for name, times in found.items() if times > 1)
    strange = sorted(found.keys() - wanted)
    return [
        f"{log}: {len(some)} readings {what}, first {some[:5]}"
        for what, some in (("lost", lost), ("twice", twice), ("never published", strange))
        if some
    ]


def in_order(log: str, copy: Sequence[Stored]) -> list[str]:
    """I3: readings of a device are in the order of their sequence; exactly those that are not are marked late."""
    wrong: list[str] = []
    newest: dict[str, tuple[int, int]] = {}
    for each in copy:
        identity = identity_of(each.record) if is_data(each.record) else None
        if identity is None:
            continue
        place, last = (identity.boot, identity.sequence), newest.get(identity.device, (-1, -1))
        if (place < last) != is_late(each.record):
            how = "is marked late" if is_late(each.record) else "is not marked late"
            wrong.append(f"{log} at offset {each.record.offset}: {place} after {last} of {identity.device} {how}")
        newest[identity.device] = max(place, last)
    return wrong


def in_terms(log: str, copy: Sequence[Stored]) -> list[str]:
    """I5: offsets have no gap from 0 on, terms never fall, and each term begins with its marker."""
    wrong: list[str] = []
    if [each.record.offset for each in copy] != list(range(len(copy))):
        wrong.append(f"{log} does not begin at offset 0, or has gaps")
    if copy and not is_marker(copy[0].record):
        wrong.append(f"{log} does not begin with a marker")
    for before, each in pairwise(copy):
        begins = each.term != before.term
        if each.term < before.term:
            wrong.append(f"{log} at offset {each.record.offset}: term {each.term} after term {before.term}")
        elif begins != is_marker(each.record) or each.marker != (each.record.offset if begins else before.marker):
            wrong.append(f"{log} at offset {each.record.offset}: term {each.term} does not begin with its marker")
    return wrong


def in_ledgers(log: str, copy: Sequence[Stored], entries: Sequence[LedgerEntry]) -> list[str]:
    """I6: the ledgers have every term of the log once, from the offset of its marker, granted by the log's holder."""
    of_log = chain(log, entries)
    wrong = [f"{log}: {split}" for split in of_log.splits]
    wrong += [f"{log}: no ledger has terms {first} to {last}" for first, last in of_log.missing]
    markers = [(each.term, each.record.offset) for each in copy if is_marker(each.record)]
    told = [(each.term, each.marker_offset) for each in of_log.standing]
    if _without_crashed_givers(markers, of_log.standing) != told:
        wrong.append(f"{log} has terms and markers {markers}, the ledgers {told}")
    for before, each in pairwise(of_log.standing):
        if each.event != "SEIZURE" and (each.term != before.term + 1 or not _gave(before, each)):
            wrong.append(f"{log}: {each.granted_by} gave term {each.term} after term {before.term} of {before.holder}")
    return wrong


def _gave(before: TermInterval, after: TermInterval) -> bool:
    """Return whether the right site granted the log: its holder or, for a box outside, the site that the box left."""
    if before.holder is not None:
        return after.granted_by == after.from_site == before.holder
    came_back = after.holder == before.from_site
    return after.granted_by == before.from_site and after.from_site == (None if came_back else before.from_site)


def _without_crashed_givers(markers: Sequence[tuple[int, int]], told: Sequence[TermInterval]) -> list[tuple[int, int]]:
    """Drop the markers of grants whose site crashed before its ledger entry, if a seizure followed.

    When that site is back, the ledgers have gone beyond that term, so it writes no entry.
    """
    events = {(each.term, each.marker_offset): each.event for each in told}
    found: list[tuple[int, int]] = []
    seized = False
    for marker in reversed(markers):
        if marker in events:
            seized = events[marker] == "SEIZURE"
        elif seized:
            continue
        found.append(marker)
    return found[::-1]
