"""Record batches that a test changes."""

from __future__ import annotations

import struct

from fairlead.kafka.protocol.batch import CRC_AT, LENGTH_FROM, crc_of


def seal(batch: bytearray) -> None:
    """Write length and CRC of a changed batch into its header, in place."""
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_FROM)
    struct.pack_into(">I", batch, CRC_AT, crc_of(batch))
