"""A log as a broker keeps it, with the broker's rules on producer id, epoch and sequence (measured on Kafka 4.3).

And what tests put into logs: records, markers and batches.
"""

from __future__ import annotations

import struct
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead.kafka.convention import SEQUENCE_MASK, marker_record, term_batch
from fairlead.kafka.protocol.batch import LENGTH_FROM, BatchHeader, parse_header, verify_crc
from fairlead.kafka.protocol.record import NewRecord, decode_batch
from fairlead.kafka.protocol.types import TP

if TYPE_CHECKING:  # it imports this module
    from tests.support.kafka.fake_broker import FakeCluster

NOW = 1_700_000_000_000
A, B, C = TP("log.a"), TP("log.b"), TP("log.c")


@dataclass
class Producer:
    """What a broker remembers: the epoch and the last five batches as (first sequence, last sequence, base, time)."""

    epoch: int
    last_sequence: int
    last_timestamp: int
    recent: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class FakeLog:
    """One partition. ``visible`` below ``end`` means that the high watermark lags."""

    leader: int = 0
    replicas: int = 1
    near: dict[str, int] = field(default_factory=dict)  # followers that the leader names, by rack
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)
    start: int = 0
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    lag: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else self.start

    @property
    def high_watermark(self) -> int:
        return max(self.start, self.end - self.lag)

    def append(self, data: bytes) -> tuple[int, int, int]:
        """(error code, base offset, log append time)."""
        header = parse_header(data)
        if header.base_offset != 0 or header.has_holes or header.count < 1:
            return 87, -1, -1
        if len(data) != header.size or not verify_crc(data):
            return 2, -1, -1
        producer = self.producers.get(header.producer_id)
        first = header.base_sequence
        last = (first + header.count - 1) & SEQUENCE_MASK
        if producer is not None:
            if header.producer_epoch < producer.epoch:
                return 47, -1, -1
            if header.producer_epoch > producer.epoch:
                if first != 0:
                    return 45, -1, -1
                producer = None
            else:
                for seen_first, seen_last, base, time in producer.recent:
                    if (seen_first, seen_last) == (first, last):
                        return 0, base, time
                if first != (producer.last_sequence + 1) & SEQUENCE_MASK:
                    return 45, -1, -1
        return 0, self._store(data, header, producer, first, last), -1

    def _store(self, data: bytes, header: BatchHeader, producer: Producer | None, first: int, last: int) -> int:
        base = self.end
        stored = bytearray(data)
        struct.pack_into(">q", stored, 0, base)
        self.batches.append((parse_header(stored), bytes(stored)))
        if header.producer_id >= 0:
            if producer is None:
                producer = self.producers[header.producer_id] = Producer(header.producer_epoch, last, 0)
            producer.last_sequence, producer.last_timestamp = last, header.max_timestamp
            producer.recent.append((first, last, base, header.max_timestamp))
        return base

    def read(self, offset: int, limit: int) -> bytes:
        """Whole batches from the one with ``offset`` on, below the high watermark; at least one. None from one on whose
        length is damaged."""
        out = bytearray()
        for header, data in self.batches:
            size = LENGTH_FROM + int.from_bytes(data[8:LENGTH_FROM], "big")
            if header.next_offset > self.high_watermark or size != len(data):
                break
            if header.next_offset <= offset:
                continue
            if out and len(out) + len(data) > limit:
                break
            out += data
        return bytes(out)

    def forget_producers(self) -> None:
        """As after a restart of the broker with an emptied log, or an expiry."""
        self.producers.clear()


def record(text: str, size: int = 0) -> NewRecord:
    """A record with a text, and as many dots after it."""
    return NewRecord(text.encode() + b"." * size, timestamp_ms=NOW)


def marker(text: str) -> NewRecord:
    """A marker with a text as its identity."""
    return marker_record(text.encode(), timestamp_ms=NOW)


def stored(log: FakeLog) -> list[str]:
    """All records' values in offset order."""
    return [(found.value or b"").decode().rstrip(".") for _, data in log.batches for found in decode_batch(data)]


def batch(offset: int, count: int = 1, *, term: int = 1, value: bytes = b"v") -> bytes:
    """A batch of equal records as the holder of a term appends it at ``offset``."""
    records = [NewRecord(value, timestamp_ms=1000 + offset + index) for index in range(count)]
    return term_batch(records, term=term, offset=offset, marker=0)


def put(log: FakeLog, *records: NewRecord) -> None:
    """Append records in one batch of term 1."""
    assert log.append(term_batch(records, term=1, offset=log.end, marker=0))[0] == 0


def damage(log: FakeLog, place: int = -1, *, at: int = -1) -> None:
    """Flip a bit in byte ``at`` of one of the stored batches, or flip it back, as a disk does and a repair."""
    header, data = log.batches[place]
    changed = bytearray(data)
    changed[at] ^= 1
    log.batches[place] = header, bytes(changed)


def begin(fake: FakeCluster, log: str, *values: bytes) -> None:
    """Create a log with one batch of term 1: its marker, then records with these values."""
    records = [NewRecord(value, b"key", timestamp_ms=5) for value in values]
    put(fake.log(log), marker_record(b"m" + log.encode(), timestamp_ms=5), *records)
