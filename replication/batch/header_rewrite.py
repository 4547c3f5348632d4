"""Another producer and sequence for a batch, in its header alone; which producer id a replica is written with. Pure.

The records of ordinary clients are appended under ``FOREIGN_PRODUCER_ID``, with the offset as the sequence. But
ordinary clients may have written the log here in between: a link was reversed and reversed back. Then the broker
remembers that id at an older sequence and would refuse to go on. A fresh id of the same range does as well: batches are
compared by what their checksum would be under the usual id (``canonical_crc``). Every replicator of the target chooses
the same id, because the choice follows from the broker's producer state.

An id whose epoch was raised is used up: where a log was promoted or failed over, a filler of ``FENCE_EPOCH`` has ended
it, so a replicator that slept meanwhile appends nothing.
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
    """Give a batch another producer and sequence, in place, base offset 0; returns the new CRC.

    The bits for transactions and delete horizons are cleared: neither means anything in a copy. (A delete horizon
    stands where the first record's time stood; the records' times are relative to it and stay right.)
    """
    zero_base_offset(batch)
    batch[_ATTRIBUTES_LOW_BYTE] &= ~(TRANSACTIONAL | DELETE_HORIZON) & 0xFF
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, term, sequence)
    crc = crc_of(batch)
    _CRC.pack_into(batch, CRC_AT, crc)
    return crc


def is_plain(header: BatchHeader) -> bool:
    """Whether a replica of this batch has, as a rule, the same bounds and ``canonical_crc``: it was neither rebuilt
    nor voided when it was copied, nor written anew by the broker's cleaner since. The exception is a batch that was
    above the target's size limit: its replica is several batches (``replication.batch.rebuild.split_batch``)."""
    return not header.attributes & (CONTROL | TRANSACTIONAL | LOG_APPEND_TIME | DELETE_HORIZON) and not header.has_holes


def is_usual(header: BatchHeader) -> bool:
    """Whether a batch of ordinary clients is as a replica has it."""
    return (header.producer_id, header.producer_epoch) == (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH)


def canonical_crc(records: Buffer, header: BatchHeader) -> int:
    """The CRC by which every copy of a batch is compared, whoever wrote the one that ``records`` begin with.

    The batch's own where Fairlead's writers wrote it or a copy has the usual producer id and epoch; else, for ordinary
    clients' batches, copies with another id of the reserved range (``foreign_id``) and fences, what it is under those.
    """
    if header.producer_id == PRODUCER_ID or is_usual(header):
        return header.crc
    batch = memoryview(bytearray(records[: header.size]))
    return rewrite_header(batch, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, header.base_offset % SEQUENCES)


RANGE: Final = 2**16


def is_foreign(producer_id: int) -> bool:
    """Whether a replicator wrote this for an ordinary client."""
    return FOREIGN_PRODUCER_ID <= producer_id < FOREIGN_PRODUCER_ID + RANGE


def is_ordinary(producer_id: int) -> bool:
    """Whether an ordinary client wrote this itself."""
    return producer_id != PRODUCER_ID and not is_foreign(producer_id)


def id_after(end: int, states: Iterable[ProducerState]) -> int:
    """The first id whose next sequence, as the broker remembers it, is that of offset ``end``, or that is new to it."""
    last = {state.producer_id: (state.epoch, state.last_sequence) for state in states}
    for found in itertools.count(FOREIGN_PRODUCER_ID):
        if last.get(found, usual := (FOREIGN_EPOCH, (end - 1) % SEQUENCES)) == usual:
            return found
    raise AssertionError("counting never ends")
