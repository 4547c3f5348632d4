"""Move the logs of a stopped broker to higher offsets, as if they had been written for years.

Filling a log up to offset 2^31 takes at least ten minutes. The files only need other names and other base offsets,
which the CRC does not cover.
"""

from __future__ import annotations

import struct
from pathlib import Path

from fairlead.kafka.protocol.batch import crc_of, split
from fairlead.local.sites import LocalSites


def shift(sites: LocalSites, site: str, topic: str, by: int, *, sequences: bool) -> None:
    """Let the log of a stopped site begin at offset ``by``: all its offsets grow by that number.

    Args:
        sequences: Whether the sequences grow too, as if the same producer had written the missing records.
    """
    folder = sites.folder / "sites" / site / "kafka" / "data" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    data = bytearray(segment.read_bytes())
    for batch in split(bytes(data)):
        start, stop, header = batch.start, batch.stop, batch.header
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
    """Remove a log from one of the broker's checkpoint files."""
    if not checkpoint.exists():
        return
    version, _, *entries = checkpoint.read_text().splitlines()
    kept = [entry for entry in entries if not entry.startswith(f"{topic} ")]
    checkpoint.write_text("\n".join([version, str(len(kept)), *kept, ""]))
