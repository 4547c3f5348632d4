"""Fillers, the placeholders for offsets without data: cheap to make, recognisable, and found again after a crash."""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from fairlead.kafka import convention
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FENCE_EPOCH, FOREIGN_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID, filler_batch
from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header, verify_crc
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch
from fairlead.kafka.protocol.types import FetchedPartition, ProducerState, TopicPartition
from replication.batch.header_rewrite import canonical_crc, id_after
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import GAP_KEY, POSITION_KEY, Gap, PreparedBatch
from replication.batch.rebuild import MAX_FILLER, fence, fillers
from replication.target.gaps import interrupted, left_over
from replication.target.mirror import LastBatch
from tests.support.batches import foreign_batch
from tests.support.replication.source_logs import NOW, Made, body, stored


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 128, 8191, 8192, 8193, 8256, MAX_FILLER])
@pytest.mark.parametrize("key", [None, b"", GAP_KEY])
def test_every_count_gives_that_many_records(count: int, key: bytes | None) -> None:
    """A filler batch has as many records as requested.

    Offset deltas take one, two or three bytes, and 64 of them differ in one byte only.
    """
    batch = filler_batch(count, term=1, offset=0, marker=0, timestamp_ms=NOW, key=key)
    filler = Record(0, NOW, key, None, (("fairlead", b"filler"),))
    assert decode_batch(batch) == [filler._replace(offset=offset) for offset in range(count)]


def test_a_large_hole_does_not_hold_up_everything_else() -> None:
    """A large gap does not block other work for long.

    No other task runs while a filler batch is made: this takes milliseconds when its size is new, and almost nothing
    after that.
    """
    gap = Gap(0, 30 * MAX_FILLER, FOREIGN_PRODUCER_ID, 0, 0, NOW, b"a key that no other test has")
    began = time.process_time()
    assert sum(1 for _ in fillers(gap)) == 30
    assert time.process_time() - began < 0.2


def test_the_same_size_is_compressed_once() -> None:
    """Fillers of the same size are compressed once."""
    before = convention._filler_payload.cache_info().misses  # noqa: SLF001 - the cache is what is tested
    for n in range(5):
        filler_batch(777, term=1, offset=n * 777, marker=0, timestamp_ms=NOW + n, key=b"once")
    assert convention._filler_payload.cache_info().misses - before <= 1  # noqa: SLF001


def placed(prepared: PreparedBatch) -> bytes:
    out = bytearray(prepared.data)
    struct.pack_into(">q", out, 0, prepared.base)
    return bytes(out)


def positioning(stop: int, *, key: bytes = POSITION_KEY, pid: int = PRODUCER_ID) -> bytes:
    return b"".join(placed(each) for each in fillers(Gap(0, stop, pid, 3, 2, NOW, key)))


def test_fillers_that_position_are_told_from_data_and_from_other_fillers() -> None:
    """Fillers that fill a log up to its first offset are told from data and from other fillers."""
    data = stored(120_000, 120_001, [Made(120_000 + n, NOW, body(b"k", b"v")) for n in range(2)])
    found = positioning(120_000)
    assert [parse_header(found).next_offset] == [2]  # those before the term's marker are a batch of their own
    assert left_over(found + data) == (120_000, True)
    assert left_over(found) == (120_000, False)  # the log has no record, so its last filler must stay
    assert left_over(data) == (None, True)
    assert left_over(b"") == (None, False)
    assert left_over(positioning(10, key=GAP_KEY, pid=FOREIGN_PRODUCER_ID)) == (None, True)
    assert left_over(stored(0, 3, []) + data) == (None, True)  # emptied by the log cleaner


def test_a_batch_whose_records_cannot_be_read_is_no_filler() -> None:
    """A batch that this site's disk has damaged, or whose records are too many bytes, is taken for data."""
    unreadable = bytearray(positioning(200))
    assert parse_header(unreadable).codec is Codec.ZSTD
    unreadable[HEADER_BYTES] ^= 0xFF
    assert left_over(unreadable) == (None, True)


class Kafka:
    """A broker's answers to fetches.

    Of the first log it returns at least one batch; of the others, only whole batches within the limit for a log.
    """

    def __init__(self, logs: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        self.logs = logs
        self.received = 0

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, 0)

    async def fetch(
        self, positions: Mapping[TopicPartition, int], *, max_bytes: int, partition_max_bytes: int, **_: Any
    ) -> dict[TopicPartition, FetchedPartition]:
        out = {}
        left = max_bytes
        for number, (tp, offset) in enumerate(positions.items()):
            data, size = b"", min(partition_max_bytes, left)
            for batch in self.logs[tp]:
                if parse_header(batch).next_offset > offset:
                    if len(data) + len(batch) > size and (data or number):
                        break
                    data += batch
            left = max(0, left - len(data))
            self.received += len(data)
            out[tp] = FetchedPartition(0, 0, 0, 0, (), memoryview(bytearray(data)))
        return out


