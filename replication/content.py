"""From fetched bytes to what may be appended: verbatim where possible, restamped or rebuilt where not. Pure functions.

Every offset of the source becomes an offset of the target. Batches of Fairlead go as they are but for their base
offset; batches of ordinary clients get Fairlead's foreign producer id and a sequence made from the offset. What
cannot be appended (holes left by compaction, control batches, aborted transactions) becomes a ``Hole``: offsets that
the writer closes with fillers. Broker rules and error codes: Kafka 4.3, measured.

This module decides; ``stamp`` changes headers, ``rebuild`` writes batches again, ``fillers`` closes holes,
``agreement`` compares what was written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fairlead.wire.batch import LOG_APPEND_TIME, TRANSACTIONAL, split, verify_crc, zero_base_offset
from fairlead.wire.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, marker_offset
from replication.fillers import BEFORE_FIRST_TERM, MAX_FILLER, fillers
from replication.item import HOLE_KEY, POSITION_KEY, SEQUENCES, Hole, Item, Step, Unfit
from replication.rebuild import rebuilt
from replication.stamp import canonical_crc, is_plain, restamp

__all__ = [
    "BEFORE_FIRST_TERM",
    "HOLE_KEY",
    "MAX_FILLER",
    "POSITION_KEY",
    "SEQUENCES",
    "Hole",
    "Item",
    "Step",
    "Unfit",
    "canonical_crc",
    "fillers",
    "is_plain",
    "restamp",
    "steps",
]

_FOREIGN: Final = (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0)


def steps(
    records: memoryview,
    position: int,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    gap_key: bytes = HOLE_KEY,
    inside: bool = False,
) -> Iterator[Step]:
    """What to append for the batches of one fetch answer, from ``position`` on; base offsets are zeroed in place.

    Args:
        records: Whole batches as fetched (a cut one at the end is left out), writable.
        position: The next offset wanted; what is below is skipped.
        aborted: ``(producer id, first offset)`` of aborted transactions, as a read-committed fetch tells them.
        gap_key: Key of the fillers when the first batch lies above ``position``.
        inside: The target's last batch has been found to agree with the source's (``agreement.conflict``), so a
            position inside one of Fairlead's own batches is no divergence: the batch had been split here.
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    dead: set[int] = set()
    for start, stop, header in split(records):
        base, after = header.base_offset, header.next_offset
        while waiting and waiting[0][1] < after:
            dead.add(waiting.pop(0)[0])
        if header.is_control:
            dead.discard(header.producer_id)
        if after <= position:
            continue
        ours = header.producer_id == PRODUCER_ID
        pid, term, marker = (PRODUCER_ID, header.producer_epoch, marker_offset(header)) if ours else _FOREIGN
        when = header.max_timestamp
        if base > position:
            yield Hole(position, base, pid, term, marker, when, gap_key)
        start_at = max(position, base)
        gap_key, position = HOLE_KEY, after
        void = header.is_control or (header.attributes & TRANSACTIONAL and header.producer_id in dead)
        void = void or header.count == 0
        whole = start_at == base and header.count == after - base
        verbatim = whole and not void and (ours or header.producer_id == FOREIGN_PRODUCER_ID)
        if not verbatim and not verify_crc(records, start, stop):  # of a batch that goes as it is the broker sees it
            hole = Hole(start_at, after, pid, term, marker, when)
            yield Unfit(
                base, f"the CRC of the batch at offset {base} does not match its bytes", hole=hole, damaged=True
            )
            continue
        if void:
            yield Hole(start_at, after, pid, term, marker, when)
            continue
        if whole and not header.attributes & LOG_APPEND_TIME:
            view = records[start:stop]
            if verbatim:
                zero_base_offset(view)
                yield Item(base, after, view, header.crc, header.producer_id, term, marker, when)
            else:
                crc = restamp(view, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, base % SEQUENCES)
                yield Item(base, after, view, crc, pid, term, marker, when)
            continue
        if ours and start_at != base and not inside:
            cause = f"the target ends at {start_at}, inside the source's batch {base}..{after - 1} of term {term}"
            yield Unfit(base, cause, diverged=True)
            return
        inside = False  # only of the first batch anything has been found out
        made = rebuilt(records[start:stop], header, start_at, after, producer_id=pid, term=term, marker=marker)
        if isinstance(made, Unfit):
            made = made._replace(hole=Hole(start_at, after, pid, term, marker, when))
        yield made
