"""A copy that begins above offset 0 is positioned by fillers; what if the replicator ends before it has a record."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, marker_record, term_batch
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import POSITION_KEY, Gap, PreparedBatch
from replication.batch.rebuild import MAX_FILLER, fillers
from replication.link.fetcher import Fetcher
from replication.link.link_logs import LinkLogs
from replication.states import LogState
from replication.target import appender as appender_module
from replication.target.appender import TargetAppender
from replication.target.gaps import positions
from replication.target.mirror import Feed, MirrorPartition
from tests.support.kafka.fake_broker import until
from tests.support.replication.broker import Broker, running
from tests.support.replication.scripted import FakeLinkLogs, Source
from tests.support.replication.source_logs import NOW, Made, SourceLog, body
from tests.support.replication.source_logs import stored as kept
from topologies.model import Priority

LOG = TopicPartition("orders.europe")


class Logged(Source):
    """A source that answers each fetch from its log."""

    def __init__(self, batches: list[bytes], end: int) -> None:
        super().__init__(end=end, log=LOG)
        self.history = SourceLog(batches, end=end)

    def grow(self, batch: bytes, end: int) -> None:
        self.history.batches.append(batch)
        self.end = end

    async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        await asyncio.sleep(0)
        if (at := self.followed.get(LOG, self.end)) >= self.end:
            return {}
        records, aborted = self.history.answer(at, 9)
        return {LOG: FetchedPartition(0, self.end, self.end, 0, tuple(aborted), records)}

    async def fetch(self, positions: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, FetchedPartition]:
        records = self.history.answer(positions[LOG], 1)[0]
        return {LOG: FetchedPartition(0, self.end, self.end, 0, (), records)}

    async def offsets_at(self, times: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(times, self.end)


def record(offset: int) -> bytes:
    return kept(offset, offset, [Made(offset, NOW + offset, body(b"k", b"%d" % offset))])


@contextlib.asynccontextmanager
async def following(source: Source, broker: Broker, start: str) -> AsyncIterator[MirrorPartition]:
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.NORMAL)
        await appender.load_ends([replica])
        link = cast(LinkLogs, FakeLinkLogs("a->b", start=start))
        fetcher = Fetcher(link, Priority.NORMAL, cast(Cluster, source), appender)
        fetcher.follow(replica)
        task = asyncio.create_task(fetcher.run())
        try:
            yield replica
        finally:
            task.cancel()


def positioned(stop: int, batches: int | None = None, producer: int = FOREIGN_PRODUCER_ID) -> Broker:
    """Return a target with the first of the fillers up to an offset."""
    broker = Broker(random.Random(1))  # noqa: S311
    term = FOREIGN_EPOCH if producer == FOREIGN_PRODUCER_ID else 1
    for each in [*fillers(Gap(0, stop, producer, term, 0, 1, POSITION_KEY))][:batches]:
        assert broker.log(*LOG).append(bytes(each.data)).base_offset == each.base
    return broker


@pytest.mark.parametrize("start", ["end", "latest", "2026-01-01T00:00:00Z"])
@pytest.mark.parametrize("at", [250_000, 2 * MAX_FILLER])
async def test_fillers_of_which_some_are_missing_are_completed(start: str, at: int) -> None:
    """The log begins where the link begins now, and not behind the last filler: what is there was to be left out."""
    source, broker = Logged([record(0), record(150_000), record(at - 1)], at), positioned(at, 1)
    async with following(source, broker, start) as replica:
        await until(lambda: source.asked or replica.end == at)
        source.grow(record(at), at + 1)
        await until(lambda: replica.end == at + 1)
        assert replica.trouble is None
        first = at - 1 if start == "latest" else at
        await until(lambda: broker.log(*LOG).start == first)
    assert len(broker.log(*LOG).batches) == at + 1 - first


@pytest.mark.parametrize("at", [250_000, 2 * MAX_FILLER])
async def test_the_end_where_a_link_begins_is_decided_once(at: int) -> None:
    """The fillers are complete; what the source has got meanwhile is copied."""
    source, broker = Logged([record(each) for each in (0, at - 1, at, at + 1)], at + 2), positioned(at)
    async with following(source, broker, "end") as replica:
        await until(lambda: replica.end == at + 2)
        await until(lambda: broker.log(*LOG).start == at)
        assert replica.trouble is None
    assert len(broker.log(*LOG).batches) == 2


@pytest.mark.parametrize("start", ["end", "latest"])
async def test_fillers_up_to_a_term_are_not_all(start: str) -> None:
    """Those before the term are batches of their own; some are missing when the last that is here is one of them."""
    marker, since = [marker_record(b"m", timestamp_ms=NOW)], [NewRecord(b"n", timestamp_ms=NOW)]
    batches = [
        struct.pack(">q", at) + term_batch(records, term=2, offset=at, marker=5)[8:]
        for at, records in ((5, marker), *((at, since) for at in range(6, 10)))
    ]
    source, broker = Logged(batches, 10), Broker(random.Random(1))  # noqa: S311
    first = next(fillers(Gap(0, 9, PRODUCER_ID, 2, 5, 1, POSITION_KEY)))
    broker.log(*LOG).append(bytes(first.data))
    assert broker.log(*LOG).end == 5
    async with following(source, broker, start) as replica:
        await until(lambda: replica.end == 10)
        assert replica.trouble is None
        await until(lambda: broker.log(*LOG).start == 9)


async def test_fillers_of_an_earlier_release_are_complete_when_they_were_trimmed() -> None:
    """Its last ones could be full. All but the last offset were deleted when they were complete."""
    at = 2 * MAX_FILLER
    source, broker = Logged([record(each) for each in (at - 1, at, at + 1)], at + 2), positioned(at + 1, 2)
    broker.log(*LOG).delete_before(at - 1)
    async with following(source, broker, "end") as replica:
        await until(lambda: replica.end == at + 2)
        await until(lambda: broker.log(*LOG).start == at)
        assert replica.trouble is None
    assert len(broker.log(*LOG).batches) == 2


async def test_a_log_that_ends_with_a_batch_as_large_as_fillers_is_compared() -> None:
    broker = Broker(random.Random(1))  # noqa: S311
    for each in fillers(Gap(0, MAX_FILLER, FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0, 1)):
        broker.log(*LOG).append(bytes(each.data))
    source = Logged([*broker.log(*LOG).batches, record(MAX_FILLER)], MAX_FILLER + 1)
    async with following(source, broker, "end") as replica:
        await until(lambda: replica.end == MAX_FILLER + 1)
    assert (broker.log(*LOG).start, replica.trouble) == (0, None)


@pytest.mark.parametrize("start", ["earliest", "end"])
async def test_fillers_that_end_inside_a_batch_of_the_source_are_followed_by_its_rest(start: str) -> None:
    """Another source, or an earlier setting of the link, made them; they agree with everything."""
    new = [marker_record(b"m", timestamp_ms=NOW)], [NewRecord(b"%d" % n, timestamp_ms=NOW) for n in range(1, 10)]
    batches = [
        struct.pack(">q", at) + term_batch(records, term=1, offset=at, marker=0)[8:]
        for at, records in zip((0, 1), new, strict=True)
    ]
    source, broker = Logged(batches, 10), positioned(5, producer=PRODUCER_ID)
    async with following(source, broker, start) as replica:
        await until(lambda: replica.end == 10 or replica.trouble is not None)
        assert replica.trouble is None
        await until(lambda: broker.log(*LOG).start == 5)
    assert len(broker.log(*LOG).batches) == 1


async def test_what_another_link_brings_while_fillers_are_read_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fillers agree with everything, but not the record that is behind them when they have been read."""
    source, broker = Logged([record(each) for each in range(8)], 8), positioned(5)
    other = kept(5, 5, [Made(5, NOW, body(b"k", b"other"))])
    steps = [each for each in prepare_batches(memoryview(bytearray(other)), 5) if isinstance(each, PreparedBatch)]
    feed = cast(Feed, SimpleNamespace(name="c->b", rewind=lambda *_: None, on_appended=lambda *_: None))
    real = TargetAppender.batch_at

    async def batch_at(self: TargetAppender, tp: TopicPartition, offset: int) -> memoryview | None:
        found = await real(self, tp, offset)
        if (replica := self.replicas[tp]).end == 5:
            replica.holds_only_fillers(5)
            self.submit_steps(replica, [*steps], feed)
            await until(lambda: replica.end == 6)
        return found

    monkeypatch.setattr(TargetAppender, "batch_at", batch_at)
    async with following(source, broker, "earliest") as replica:
        await until(lambda: replica.trouble is not None or replica.end == 8)
        assert replica.trouble is not None and replica.trouble.state is LogState.DIVERGED
    assert broker.log(*LOG).end == 6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start", ["end", "latest"])
async def test_a_target_that_fails_meanwhile_gets_nothing_older(
    seed: int, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the fillers are stored and others not when its connection is lost, or its answers are."""
    monkeypatch.setattr(appender_module, "BACKOFF", (0.0,))
    at = 1_200_000
    broker = Broker(random.Random(seed), trouble=0.3)  # noqa: S311
    source = Logged([record(0), record(at // 2), record(at - 1)], at)
    async with following(source, broker, start) as replica:
        await until(lambda: source.asked)
        source.grow(record(at), at + 1)
        await until(lambda: replica.end == at + 1)
        assert replica.trouble is None
    records = [parse_header(each).base_offset for each in broker.log(*LOG).batches if not positions(each)]
    assert min(records, default=at) >= at - 1
