"""Draw logs as a source's broker stores them, with Hypothesis: with gaps, transactions, LogAppendTime, unusual records.

Batches are built here by hand, byte for byte, so that nothing under test takes part in making its own input.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from fairlead.kafka.convention import PRODUCER_ID
from fairlead.kafka.protocol.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from fairlead.kafka.protocol.codecs import Codec, compress
from fairlead.kafka.protocol.coding import encode_signed
from tests.support.batches import seal

HEADER = struct.Struct(">qiibIhiqqqhii")
NOW = 1_790_000_000_000


@dataclass(frozen=True)
class Made:
    """One record to store; ``body`` is key, value and headers as bytes."""

    offset: int
    timestamp_ms: int
    body: bytes
    attributes: int = 0


def body(key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]] = ()) -> bytes:
    """Return a record's bytes from its key on."""

    def sized(data: bytes | None) -> bytes:
        return encode_signed(-1) if data is None else encode_signed(len(data)) + data

    out = sized(key) + sized(value) + encode_signed(len(headers))
    for name, content in headers:
        out += sized(name) + sized(content)
    return out


def stored(
    base: int,
    last: int,
    records: Sequence[Made],
    *,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    flags: int = 0,
    base_time: int | None = None,
    newest: int | None = None,
) -> bytes:
    """Return a batch for offsets ``base`` to ``last`` of which ``records`` are left."""
    zero = base_time if base_time is not None else (records[0].timestamp_ms if records else NOW)
    payload = b""
    for each in records:
        inner = bytes((each.attributes,)) + encode_signed(each.timestamp_ms - zero)
        inner += encode_signed(each.offset - base) + each.body
        payload += encode_signed(len(inner)) + inner
    newest = max((each.timestamp_ms for each in records), default=NOW) if newest is None else newest
    head = HEADER.pack(
        base, 0, 3, 2, 0, int(codec) | flags, last - base, zero, newest, producer, epoch, sequence, len(records)
    )
    out = bytearray(head + (compress(codec, payload) if records else b""))
    seal(out)
    return bytes(out)


@dataclass
class SourceLog:
    """A source's log, and what a read_committed consumer sees of it: offset to (time, body)."""

    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, offset of its mark
    seen: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    end: int = 0

    def answer(self, position: int, most: int) -> tuple[memoryview, list[tuple[int, int]]]:
        """Return what a read_committed fetch from ``position`` returns, ``most`` batches at a time."""
        part = [each for each in self.batches if _next(each) > position][:most]
        if not part:
            return memoryview(b""), []
        upper = _next(part[-1])
        hit = [(pid, first) for pid, first, mark in self.aborted if mark >= position and first < upper]
        return memoryview(bytearray(b"".join(part))), hit

    def at(self, offset: int) -> bytes:
        return next(each for each in self.batches if _base(each) <= offset < _next(each))


def _base(batch: bytes) -> int:
    return int(struct.unpack_from(">q", batch)[0])


def _next(batch: bytes) -> int:
    return _base(batch) + int(struct.unpack_from(">i", batch, 23)[0]) + 1


keys = st.one_of(st.none(), st.binary(max_size=6))
names = st.one_of(st.sampled_from([b"h", b"", "ü".encode(), b"\xff\xfe"]), st.binary(max_size=4))
bodies = st.builds(
    body,
    keys,
    st.one_of(st.none(), st.binary(max_size=30)),
    st.lists(st.tuples(names, st.one_of(st.none(), st.binary(max_size=5))), max_size=3),
)
times = st.one_of(st.integers(NOW - 10, NOW + 10), st.sampled_from([0, 1, -1, NOW * 4, 2**41, NOW - 400 * 86_400_000]))


@st.composite
def batch_records(draw: st.DrawFn, base: int) -> tuple[list[Made], int]:
    """Draw records from ``base`` on, any of which compaction may have removed, and the batch's last offset."""
    count = draw(st.integers(1, 6))
    kept = draw(st.one_of(st.just(set(range(count))), st.sets(st.integers(0, count - 1))))
    made = [
        Made(base + n, draw(times), draw(bodies), draw(st.sampled_from([0, 0, 0, 5])))
        for n in range(count)
        if n in kept
    ]
    return made, base + count - 1


