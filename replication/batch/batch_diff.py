"""Compare two stored batches of one log by their records. Pure functions.

Equal CRCs prove equality. Different CRCs prove nothing if a copy was rewritten: gaps were filled, LogAppendTime was
replaced, the batch was too large and was split, or the broker's cleaner rewrote it. Then the records are compared: at
every offset that both have, bytes and time must be equal. A filler agrees with any record, because one site may have
lost the record by compaction before the other.
"""

from __future__ import annotations

import struct

from fairlead.errors import FairleadError
from fairlead.kafka.convention import FENCE_EPOCH, PRODUCER_ID, marker_offset
from fairlead.kafka.protocol.batch import BatchHeader, Buffer, parse_header
from replication.batch.header_rewrite import is_foreign
from replication.batch.prepared import PreparedBatch, same_marker
from replication.batch.rebuild import RawRecord, raw_records


def conflict(source: Buffer, target: Buffer, *, fences: bool = True) -> str:
    """Return how two batches of one log from two sites contradict each other; empty if they do not.

    Only offsets count at which both have a record other than a filler, or one a fence in place of the other's record
    (unless ``fences`` is False): no site has lost that one by compaction. There, Fairlead's own batches must be of one
    term, and the records must be equal. A control batch and an aborted transaction have fillers for copies; so a record
    beside a control batch is a contradiction, too.
    """
    here, there = parse_header(source), parse_header(target)
    first, stop = max(here.base_offset, there.base_offset), min(here.next_offset, there.next_offset)
    if stop <= first:
        return ""
    fenced = fences and (_is_fence(here) or _is_fence(there))
    agree = all if fenced else any
    try:
        ours, others = raw_records(source), {record.offset: record for record in raw_records(target)}
        if here.is_control or there.is_control:
            beside = (record for record in (*ours, *others.values()) if first <= record.offset < stop)
            if any(not record.is_filler for record in beside):
                return f"at offset {first} one of them ends a transaction, and the other has a record"
        both = [(record, others[record.offset]) for record in ours if record.offset in others]
        pairs = [pair for pair in both if not agree(record.is_filler for record in pair)]
    except FairleadError as error:
        return f"they cannot be compared: {error.what}"
    return (_terms(here, there) or _records(pairs)) if pairs else ""


def prepared_conflict(prepared: PreparedBatch, stored: Buffer) -> str:
    """Return the ``conflict`` between a prepared batch and the stored one; empty if there is none. A fence that was
    appended before it is none: the log may have been promoted meanwhile."""
    source = bytearray(prepared.data)
    struct.pack_into(">q", source, 0, prepared.base)
    return conflict(source, stored, fences=False)


def _is_fence(header: BatchHeader) -> bool:
    return is_foreign(header.producer_id) and header.producer_epoch == FENCE_EPOCH


def _terms(source: BatchHeader, target: BatchHeader) -> str:
    ours = source.producer_id == PRODUCER_ID
    if ours != (target.producer_id == PRODUCER_ID):
        return f"their producer ids are {source.producer_id} (source) and {target.producer_id} (here)"
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
