"""Turn fetched bytes into batches that may be appended: unchanged, with another header, or rebuilt. Pure.

Every offset of the source becomes the same offset of the target. Batches of Fairlead's writers change only their base
offset. Batches of ordinary clients get Fairlead's foreign producer id and a sequence made from the offset. Offsets that
cannot be appended become a ``Gap``, which the appender closes with fillers: offsets that compaction removed, control
batches, aborted transactions, and offsets that an operator skips with ``fairlead link resolve --skip``. Broker rules
and error codes were measured on Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, marker_offset
from fairlead.kafka.protocol.batch import LOG_APPEND_TIME, split_aborted, verify_crc, zero_base_offset
from fairlead.kafka.protocol.errors import CorruptBatch
from replication.batch.header_rewrite import is_usual, rewrite_header
from replication.batch.prepared import GAP_KEY, SEQUENCES, Gap, Prepared, PreparedBatch, RejectedBatch
from replication.batch.rebuild import rebuilt

_FOREIGN: Final = (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0)


def prepare_batches(
    records: memoryview,
    position: int,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    gap_key: bytes = GAP_KEY,
    inside: bool = False,
) -> Iterator[Prepared]:
    """Prepare the batches of one fetch answer from ``position`` on. Zeroes base offsets in place.

    Args:
        records: Batches as fetched, writable; a cut one at the end is ignored.
        position: The first offset to append.
        aborted: ``(producer id, first offset)`` of aborted transactions, from a read-committed fetch.
        gap_key: Key of the fillers when the first batch lies above ``position``.
        inside: The target's last batch has the same records as the source's (``batch_diff.conflict``). Then a position
            inside one of Fairlead's own batches is no divergence: the batch was split here.

    Raises:
        CorruptBatch: a batch has no readable header, or an impossible one.
    """
    for batch, is_aborted in split_aborted(records, aborted):
        start, stop, header = batch.start, batch.stop, batch.header
        base, after = header.base_offset, header.next_offset
        if after <= base:
            raise CorruptBatch(f"the batch at offset {base} claims to end before it begins")
        if after <= position:
            continue
        ours = header.producer_id == PRODUCER_ID
        pid, term, marker = (PRODUCER_ID, header.producer_epoch, marker_offset(header)) if ours else _FOREIGN
        when = header.max_timestamp
        at, position = position, after
        key, gap_key = gap_key, GAP_KEY
        start_at = max(at, base)
        void = header.is_control or is_aborted or header.count == 0
        whole = start_at == base and header.count == after - base
        verbatim = whole and not void and not header.attributes & LOG_APPEND_TIME and (ours or is_usual(header))
        # The broker checks unchanged batches, but not the fillers before them.
        if (not verbatim or base > at) and not verify_crc(records, start, stop):
            gap = Gap(at, after, pid, term, marker, when)
            yield RejectedBatch(
                base, f"the CRC of the batch at offset {base} does not match its bytes", gap=gap, damaged=True
            )
            continue
        if base > at:
            yield Gap(at, base, pid, term, marker, when, key)
        if void:
            yield Gap(start_at, after, pid, term, marker, when)
            continue
        if whole and not header.attributes & LOG_APPEND_TIME:
            view = records[start:stop]
            if verbatim:
                zero_base_offset(view)
                yield PreparedBatch(base, after, view, header.crc, header.producer_id, term, marker, when)
            else:
                crc = rewrite_header(view, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, base % SEQUENCES)
                yield PreparedBatch(base, after, view, crc, pid, term, marker, when)
            continue
        if ours and start_at != base and not inside:
            cause = f"the target ends at {start_at}, inside the source's batch {base}..{after - 1} of term {term}"
            yield RejectedBatch(base, cause, diverged=True)
            return
        inside = False  # only the first batch was compared
        made = rebuilt(records[start:stop], header, start_at, after, producer_id=pid, term=term, marker=marker)
        if isinstance(made, RejectedBatch):
            made = msgspec.structs.replace(made, gap=Gap(start_at, after, pid, term, marker, when))
        yield made


def gap_of_batch(prepared: PreparedBatch, now_ms: int) -> Gap:
    """Return a gap over a batch's offsets. Its fillers get the time ``now_ms``, since the batch's may be invalid."""
    return Gap(prepared.base, prepared.stop, prepared.producer_id, prepared.term, prepared.marker, now_ms)