@st.composite
def foreign_logs(draw: st.DrawFn) -> SourceLog:
    """Draw a log of ordinary clients: plain, idempotent and transactional ones, one after the other and at once."""
    log = SourceLog(end=draw(st.sampled_from([0, 0, 3])))
    running: dict[int, tuple[int, list[Made]]] = {}  # producer: first offset of its transaction, records so far
    for _ in range(draw(st.integers(1, 9))):
        what = draw(st.sampled_from(["plain", "plain", "transaction", "transaction", "mark", "gone"]))
        base = log.end
        if what == "gone":
            log.end += draw(st.integers(1, 12))
            continue
        if what == "mark":
            if running:
                _mark(draw, log, running)
            continue
        records, last = draw(batch_records(base))
        codec = draw(st.sampled_from(list(Codec)))
        late = bool(records) and len(records) < last - base + 1 and draw(st.booleans())
        flags = DELETE_HORIZON if late else 0
        zero = NOW + 5_000_000 if late else None
        if what == "transaction":
            producer = draw(st.sampled_from([5, 6]))
            running.setdefault(producer, (base, []))[1].extend(records)
            log.batches.append(
                stored(
                    base, last, records, producer=producer, epoch=0, sequence=7, codec=codec,
                    flags=flags | TRANSACTIONAL, base_time=zero,
                )
            )  # fmt: skip
        else:
            append_time = bool(records) and draw(st.booleans())
            newest = NOW + base if append_time else None
            producer = draw(st.sampled_from([-1, 4711]))
            log.batches.append(
                stored(
                    base, last, records, producer=producer, epoch=0 if producer > 0 else -1,
                    sequence=3 if producer > 0 else -1, codec=codec,
                    flags=flags | (LOG_APPEND_TIME if append_time else 0), base_time=zero, newest=newest,
                )
            )  # fmt: skip
            log.seen |= {each.offset: (newest or each.timestamp_ms, each.body) for each in records}
        log.end = last + 1
    while running:
        _mark(draw, log, running)
    return log


def _mark(draw: st.DrawFn, log: SourceLog, running: dict[int, tuple[int, list[Made]]]) -> None:
    """End one transaction with its control batch."""
    producer = draw(st.sampled_from(sorted(running)))
    first, records = running.pop(producer)
    if draw(st.booleans()):
        log.seen |= {each.offset: (each.timestamp_ms, each.body) for each in records}
        kind = 1
    else:
        log.aborted.append((producer, first, log.end))
        kind = 0
    mark = Made(log.end, NOW, body(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)))
    log.batches.append(stored(log.end, log.end, [mark], producer=producer, epoch=0, flags=TRANSACTIONAL | CONTROL))
    log.end += 1


@st.composite
def own_logs(draw: st.DrawFn, begin: int = 0) -> SourceLog:
    """Draw a log under the append convention: terms, some of whose records (markers too) compaction has removed.

    Args:
        begin: Sequence of the first record; near 2^31 it soon wraps around to 0.
    """
    log = SourceLog()
    term, marker = 1, -begin
    for _ in range(draw(st.integers(1, 8))):
        what = draw(st.sampled_from(["batch", "batch", "batch", "term", "gone"]))
        if what == "gone":
            log.end += draw(st.integers(1, 12))
            continue
        if what == "term":
            term, marker = term + draw(st.integers(1, 3)), log.end
            records, last = [Made(log.end, NOW, body(None, b"%d" % marker, [(b"fairlead", b"marker")]))], log.end
            if draw(st.integers(0, 3)) == 0:
                log.end += 1  # compaction has removed the marker
                continue
        else:
            records, last = draw(batch_records(log.end))
            records = [Made(each.offset, abs(each.timestamp_ms), each.body, each.attributes) for each in records]
        horizon = bool(records) and draw(st.booleans())
        log.batches.append(
            stored(
                log.end, last, records, producer=PRODUCER_ID, epoch=term, sequence=(log.end - marker) % 2**31,
                codec=draw(st.sampled_from(list(Codec))), flags=DELETE_HORIZON if horizon else 0,
                base_time=NOW + 77 if horizon else None,
            )
        )  # fmt: skip
        log.seen |= {each.offset: (each.timestamp_ms, each.body) for each in records}
        log.end = last + 1
    return log
