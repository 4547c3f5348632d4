"""Which batch stops a log, of those that its sources have: ``fairlead link resolve --skip`` keeps that one."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from fairlead.errors import RefusedError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import MAGIC
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.custody.ledger import Ledger
from replication.operations.resolve.facts import _ledger as reading_ledger
from replication.operations.resolve.facts import goes_on, offending_batch
from replication.operations.resolve.plan import ResolveSource
from replication.overrides import ORDERS_TOPIC
from replication.states import LogState, LogTrouble, now
from topologies.model import Topology

LOG = TopicPartition("boxes.BIGU1000010")


def batch(offset: int, *, damaged: bool = False, header: Mapping[int, int] | None = None) -> bytes:
    """Return a stored batch of five records, with bytes of its header changed."""
    made = bytearray(term_batch([NewRecord(b"x", timestamp_ms=1)] * 5, term=1, offset=offset, marker=0))
    struct.pack_into(">q", made, 0, offset)
    made[-1] ^= 0xFF if damaged else 0
    for at, value in (header or {}).items():
        made[at] = value
    return bytes(made)


def base_of(stored: bytes) -> int:
    return int.from_bytes(stored[:8], "big")


def last_of(stored: bytes) -> int:
    """Return the last offset that a broker takes a stored batch to have."""
    return base_of(stored) + (0 if stored[16] < MAGIC else int.from_bytes(stored[23:27], "big", signed=True))


class Site:
    """A cluster that has some batches of the log. A segment has ``in_segment`` of them, and an answer is of one."""

    def __init__(self, *batches: bytes, in_segment: int = 100) -> None:
        self.batches = batches
        self.in_segment = in_segment

    async def fetch(
        self, positions: Mapping[TopicPartition, int], *, partition_max_bytes: int, **_: Any
    ) -> dict[TopicPartition, FetchedPartition]:
        at, step = positions[LOG], self.in_segment
        segments = [self.batches[n : n + step] for n in range(0, len(self.batches), step)]
        after = [each for n, each in enumerate(segments) if n + 1 == len(segments) or base_of(segments[n + 1][0]) > at]
        found = (each[n:] for each in after for n, stored in enumerate(each) if last_of(stored) >= at)
        some = next(found, ())
        size = max(partition_max_bytes, len(some[0]) if some else 0)
        return {LOG: FetchedPartition(0, 15, 15, 0, (), memoryview(bytearray(b"".join(some)[:size])))}


Found = tuple[OffsetRange | None, str]


def upstream(site: str) -> KafkaEndpoint:
    return KafkaEndpoint(site, (("127.0.0.1", 1),))


def sources_of(monkeypatch: pytest.MonkeyPatch, sites: Mapping[str, Site]) -> list[ResolveSource]:
    """Return the sources that have these sites' batches."""

    @contextlib.asynccontextmanager
    async def connection(site: Site) -> AsyncIterator[Site]:
        yield site

    async def opened(endpoint: KafkaEndpoint, **_: Any) -> contextlib.AbstractAsyncContextManager[Site]:
        return connection(sites[endpoint.site])

    monkeypatch.setattr(Cluster, "open", opened)
    return [ResolveSource(f"{site}->here", site, {0: OffsetRange(0, 15)}) for site in sites]


async def offending(monkeypatch: pytest.MonkeyPatch, sites: Mapping[str, Site], end: int, *, damaged: bool) -> Found:
    return await offending_batch(sources_of(monkeypatch, sites), upstream, LOG, end, damaged=damaged)


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


@pytest.mark.parametrize("in_segment", [100, 1], ids=["in one segment", "each in its segment"])
@pytest.mark.parametrize("header", [{16: 1}, {52: 9}], ids=["format", "term"])
async def test_a_batch_with_a_damaged_header_reaches_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch, header: Mapping[int, int], in_segment: int
) -> None:
    sites = {"tokyo": Site(batch(0), batch(5, header=header), batch(10), in_segment=in_segment)}
    assert await offending(monkeypatch, sites, 5, damaged=True) == (OffsetRange(5, 10), "tokyo->here")


@pytest.mark.parametrize("in_segment", [100, 2], ids=["in one segment", "last of its segment"])
@pytest.mark.parametrize(
    "header",
    [{25: 9}, {26: 6}, {26: 6, 16: 3}, {16: 3}, {7: 11, 16: 3}, {7: 99, 16: 3}],
    ids=["far end", "near end", "near end, format", "format", "near base", "far base"],
)
async def test_offsets_in_a_damaged_header_are_not_believed(
    monkeypatch: pytest.MonkeyPatch, header: Mapping[int, int], in_segment: int
) -> None:
    """Sound records would be skipped. A broker finds the next segment whatever the batch claims."""
    sites = {"tokyo": Site(batch(0), batch(5, header=header), batch(10), in_segment=in_segment)}
    assert await offending(monkeypatch, sites, 5, damaged=True) == (OffsetRange(5, 10), "tokyo->here")


async def test_the_end_of_a_damaged_batch_that_fills_an_answer_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged = batch(5, header={26: 6})
    monkeypatch.setattr("replication.target.log_reader.READ_BYTES", len(damaged))
    sites = {"tokyo": Site(batch(0), damaged, batch(10))}
    assert await offending(monkeypatch, sites, 5, damaged=True) == (OffsetRange(5, 10), "tokyo->here")


async def test_the_last_batch_with_a_damaged_header_reaches_to_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sites = {"tokyo": Site(batch(0), batch(5), batch(10, header={16: 1}))}
    assert await offending(monkeypatch, sites, 10, damaged=True) == (OffsetRange(10, 15), "tokyo->here")


@pytest.mark.parametrize("damaged", [False, True])
async def test_the_first_batch_of_a_source_that_begins_later_is_found(
    monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    sources_of(monkeypatch, {"tokyo": Site(batch(5, damaged=damaged), batch(10))})
    later = [ResolveSource("tokyo->here", "tokyo", {0: OffsetRange(7, 15)})]
    assert await offending_batch(later, upstream, LOG, 0, damaged=damaged) == (OffsetRange(5, 10), "tokyo->here")


async def test_where_sources_go_on_that_have_no_records_at_the_end_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = {"tokyo": Site(batch(0), batch(10)), "star": Site(batch(0), batch(5), batch(10))}
    sources = sources_of(monkeypatch, sites)
    assert await offending_batch(sources, upstream, LOG, 5, damaged=True) == (None, "")
    assert await goes_on(sources, upstream, LOG, 5) == {"tokyo->here": 10, "star->here": 5}


async def test_a_batch_that_claims_to_end_before_it_begins_is_a_hole_to_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = sources_of(monkeypatch, {"tokyo": Site(batch(0), batch(5, header={23: 0x80}), batch(10))})
    assert await offending_batch(sources, upstream, LOG, 5, damaged=True) == (None, "")
    assert await goes_on(sources, upstream, LOG, 5) == {"tokyo->here": 10}


async def test_a_plan_is_refused_while_orders_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may have promoted the log."""

    async def damaged(ledger: Ledger, _cluster: Cluster) -> None:
        ledger.overrides.unread = LogTrouble(LogState.UNAVAILABLE, "bad bytes", now(), hint="mend it")
        ledger.ready.set()

    monkeypatch.setattr(Ledger, "run", damaged)
    topology = Topology.model_validate({"name": "one", "sites": {"hq": {"kind": "hq"}}})
    with pytest.raises(RefusedError, match="orders of hq cannot be read: bad bytes") as error:
        async with reading_ledger(topology, "hq", cast(Cluster, None), [ORDERS_TOPIC]):
            pass
    assert error.value.hint == "mend it"
