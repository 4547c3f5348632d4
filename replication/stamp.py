"""Another producer and sequence for a batch, in its header alone. Pure functions."""

from __future__ import annotations

import struct
from typing import Final

from fairlead.wire.batch import (
    CONTROL,
    CRC_AT,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    crc_of,
    zero_base_offset,
)
from fairlead.wire.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from replication.item import SEQUENCES

_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_ATTRIBUTES_LOW_BYTE: Final = 22
_PRODUCER_AT: Final = 43


def restamp(batch: memoryview, producer_id: int, term: int, sequence: int) -> int:
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


def is_plain(header: Header) -> bool:
    """Whether a replica of this batch has, as a rule, the same bounds and ``canonical_crc``: it was neither rebuilt
    nor voided when it was copied, nor written anew by the broker's cleaner since. The exception is a batch that was
    above the target's size limit: its replica is several batches (``replication.rebuild.split_item``)."""
    return not header.attributes & (CONTROL | TRANSACTIONAL | LOG_APPEND_TIME | DELETE_HORIZON) and not header.has_holes


def canonical_crc(batch: memoryview, header: Header) -> int:
    """The CRC that every replica of this batch has: its own for Fairlead's, the restamped one for any other.

    Changes a foreign batch in place.
    """
    if header.producer_id in (PRODUCER_ID, FOREIGN_PRODUCER_ID):
        return header.crc
    return restamp(batch, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, header.base_offset % SEQUENCES)