@pytest.mark.parametrize("count", [25, 1_500, MAX_FILLER, 250_000])
async def test_left_fillers_are_found_whatever_the_size_of_their_batches(count: int) -> None:
    """Leftover fillers are found whatever the size of their batches."""
    data = stored(count, count, [Made(count, NOW, body(b"k", b"v"))])
    large = stored(0, 0, [Made(0, NOW, body(b"k", b"v" * 200_000))])
    left = [placed(each) for each in fillers(Gap(0, count, FOREIGN_PRODUCER_ID, 0, 0, NOW, POSITION_KEY))]
    assert (len(left[0]) > 1024) is (count > 1000)
    found = TopicPartition("orders.found")
    logs = {TopicPartition(f"orders.{n}"): [large] for n in range(60)} | {found: [*left, data]}
    target = cast(Cluster, Kafka(logs))
    source = cast(Cluster, Kafka({}))
    assert await interrupted(target, source, list(logs), "latest") == dict.fromkeys(logs, 0) | {found: count}
    assert await interrupted(target, source, list(logs), "earliest") == dict.fromkeys(logs, 0)


# ---- the fence: a filler that makes the broker refuse a replicator's batches that are still under way


def fenced(producer_id: int, offset: int) -> bytes:
    """Return a fence as a broker stores it."""
    return offset.to_bytes(8, "big") + bytes(fence(producer_id, NOW))[8:]


@pytest.mark.parametrize("producer_id", [FOREIGN_PRODUCER_ID, FOREIGN_PRODUCER_ID + 3])
def test_a_fence_raises_the_epoch_and_is_one_filler_for_readers(producer_id: int) -> None:
    """A fence raises the producer epoch and is one filler to readers."""
    stored = fenced(producer_id, 7)
    header = parse_header(stored)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 1, 0)
    assert verify_crc(stored)
    [record] = decode_batch(stored)
    assert record == Record(7, NOW, GAP_KEY, None, (("fairlead", b"filler"),))
    assert not convention.is_data(record)


def test_fences_of_different_producers_are_the_same_to_every_comparison_and_copied_as_any_filler() -> None:
    """Fences of different producers compare as equal, and are copied as ordinary fillers.

    A replica's next appends continue in the usual epoch: the raised one must not be copied.
    """
    one, other = fenced(FOREIGN_PRODUCER_ID, 7), fenced(FOREIGN_PRODUCER_ID + 3, 7)
    crcs = {canonical_crc(each, parse_header(each)) for each in (one, other)}
    assert len(crcs) == 1
    [copied] = prepare_batches(memoryview(bytearray(one)), 7)
    assert isinstance(copied, PreparedBatch)
    header = parse_header(copied.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 7)
    assert crcs == {copied.crc, header.crc}


def state(producer_id: int, epoch: int, last: int) -> ProducerState:
    return ProducerState(producer_id, epoch, last, NOW)


def test_a_producer_that_was_fenced_is_not_used_again() -> None:
    """A producer id that was fenced is not used again."""
    usual, second = FOREIGN_PRODUCER_ID, FOREIGN_PRODUCER_ID + 1
    assert id_after(10, []) == usual
    assert id_after(10, [state(usual, FOREIGN_EPOCH, 9)]) == usual
    assert id_after(10, [state(usual, FOREIGN_EPOCH, 4)]) == second
    assert id_after(1, [state(usual, FENCE_EPOCH, 0)]) == second
    assert id_after(10, [state(usual, FENCE_EPOCH, 9), state(second, FOREIGN_EPOCH, 3)]) == second + 1


def test_the_tail_tells_a_fence_from_what_a_replicator_wrote() -> None:
    """The last batch of a log shows whether it is a fence or a replicator's batch."""
    for batch, is_fence in ((fenced(FOREIGN_PRODUCER_ID + 1, 7), True), (bytes(foreign(7)), False)):
        header = parse_header(batch)
        assert LastBatch(header.producer_id, header.producer_epoch, 0, 7, header.crc).is_fence is is_fence
    assert not LastBatch(PRODUCER_ID, 5, 0, 7, 0).is_fence


def foreign(offset: int) -> bytes:
    return foreign_batch([NewRecord(b"x", timestamp_ms=NOW)], offset=offset)
