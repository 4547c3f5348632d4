"""Reading: records of fetched batches, one log to its end, many logs as they grow."""

from __future__ import annotations

import asyncio
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.guard import tails
from fairlead.kafka.client.reader import Tail, decode_fetched, extents, read_log, sweep
from fairlead.kafka.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, Record, encode_batch
from fairlead.kafka.protocol.types import TP, FetchedPartition
from tests.support.batches import seal
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import A, B, batch, damage


def stored(base: int, count: int = 1, *, producer: int = -1, attributes: int = 0) -> bytes:
    records = [NewRecord(b"%d" % (base + index), timestamp_ms=5) for index in range(count)]
    out = bytearray(encode_batch(records, producer_id=producer, epoch=0, sequence=0))
    struct.pack_into(">h", out, 21, attributes)
    seal(out)
    struct.pack_into(">q", out, 0, base)
    return bytes(out)


def fetched(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedPartition:
    return FetchedPartition(0, 100, 100, 0, aborted, memoryview(bytearray(b"".join(batches))))


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


@given(st.integers(0, 9), st.integers(0, 70))
def test_reading_begins_and_ends_inside_batches(start: int, cut: int) -> None:
    whole = stored(0, 3) + stored(3, 4) + stored(7, 3)
    last_size = len(stored(7, 3))
    content = fetched(whole[: len(whole) - cut])
    records, after = decode_fetched(A, content, start)
    end = 10 if cut == 0 else 7
    assert cut < last_size
    assert offsets(records) == list(range(start, end))
    assert after == max(start, end)


def test_holes_left_by_compaction_are_passed_over() -> None:
    records, after = decode_fetched(A, fetched(stored(0), stored(5), stored(9)), 0)
    assert (offsets(records), after) == ([0, 5, 9], 10)


def test_aborted_transactions_and_control_batches_are_left_out() -> None:
    content = fetched(
        stored(0, producer=1, attributes=TRANSACTIONAL),
        stored(1, producer=2, attributes=TRANSACTIONAL),
        stored(2, producer=1, attributes=TRANSACTIONAL | CONTROL),
        stored(3, producer=1, attributes=TRANSACTIONAL),
        stored(4),
        stored(5, producer=1, attributes=TRANSACTIONAL | CONTROL),
        aborted=((1, 0),),
    )
    records, after = decode_fetched(A, content, 0)
    assert (offsets(records), after) == ([1, 3, 4], 6)
    assert offsets(decode_fetched(A, msgspec.structs.replace(content, aborted=()), 0)[0]) == [0, 1, 3, 4]


def test_damaged_batch_is_an_error() -> None:
    damaged = bytearray(stored(0))
    damaged[-1] ^= 0xFF
    with pytest.raises(CorruptBatch):
        decode_fetched(A, fetched(bytes(damaged)), 0)


def test_what_is_before_a_damaged_batch_is_read() -> None:
    damaged = bytearray(stored(2))
    damaged[-1] ^= 0xFF
    records, after = decode_fetched(A, fetched(stored(0, 2), bytes(damaged), stored(3)), 0)
    assert (offsets(records), after) == ([0, 1], 2)


async def test_the_error_names_the_log_of_a_damaged_batch(fake: FakeCluster, cluster: Cluster) -> None:
    """Of many logs that are read together, only the damaged one needs a broker that has it whole."""
    for name in ("log.a", "log.b"):
        log = fake.log(name)
        log.append(batch(0))
        header, data = log.batches[0]
        log.batches[0] = header, data[:-1] + bytes([data[-1] ^ (name == "log.b")])
    tail = Tail(cluster, {A: 0, B: 0})
    with pytest.raises(CorruptBatch, match=r"^log\.b: the CRC of the batch at offset 0 ") as found:
        for _ in range(2):
            await anext(tail)
    await tail.close()
    assert (found.value.fields, bool(found.value.hint)) == ({"log": "log.b", "offset": 0}, True)
    with pytest.raises(CorruptBatch, match=r"^log\.b: the CRC"):
        _ = [record async for record in read_log(cluster, B)]
    with pytest.raises(CorruptBatch, match=r"^log\.b: the CRC"):
        _ = [log async for log, _ in sweep(cluster, await extents(cluster, [A, B]))]


async def test_the_error_names_the_log_of_a_damaged_header_behind_a_whole_batch(
    fake: FakeCluster, cluster: Cluster
) -> None:
    log = fake.log("log.a")
    for offset in (0, 1):
        log.append(batch(offset))
    header, data = log.batches[1]
    log.batches[1] = header, data[:16] + b"\0" + data[17:]
    with pytest.raises(CorruptBatch, match=r"^log\.a: a record batch has format 0"):
        _ = [log async for log, _ in sweep(cluster, await extents(cluster, [A]), wanted=lambda *_: True)]


async def test_a_batch_of_damaged_length_is_an_error(fake: FakeCluster, cluster: Cluster) -> None:
    """Kafka returns nothing from it on, and no error, while the log goes on. The other logs are read first."""
    for log in (fake.log("log.a"), fake.log("log.b")):
        for offset in range(3):
            log.append(batch(offset))
    damage(fake.logs["log.b"], 1, at=8)
    read: list[Record] = []
    async with asyncio.timeout(10):
        with pytest.raises(CorruptBatch, match=r"^log\.b: the broker returns no batch at offset 1, .*ends at 3"):
            async for found in read_log(cluster, B):
                read.append(found)
        assert offsets(read) == [0]
        swept: list[tuple[TP, int]] = []
        with pytest.raises(CorruptBatch, match=r"^log\.b: ") as error:
            async for tp, records in sweep(cluster, await extents(cluster, [B, A])):
                swept += [(tp, offset) for offset in offsets(records)]
        tails_found = await tails(cluster, {A: 3, B: 3})
    assert (error.value.fields, "leader" in error.value.hint) == ({"log": "log.b", "offset": 1}, True)
    assert sorted(swept) == [(A, 0), (A, 1), (A, 2), (B, 0)]
    assert isinstance(tails_found[A], BatchHeader) and isinstance(tails_found[B], CorruptBatch)


async def test_one_log_up_to_its_end(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    for offset in range(0, 30, 3):
        log.append(batch(offset, 3))
    assert [record.offset async for record in read_log(cluster, A)] == list(range(30))
    assert [record.offset async for record in read_log(cluster, A, 4, 8)] == [4, 5, 6, 7]
    log.start = 6
    log.batches = log.batches[2:]
    assert [record.offset async for record in read_log(cluster, A)] == list(range(6, 30))
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        await anext(read_log(cluster, A, 0))
    fake.log("log.b")
    assert [record async for record in read_log(cluster, B)] == []


async def test_tail_follows_logs_that_come_and_go(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    log.append(batch(0, 2))
    tail = Tail(cluster, {A: 0}, max_wait_ms=100)
    async with asyncio.timeout(5):
        name, records = await anext(tail)
        assert (name, offsets(records)) == (A, [0, 1])
        log.append(batch(2))
        name, records = await anext(tail)
        assert (name, offsets(records)) == (A, [2])
        tail.add(B, 1)  # not there yet
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.05)  # some polls without an answer
        assert not waiting.done()
        other = fake.log("log.b")
        other.append(batch(0, 3))
        name, records = await waiting
        assert (name, offsets(records)) == (B, [1, 2])
        assert dict(tail.positions) == {A: 3, B: 3}
        tail.remove(A)
        log.append(batch(3))
        other.append(batch(3))
        name, records = await anext(tail)
        assert (name, offsets(records)) == (B, [3])
    await tail.close()


async def test_tail_says_which_log_failed_and_goes_on_with_the_others(fake: FakeCluster, cluster: Cluster) -> None:
    gone = fake.log("log.a")
    for offset in range(3):
        gone.append(batch(offset))
    gone.start = 2
    fake.log("log.b").append(batch(0))
    tail = Tail(cluster, {A: 0, B: 0}, max_wait_ms=100)
    seen: list[TP] = []
    async with asyncio.timeout(5):
        with pytest.raises(BrokerError) as caught:
            while True:
                seen.append((await anext(tail))[0])
        assert caught.value.log == A and caught.value.code == 1
        if not seen:
            seen.append((await anext(tail))[0])
        assert seen == [B]
        tail.add(A, 2)
        name, records = await anext(tail)
        assert (name, offsets(records)) == (A, [2])
    await tail.close()


async def test_moving_a_log_back_reads_it_again(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("log.a")
    log.append(batch(0, 2))
    fake.log("log.b").append(batch(0))
    tail = Tail(cluster, {A: 0, B: 0}, max_wait_ms=100)
    async with asyncio.timeout(5):
        first = {(await anext(tail))[0], (await anext(tail))[0]}
        assert first == {A, B}
        tail.add(A, 1)
        name, records = await anext(tail)
        assert (name, offsets(records)) == (A, [1])
    await tail.close()
