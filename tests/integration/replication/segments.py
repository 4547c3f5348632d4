"""A broker's files, changed while it is stopped, as disks and cleaners change them: damage, and tails that are gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from fairlead.kafka.protocol.batch import BatchView, split
from fairlead.local.sites import LocalSites, SiteSpec
from tests.integration.conftest import USERS

_MADE_ANEW: Final = ("*.index", "*.timeindex", "*.snapshot", "*.txnindex")


@contextlib.asynccontextmanager
async def stopped(sites: LocalSites, site: str) -> AsyncIterator[None]:
    """A site while it is stopped, cleanly; so its broker takes its files as they are when it starts again."""
    await asyncio.to_thread(sites.down, [site])
    try:
        yield
    finally:
        await asyncio.to_thread(sites.up, [SiteSpec(site, USERS)])


def damage(sites: LocalSites, site: str, topic: str, offset: int, *, at: int = -1) -> bytes:
    """Change one byte of the batch with this base offset, the last one or that at ``at``; the batch as it is now."""
    segment = _segment(sites, site, topic)
    data = bytearray(segment.read_bytes())
    found = _batch(data, offset)
    data[found.stop + at if at < 0 else found.start + at] ^= 0xFF
    segment.write_bytes(data)
    return bytes(data[found.start : found.stop])


def lose_tail(sites: LocalSites, site: str, topic: str, offset: int, end: int) -> None:
    """Leave nothing from a batch's base offset on, and let the log end at ``end`` all the same: as the cleaner leaves
    a log of which all but the active segment, which is empty, has been compacted away."""
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
