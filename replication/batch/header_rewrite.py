"""Give a batch another producer and sequence by changing its header only. Pure.

Records of ordinary clients are appended under ``FOREIGN_PRODUCER_ID``, with the offset as the sequence. Ordinary
clients may have written the log here in between, if a link was reversed and reversed back. Then the broker remembers
that id with an older sequence and refuses to continue, so another id of the same range is used. Batches are compared by
the checksum that they would have under the usual id (``canonical_crc``). All replicators of a target choose the same
id, because the choice depends only on the broker's producer state.

An id whose epoch was raised is used up. When a log is promoted or failed over, a filler of ``FENCE_EPOCH`` raises it,
so a replicator that was suspended meanwhile appends nothing.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from typing import Final

from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.batch import (
    CONTROL,
    CRC_AT,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    crc_of,
    zero_base_offset,
)
from fairlead.kafka.protocol.types import ProducerState
from replication.batch.prepared import SEQUENCES

_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_ATTRIBUTES_LOW_BYTE: Final = 22
_PRODUCER_AT: Final = 43


def rewrite_header(batch: memoryview, producer_id: int, term: int, sequence: int) -> int:
    """Set a batch's producer and sequence in place, and its base offset to 0; return the new CRC.

    Clears the bits for transactions and delete horizons, which mean nothing in a copy. (A delete horizon replaces the
    first record's time; the records' times are relative to it and stay right.)
    """
    zero_base_offset(batch)
    batch[_ATTRIBUTES_LOW_BYTE] &= ~(TRANSACTIONAL | DELETE_HORIZON) & 0xFF
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, term, sequence)
    crc = crc_of(batch)
    _CRC.pack_into(batch, CRC_AT, crc)
    return crc


def is_plain(header: BatchHeader) -> bool:
    """Return whether a replica of this batch normally has the same bounds and ``canonical_crc``.

    Such a batch was neither rebuilt nor made a gap when it was copied, nor rewritten by the broker's cleaner. The
    exception is a batch above the target's size limit, whose replica is several batches (``rebuild.split_batch``).
    """
    return not header.attributes & (CONTROL | TRANSACTIONAL | LOG_APPEND_TIME | DELETE_HORIZON) and not header.has_holes


def is_usual(header: BatchHeader) -> bool:
    """Return whether a batch has the producer id and epoch that copies of ordinary clients' batches usually have."""
    return (header.producer_id, header.producer_epoch) == (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH)


def canonical_crc(records: Buffer, header: BatchHeader) -> int:
    """Return the CRC by which copies of the first batch of ``records`` are compared.

    For batches of Fairlead's writers, and copies with the usual producer id and epoch, it is the batch's own. For all
    others it is the CRC that the batch would have with the usual ones.
    """
    if header.producer_id == PRODUCER_ID or is_usual(header):
        return header.crc
    batch = memoryview(bytearray(records[: header.size]))
    return rewrite_header(batch, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, header.base_offset % SEQUENCES)


RANGE: Final = 2**16


def is_foreign(producer_id: int) -> bool:
    """Return whether the id is one that replicators use for ordinary clients' batches."""
    return FOREIGN_PRODUCER_ID <= producer_id < FOREIGN_PRODUCER_ID + RANGE


def is_ordinary(producer_id: int) -> bool:
    """Return whether the id is an ordinary client's own."""
    return producer_id != PRODUCER_ID and not is_foreign(producer_id)


def id_after(end: int, states: Iterable[ProducerState]) -> int:
    """Return the first foreign id that the broker does not know or whose next sequence matches offset ``end``."""
    last = {state.producer_id: (state.epoch, state.last_sequence) for state in states}
    for found in itertools.count(FOREIGN_PRODUCER_ID):
        if last.get(found, usual := (FOREIGN_EPOCH, (end - 1) % SEQUENCES)) == usual:
            return found
    raise AssertionError("counting never ends")
