"""Change a stopped broker's files as failing disks and the log cleaner do: damage a batch, remove a tail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from fairlead.kafka.protocol.batch import BatchView, split
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.sites import USERS

_MADE_ANEW: Final = ("*.index", "*.timeindex", "*.snapshot", "*.txnindex")


@contextlib.asynccontextmanager
async def stopped(sites: LocalSites, site: str) -> AsyncIterator[None]:
    """Stop a site cleanly for the time of the block, so that its broker accepts the files unchecked when it starts."""
    await asyncio.to_thread(sites.down, [site])
    try:
        yield
    finally:
        await asyncio.to_thread(sites.up, [SiteSpec(site, USERS)])


def damage(sites: LocalSites, site: str, topic: str, offset: int, *, at: int = -1, bits: int = 0xFF) -> bytes:
    """Change bits of the byte at ``at`` (by default the last) of the batch with this base offset; return the changed
    batch."""
    segment = _segment(sites, site, topic)
    data = bytearray(segment.read_bytes())
    found = _batch(data, offset)
    data[found.stop + at if at < 0 else found.start + at] ^= bits
    segment.write_bytes(data)
    return bytes(data[found.start : found.stop])


def lose_tail(sites: LocalSites, site: str, topic: str, offset: int, end: int) -> None:
    """Remove everything from a batch's base offset on, but let the log still end at ``end``: the state after the
    cleaner has removed the last records before an empty active segment."""
    segment = _segment(sites, site, topic)
    data = segment.read_bytes()
    segment.write_bytes(data[: _batch(data, offset).start])
    for pattern in _MADE_ANEW:
        for file in segment.parent.glob(pattern):
            file.unlink()
    (segment.parent / f"{end:020}.log").touch()


def _segment(sites: LocalSites, site: str, topic: str) -> Path:
    (segment,) = (sites.folder / "sites" / site / "kafka" / "data" / f"{topic}-0").glob("*.log")
    return segment


def _batch(data: bytes | bytearray, offset: int) -> BatchView:
    return next(each for each in split(bytes(data)) if each.header.base_offset == offset)
