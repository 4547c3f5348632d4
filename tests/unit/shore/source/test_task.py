"""Reading ranges from a log store that answers as a broker does: every record once, and no log waits for another."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from fairlead.kafka.columnar import decode
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, CorruptBatch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, FetchedPartition, TopicPartition
from shore.errors import DataLossError
from shore.source import task
from shore.source.losses import Loss
from shore.source.offsets import Range
from shore.source.task import RangeReader

Read = list[tuple[str, int]]


class Store:
    """Logs of whole batches. As in a broker, an answer is filled in the order of the request until it is full, and the
    first log gets at least one batch."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, list[tuple[int, int, bytes]]] = {}
        self.of_damaged_length: set[str] = set()  # logs of which a broker returns no batch
        self.requests: list[list[str]] = []
        self.given = 0

    def write(self, log: str, sizes: Sequence[int], *, first: int = 0) -> int:
        """Append batches of so many records each; return the log's end."""
        stored, offset = self._logs.setdefault(TP(log), []), first
        for size in sizes:
            records = [NewRecord(b"%d" % (offset + n), timestamp_ms=1) for n in range(size)]
            batch = bytearray(term_batch(records, term=1, offset=offset, marker=0))
            struct.pack_into(">q", batch, 0, offset)
            stored.append((offset, offset + size, bytes(batch)))
            offset += size
        return offset

    def copy(self, log: str, to: str) -> None:
        self._logs[TP(to)] = self._logs[TP(log)]

    def whole(self, log: str) -> bytes:
        return b"".join(batch for _, _, batch in self._logs[TP(log)])

    async def fetch(
        self, positions: Mapping[TopicPartition, int], *, max_wait_ms: int, max_bytes: int, partition_max_bytes: int
    ) -> dict[TopicPartition, FetchedPartition]:
        self.requests.append([log.topic for log in positions])
        answer, left = {}, max_bytes
        for log, position in positions.items():
            if log not in self._logs:
                answer[log] = FetchedPartition(UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1, (), memoryview(b""))
                continue
            batches = self._logs[log]
            if position < batches[0][0]:
                answer[log] = FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), memoryview(b""))
                continue
            wanted = [batch for _, after, batch in batches if after > position]
            if log.topic in self.of_damaged_length:
                wanted = []
            most = min(left, partition_max_bytes)
            if wanted and left == max_bytes:
                most = max(most, len(wanted[0]))  # the first log of a request gets a batch, however long
            data = b"".join(wanted)[:most]
            left -= len(data)
            self.given += len(data)
            end = batches[-1][1]
            answer[log] = FetchedPartition(0, end, end, batches[0][0], (), memoryview(bytearray(data)))
        return answer

    async def start_offsets(self, logs: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {log: self._logs[log][0][0] for log in logs}


async def read(store: Any, work: Sequence[Range], fail_on_data_loss: bool = False) -> Read:
    """Return (log, offset) in the order of reading; check that each record's value is that of its offset."""
    found: Read = []
    async for log, stretch in RangeReader(store, work, fail_on_data_loss=fail_on_data_loss).stretches():
        columns = decode([stretch])
        starts, sizes = columns.value.start.tolist(), columns.value.size.tolist()
        values = [columns.data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        assert values == [b"%d" % offset for offset in columns.offset.tolist()]
        found += [(log.topic, offset) for offset in columns.offset.tolist()]
    return found


def every(*work: Range) -> Read:
    return [(r.topic, offset) for r in work for offset in range(r.start, r.stop)]


async def test_ranges_begin_and_end_within_batches() -> None:
    store = Store()
    store.write("a", [10, 10, 10])
    store.write("b", [1] * 30)
    work = [Range("a", 0, 3, 24), Range("b", 0, 0, 1)]
    assert sorted(await read(store, work)) == every(*work)


async def test_parts_of_one_log_in_one_task_are_all_read() -> None:
    store = Store()
    store.write("a", [7] * 10)
    work = [Range("a", 0, 0, 20), Range("a", 0, 20, 33), Range("a", 0, 50, 70)]
    assert sorted(await read(store, work)) == every(*work)


async def test_compaction_may_have_emptied_the_end_of_a_range() -> None:
    store = Store()
    store.write("a", [5])
    store.write("a", [5], first=90)
    assert await read(store, [Range("a", 0, 0, 60)]) == every(Range("a", 0, 0, 5))


async def test_a_batch_of_damaged_length_is_an_error_once_the_other_logs_are_read() -> None:
    """Kafka returns no batch then, and no error."""
    store, found = Store(), list[str]()
    for log in "ab":
        store.write(log, [5] * 3)
    store.of_damaged_length.add("a")
    with pytest.raises(CorruptBatch, match=r"^a: the broker returns no batch at offset 0"):
        async for tp, _ in RangeReader(cast(Any, store), [Range("a", 0, 0, 15), Range("b", 0, 0, 15)]).stretches():
            found.append(tp.topic)
    assert found == ["b"]


async def test_one_log_with_very_many_records_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MOST_BYTES", 50_000)
    monkeypatch.setattr(task, "LARGEST_PORTION", 5_000)
    monkeypatch.setattr(task, "LEAST_PORTION", 500)
    store = Store()
    large = store.write("a", [100] * 300)
    small = [f"b{number:04}" for number in range(700)]
    for log in small:
        store.write(log, [1] * 3)
    found = await read(store, [Range("a", 0, 0, large), *(Range(log, 0, 0, 3) for log in small)])
    assert len(found) == len(set(found)) == large + 2_100
    last = max(index for index, (log, _) in enumerate(found) if log != "a")
    assert sum(log == "a" for log, _ in found[:last]) < large / 2
    # When only the large log is left, it is read in larger pieces.
    alone = sum(request == ["a"] for request in store.requests)
    assert 0 < alone < len(store.whole("a")) / 5_000 / 2


async def test_batches_longer_than_expected_do_not_come_one_by_one() -> None:
    store = Store()
    work = []
    end = store.write("a", [4_000])  # 60 kB
    for number in range(300):
        store.copy("a", f"a{number:04}")
        work.append(Range(f"a{number:04}", 0, end - 3, end))
    assert sorted(await read(store, work)) == every(*work)
    assert len(store.requests) < 30


async def test_of_logs_with_much_more_than_is_wanted_only_about_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task, "LEAST_PORTION", 500)
    monkeypatch.setattr(task, "MOST_LOGS", 30)
    monkeypatch.setattr(task, "FEWEST_LOGS", 10)
    store = Store()
    store.write("a", [5] * 200)
    work = []
    for number in range(300):
        store.copy("a", f"a{number:04}")
        work.append(Range(f"a{number:04}", 0, 100, 150))
    assert sorted(await read(store, work)) == every(*work)
    wanted = 300 * len(store.whole("a")) * 50 / 1_000
    assert store.given < 4 * wanted  # fetching also what is behind the ranges would be 18 times


async def test_deleted_and_overtaken_logs_end_their_range_and_no_other() -> None:
    store = Store()
    store.write("a", [10], first=30)
    store.write("b", [10])
    work = [Range("a", 0, 20, 40), Range("b", 0, 0, 10), Range("gone", 0, 0, 5)]
    assert sorted(await read(store, work)) == every(Range("a", 0, 30, 40), work[1])
    told: list[Loss] = []
    async for _ in RangeReader(cast(Any, store), work, on_loss=told.append).stretches():
        pass
    assert sorted((each.log, each.first, each.last) for each in told) == [("a", 20, 29), ("gone", 0, 4)]
    for lost in (work[0], work[2]):
        with pytest.raises(DataLossError):
            await read(store, [lost], fail_on_data_loss=True)
