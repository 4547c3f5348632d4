"""A copy within a site is complete, whatever the log's history and however often copying is interrupted."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import FairleadError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import PRODUCER_ID, is_filler
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch, encode_batch
from fairlead.kafka.protocol.types import ProduceResult, TopicPartition
from replication.operations.resolve.copier import Copier, difference
from tests.support.replication.broker import Broker, Log

LOG, KEPT = TopicPartition("s.a"), TopicPartition("fairlead.kept.s.a.t")
HOLE = "hole"


class Lenient(Log):
    """Accept batches without a producer, too, and know where a log starts."""

    start = 0

    def append(self, batch: bytes) -> ProduceResult:
        header = parse_header(batch)
        if header.producer_id >= 0:
            return super().append(batch)
        assert header.base_offset == 0
        base = self.place(batch, self.end)
        return ProduceResult(0, base, -1)

    def place(self, batch: bytes, base: int) -> int:
        """Store a batch without any check, as its origin does not matter."""
        self.batches.append(struct.pack(">q", base) + batch[8:])
        self.end = base + parse_header(batch).count
        return base

    def at(self, offset: int) -> bytes:
        """Return, as a broker does, the batch that contains the offset, or the first one after it."""
        return next((each for each in self.batches if parse_header(each).next_offset > offset), b"")


class Site(Broker):
    def log(self, topic: str, partition: int = 0) -> Lenient:
        made = self.logs.setdefault(TopicPartition(topic, partition), Lenient())
        assert isinstance(made, Lenient)
        return made

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.log(*tp).start for tp in logs}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        for tp, offset in before.items():
            log = self.log(*tp)
            assert log.start < offset < log.end, "a log must not be emptied"
            log.start = offset
        return dict(before)


def batch(producer: int, epoch: int, sequence: int, first: int, count: int) -> bytes:
    some = [NewRecord(value=b"v%d" % n, key=b"k", timestamp_ms=1000 + n) for n in range(first, first + count)]
    return encode_batch(some, producer_id=producer, epoch=epoch, sequence=sequence)


BATCHES = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([PRODUCER_ID, 7, -1]), st.integers(0, 2), st.sampled_from([0, 1, 5, 40]), st.integers(1, 4)
        ),
        st.tuples(st.just(HOLE), st.just(0), st.just(0), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=12,
)


@given(BATCHES, st.integers(0, 40), st.integers(0, 10_000))
def test_every_history_is_kept(history: Sequence[Any], cut: int, seed: int) -> None:
    """Every history of a log is copied completely."""
    site: Any = Site(random.Random(seed), trouble=0.2)  # noqa: S311
    original = site.log(*LOG)
    for producer, epoch, sequence, count in history:
        if producer == HOLE:
            original.end += count  # compaction has removed whole batches
        else:
            made = batch(producer, epoch, sequence, original.end, count)
            original.place(made, original.end)
    original.start = min(cut, original.end)
    extent = OffsetRange(original.start, original.end)
    has_records = any(parse_header(each).next_offset > extent.start for each in original.batches)

    async def keep() -> str:
        for _ in range(200):
            try:
                await Copier(site).copy(LOG, KEPT, extent)
            except FairleadError as error:
                assert error.retriable, error
            else:
                return await difference(site, LOG, KEPT, extent)
        raise AssertionError("the copy does not come to an end")

    assert asyncio.run(keep()) == ""
    copy = site.log(*KEPT)
    assert data(copy, extent) == data(original, extent)
    if has_records:
        assert copy.end == parse_header(original.batches[-1]).next_offset
        assert copy.start == extent.start


def data(log: Lenient, extent: OffsetRange) -> list[Record]:
    found = [record for each in log.batches for record in decode_batch(each)]
    return [record for record in found if not is_filler(record) and extent.start <= record.offset < extent.end]
