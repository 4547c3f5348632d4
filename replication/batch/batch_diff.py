"""Are two stored batches parts of one history? The question after "their CRCs differ". Pure functions.

Equal CRCs prove equality, different ones prove nothing where a copy had to be written again: a batch with gaps that
were filled, LogAppendTime, a batch split because it was too large here, a batch that the broker's cleaner has gone
over. Then records decide: at every offset that both have, the same bytes and the same time. A filler agrees with
anything, because one of the two sites had lost the record by compaction before the other.
"""

from __future__ import annotations

import struct

from fairlead.errors import FairleadError
from fairlead.kafka.convention import PRODUCER_ID, marker_offset
from fairlead.kafka.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, Buffer, parse_header
from replication.batch.prepared import PreparedBatch, same_marker
from replication.batch.rebuild import RawRecord, raw_records


def conflict(source: Buffer, target: Buffer) -> str:
    """What contradicts in two batches of one log, as fetched from two sites; empty when nothing does.

    Only offsets at which both have a record that is no filler count. There, Fairlead's own batches must be of one term,
    and the records the same. Transactional and control batches contradict nothing: what they are worth is told by the
    fetch, not by them.
    """
    here, there = parse_header(source), parse_header(target)
    if min(here.next_offset, there.next_offset) <= max(here.base_offset, there.base_offset):
        return ""
    if (here.attributes | there.attributes) & (CONTROL | TRANSACTIONAL):
        return ""
    try:
        other = {record.offset: record for record in raw_records(target) if not record.is_filler}
        pairs = [
            (record, other[record.offset])
            for record in raw_records(source)
            if record.offset in other and not record.is_filler
        ]
    except FairleadError as error:
        return f"they cannot be compared: {error.what}"
    return (_terms(here, there) or _records(pairs)) if pairs else ""


def prepared_conflict(prepared: PreparedBatch, stored: Buffer) -> str:
    """``conflict`` for what was to be appended and what is there."""
    source = bytearray(prepared.data)
    struct.pack_into(">q", source, 0, prepared.base)
    return conflict(source, stored)


def _terms(source: BatchHeader, target: BatchHeader) -> str:
    ours = source.producer_id == PRODUCER_ID
    if ours != (target.producer_id == PRODUCER_ID):
        return f"they were written by producers {source.producer_id} (source) and {target.producer_id} (here)"
    if ours and source.producer_epoch != target.producer_epoch:
        return f"they are of term {source.producer_epoch} (source) and term {target.producer_epoch} (here)"
    if ours and not same_marker(marker_offset(source), marker_offset(target)):
        return (
            f"term {source.producer_epoch} began at {marker_offset(source)} (source) and at {marker_offset(target)} "
            "(here)"
        )
    return ""


def _records(pairs: list[tuple[RawRecord, RawRecord]]) -> str:
    for source, target in pairs:
        if source.timestamp_ms != target.timestamp_ms:
            return f"the records at offset {source.offset} have the times {source.timestamp_ms} (source) and " + (
                f"{target.timestamp_ms} (here)"
            )
        if source != target:
            return f"the records at offset {source.offset} are different"
    return ""
