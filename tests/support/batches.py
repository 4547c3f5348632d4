"""Record batches that a test changes or makes itself."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, sequence
from fairlead.kafka.protocol.batch import CRC_AT, LENGTH_FROM, crc_of
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, encode_batch


def seal(batch: bytearray) -> None:
    """Write length and CRC of a changed batch into its header, in place."""
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_FROM)
    struct.pack_into(">I", batch, CRC_AT, crc_of(batch))


def foreign_batch(records: Sequence[NewRecord], *, offset: int, codec: Codec = Codec.NONE) -> bytes:
    """Encode the batch that appends ``records`` at ``offset`` in a replica of a log that ordinary clients write."""
    return encode_batch(
        records, producer_id=FOREIGN_PRODUCER_ID, epoch=FOREIGN_EPOCH, sequence=sequence(offset, 0), codec=codec
    )
