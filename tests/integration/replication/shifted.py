"""Logs that have been written for years: the files of a stopped broker, moved to higher offsets.

Filling a log up to offset 2^31 takes ten minutes at a broker's best. Its files need only other names and other base
offsets, which are outside the CRC.
"""

from __future__ import annotations

import struct
from pathlib import Path

from fairlead.kafka.protocol.batch import crc_of, split
from fairlead.local.sites import LocalSites


def shift(sites: LocalSites, site: str, topic: str, by: int, *, sequences: bool) -> None:
    """Let the log of a stopped site begin at offset ``by``: everything in it moves up by that much.

    Args:
        sequences: The sequences move as well, as if the same producer had written all that is missing.
    """
    folder = sites.folder / "sites" / site / "kafka" / "data" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    data = bytearray(segment.read_bytes())
    for start, stop, header in split(bytes(data)):
        struct.pack_into(">q", data, start, header.base_offset + by)
        if sequences:
            struct.pack_into(">i", data, start + 53, (header.base_sequence + by) % 2**31)
            struct.pack_into(">I", data, start + 17, crc_of(data[start:stop]))
    for pattern in ("*.log", "*.index", "*.timeindex", "*.snapshot", "*.txnindex"):
        for file in folder.glob(pattern):
            file.unlink()
    (folder / f"{by:020}.log").write_bytes(data)
    epochs = folder / "leader-epoch-checkpoint"
    version, count, *entries = epochs.read_text().split("\n")
    moved = [f"{epoch} {int(at) + by}" for epoch, at in (entry.split() for entry in entries if entry)]
    epochs.write_text("\n".join([version, count, *moved, ""]))
    _forget(folder.parent / "recovery-point-offset-checkpoint", topic)
    _forget(folder.parent / "replication-offset-checkpoint", topic)
    _forget(folder.parent / "log-start-offset-checkpoint", topic)


def _forget(checkpoint: Path, topic: str) -> None:
    """Take a log out of one of the broker's lists of offsets."""
    if not checkpoint.exists():
        return
    version, _, *entries = checkpoint.read_text().splitlines()
    kept = [entry for entry in entries if not entry.startswith(f"{topic} ")]
    checkpoint.write_text("\n".join([version, str(len(kept)), *kept, ""]))
