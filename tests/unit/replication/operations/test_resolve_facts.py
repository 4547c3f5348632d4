"""Which batch stops a log, of those that its sources have: ``fairlead link resolve --skip`` keeps that one."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.operations.resolve.facts import offending_batch
from replication.operations.resolve.plan import ResolveSource

LOG = TopicPartition("boxes.BIGU1000010")


def batch(offset: int, *, damaged: bool = False) -> bytes:
    """Return a stored batch of five records."""
    made = bytearray(term_batch([NewRecord(b"x", timestamp_ms=1)] * 5, term=1, offset=offset, marker=0))
    struct.pack_into(">q", made, 0, offset)
    made[-1] ^= 0xFF if damaged else 0
    return bytes(made)


class Site:
    """A cluster that has some batches of the log."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = batches

    async def fetch(self, positions: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, FetchedPartition]:
        rest = b"".join(each for each in self.batches if parse_header(each).next_offset > positions[LOG])
        return {LOG: FetchedPartition(0, 100, 100, 0, (), memoryview(bytearray(rest)))}


Found = tuple[OffsetRange | None, str]


async def offending(monkeypatch: pytest.MonkeyPatch, sites: Mapping[str, Site], end: int, *, damaged: bool) -> Found:
    @contextlib.asynccontextmanager
    async def connection(site: Site) -> AsyncIterator[Site]:
        yield site

    async def opened(endpoint: KafkaEndpoint, **_: Any) -> contextlib.AbstractAsyncContextManager[Site]:
        return connection(sites[endpoint.site])

    monkeypatch.setattr(Cluster, "open", opened)
    sources = [ResolveSource(f"{site}->here", site, {0: OffsetRange(0, 15)}) for site in sites]
    return await offending_batch(
        sources, lambda site: KafkaEndpoint(site, (("127.0.0.1", 1),)), LOG, end, damaged=damaged
    )


async def test_the_damaged_batch_is_found_at_the_end_and_right_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = {"tokyo": Site(batch(0), batch(5, damaged=True), batch(10))}
    for end in (5, 10):
        found = await offending(monkeypatch, sites, end, damaged=True)
        assert found == (OffsetRange(5, 10), "tokyo->here")


async def test_a_whole_batch_is_never_skipped_for_a_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log went on over another link: what follows its end is whole, and stays."""
    sites = {"tokyo": Site(batch(0, damaged=True), batch(5), batch(10))}
    assert await offending(monkeypatch, sites, 10, damaged=True) == (None, "")


async def test_of_a_batch_that_the_target_refuses_a_whole_copy_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = {"tokyo": Site(batch(0), batch(5, damaged=True)), "oakland": Site(batch(0), batch(5))}
    found = await offending(monkeypatch, sites, 5, damaged=False)
    assert found == (OffsetRange(5, 10), "oakland->here")
