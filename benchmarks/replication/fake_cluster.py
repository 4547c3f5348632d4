"""Kafka clusters in this process, for one replicator at a size that no cluster here reaches.

The client of the product runs as it is: only ``fairlead.kafka.client.pool.connect`` is replaced, and gives real
connections on a transport that hands each request to a ``FakeCluster`` instead of a socket. So coding, sessions,
metadata and everything above them are the product's. What is missing is the kernel's part of the traffic, TLS and
login.

A cluster has ``LIMIT`` logs of boxes at most, all with the same records, and the ledgers of the ports. Its state is in
arrays of fixed size, so that the memory which a replicator adds can be told apart. ``seconds`` is the CPU that the
fake clusters themselves have used.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from edge.logwriter.records import ledger, marker
from fairlead.kafka.client.connection import Connection
from fairlead.kafka.convention import term_batch
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint
from fairlead.kafka.protocol import coding, fetch_codec, produce_codec
from fairlead.kafka.protocol.batch import Buffer, parse_header
from fairlead.kafka.protocol.coding import FieldReader, decode_unsigned, encode_unsigned
from fairlead.kafka.protocol.errors import FETCH_SESSION_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION
from fairlead.kafka.protocol.offsets_codec import EARLIEST, LATEST
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.versions import LIST_OFFSETS, METADATA
from fairlead.names import container_check_digit
from fairlead.records.custody import CustodyEntry, Marker

LIMIT: Final = 1_000_000
PER_BATCH: Final = 500  # entries in a batch of a ledger
VALUE: Final = b"x" * 190
NOW: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
_STAMP: Final = int(NOW.timestamp() * 1000)
_PREFIX: Final = b"containers.BIGU"
_ID: Final = struct.Struct(">8sq")
_MARK: Final = b"fairlead"
_HEADER: Final = struct.Struct(">hhih")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_WANTED: Final = np.dtype(
    [
        ("mark", "V8"),
        ("log", ">i8"),
        ("one", "u1"),
        ("partition", ">i4"),
        ("epoch", ">i4"),
        ("offset", ">i8"),
        ("fetched", ">i4"),
        ("start", ">i8"),
        ("most", ">i4"),
        ("tags", ">u2"),
    ]
)
_FORGOTTEN: Final = np.dtype([("mark", "V8"), ("log", ">i8"), ("one", "u1"), ("partition", ">i4"), ("tags", "u1")])
_FETCH_HEAD: Final = struct.Struct(">iiiibii")
_PARTITION: Final = struct.Struct(">ihqqq")
_LISTED: Final = struct.Struct(">ihqqi")
_PRODUCED: Final = struct.Struct(">ihqqq")
_TOPIC_PARTITION: Final = struct.Struct(">hiii")


@functools.cache
def box_names(count: int) -> npt.NDArray[np.bytes_]:
    """The topics of ``count`` boxes, in order, 22 bytes each."""
    tens = (f"BIGU{number:06d}" for number in range(count))
    return np.array([f"containers.{ten}{container_check_digit(ten)}".encode() for ten in tens])


@functools.lru_cache(maxsize=64)
def box_batch(offset: int) -> bytes:
    """The batch of one record that every box's log has at this offset."""
    return _stored(term_batch([NewRecord(VALUE, timestamp_ms=_STAMP)], term=1, offset=offset, marker=0), offset)


def _stored(batch: Buffer, base: int) -> bytes:
    """A batch as a broker stores it: with its first offset."""
    return struct.pack(">q", base) + bytes(batch)[8:]


def entry(log: str, by: str, to: str, *, term: int, offset: int) -> NewRecord:
    """The entry in the ledger of ``by`` that opens a term of ``log`` for ``to`` at ``offset``, with its marker."""
    opening = Marker(
        log=log,
        term=term,
        from_site=None if term == 1 else by,
        to_site=to,
        event="GTIN" if term == 1 else "HAND",
        event_id=f"{log}-{term}",
        event_date_time=NOW,
        nonce="0" * 32,
    )
    return ledger(
        CustodyEntry(
            log=log,
            term=term,
            marker_offset=offset,
            from_site=opening.from_site,
            to_site=to,
            event=opening.event,
            event_id=opening.event_id,
            event_date_time=NOW,
            granted_date_time=NOW,
            granted_by=by,
            marker_batch=bytes(term_batch([marker(opening)], term=term, offset=offset, marker=offset)),
        )
    )


class LedgerLog:
    """One ledger: entries that are encoded when they are read, and batches that were appended since.

    Args:
        boxes: The logs that the site opened, one entry each.
    """

    def __init__(self, site: str, boxes: Sequence[str]) -> None:
        self.site = site
        self._boxes = boxes
        self._first = len(boxes)
        self._appended: list[tuple[int, bytes]] = []
        self.end = len(boxes)
        self._old = functools.lru_cache(maxsize=2)(self._encode)

    def _encode(self, number: int) -> bytes:
        start = number * PER_BATCH
        new = [
            entry(log, self.site, self.site, term=1, offset=0)
            for log in self._boxes[start : min(start + PER_BATCH, self._first)]
        ]
        return _stored(term_batch(new, term=1, offset=start, marker=0), start)

    def append(self, batch: bytes) -> int:
        """Append a batch; return its first offset."""
        base = self.end
        self._appended.append((base, _stored(batch, base)))
        self.end += parse_header(batch).count
        return base

    def write(self, records: Sequence[NewRecord]) -> None:
        """Append records as the site's bridge does."""
        self.append(bytes(term_batch(records, term=1, offset=self.end, marker=0)))

    def read(self, offset: int) -> bytes:
        """The batch that has this offset."""
        if offset < self._first:
            return self._old(offset // PER_BATCH)
        return next(batch for base, batch in reversed(self._appended) if base <= offset)


@dataclass(slots=True)
class _Poll:
    """A fetch that waits for data."""

    transport: FakeTransport
    correlation: int
    most: int
    full: bool
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Session:
    logs: npt.NDArray[np.int64]
    poll: _Poll | None = None


@dataclass(slots=True)
class Counts:
    """What a cluster was asked."""

    requests: int = 0
    fetches: int = 0
    connections: int = 0
    sessions: int = field(default=0)  # open now
    most_connections: int = 0


class FakeCluster:
    """One site's cluster.

    Args:
        boxes: How many logs of boxes it can have; they exist as far as ``reveal`` says.
        ends: Where every box's log ends.
        ledgers: The ledgers that it has a copy of.
    """

    def __init__(self, site: str, brokers: int, boxes: int, ends: int, ledgers: Iterable[LedgerLog]) -> None:
        self.site, self.brokers, self.boxes = site, brokers, boxes
        self.endpoint = KafkaEndpoint(site, ((site, 1),), None, None)
        self.seconds = 0.0
        self.counts = Counts()
        self._names = box_names(boxes)
        self._ledgers = list(ledgers)
        self._ledger_names = [f"custody.{each.site}".encode() for each in self._ledgers]
        count = boxes + len(self._ledgers)
        self.ends = np.full(count, ends, dtype=np.int64)
        self.ends[boxes:] = [each.end for each in self._ledgers]
        self.position = np.full(count, -1, dtype=np.int64)  # what the newest fetch of each log asked for
        self._told = np.full(count, -1, dtype=np.int64)
        self._session_of = np.full(count, -1, dtype=np.int64)
        self._there = 0
        self._listing: bytes | None = None
        self._sessions: dict[int, _Session] = {}
        self._next_session = 1

    @contextlib.contextmanager
    def own_time(self) -> Iterator[None]:
        """Count the CPU of what is done meanwhile as this cluster's."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.thread_time() - began

    def reveal(self, boxes: int) -> None:
        """Have the topics of the first ``boxes`` boxes."""
        self._there, self._listing = boxes, None

    def append(self, logs: Iterable[int]) -> None:
        """Append one record to each of these boxes' logs."""
        with self.own_time():
            some = np.fromiter(logs, dtype=np.int64)
            self.ends[some] += 1
            self._notify(some)

    def write(self, ledger_number: int, records: Sequence[NewRecord]) -> None:
        """Append records to a ledger."""
        with self.own_time():
            self._ledgers[ledger_number].write(records)
            self._grown(ledger_number)

    def _grown(self, ledger_number: int) -> None:
        log = self.boxes + ledger_number
        self.ends[log] = self._ledgers[ledger_number].end
        self._notify(np.array([log]))

    def _leader(self, log: int) -> int:
        return log // 2 % self.brokers  # both ports' logs are at all brokers

    # ---- requests

    def handle(self, transport: FakeTransport, frame: bytes) -> None:
        """Carry out one request, framed as on the wire."""
        with self.own_time():
            api, _, correlation, client = _HEADER.unpack_from(frame, 4)
            body = memoryview(frame)[4 + _HEADER.size + client + 1 :]
            self.counts.requests += 1
            if api == fetch_codec.API_KEY:
                self.counts.fetches += 1
                self._fetch(transport, correlation, body)
            elif api == METADATA[0]:
                transport.answer(correlation, self._metadata(body))
            elif api == LIST_OFFSETS[0]:
                transport.answer(correlation, self._offsets(body))
            elif api == produce_codec.API_KEY:
                transport.answer(correlation, self._produce(body))
            else:
                raise NotImplementedError(f"the fake cluster does not know request {api}")

    def _name(self, log: int) -> bytes:
        return bytes(self._names[log]) if log < self.boxes else self._ledger_names[log - self.boxes]

    def _log(self, name: bytes) -> int:
        if name.startswith(_PREFIX):
            return int(name[len(_PREFIX) : len(_PREFIX) + 6])
        return self.boxes + self._ledger_names.index(name) if name in self._ledger_names else -1

    def _has(self, log: int) -> bool:
        return 0 <= log < self._there or log >= self.boxes

    def _metadata(self, body: memoryview) -> bytes:
        wanted = coding.FieldReader(body)
        count = wanted.count()
        if body[0] == 0:
            if self._listing is None:
                every = [*range(self._there), *range(self.boxes, self.boxes + len(self._ledgers))]
                self._listing = self._metadata_of(every, ())
            return self._listing
        logs, unknown = [], []
        for _ in range(count):
            wanted.unpack(_ID)
            name = wanted.blob() or b""
            wanted.tags()
            log = self._log(name)
            if self._has(log):
                logs.append(log)
            else:
                unknown.append(name)
        return self._metadata_of(logs, unknown)

    def _metadata_of(self, logs: Sequence[int], unknown: Sequence[bytes]) -> bytes:
        out = bytearray(4)
        out += coding.count(self.brokers)
        for node in range(1, self.brokers + 1):
            out += _I32.pack(node) + coding.text(self.site) + _I32.pack(node) + b"\0\0"
        out += coding.text(self.site) + _I32.pack(1)
        out += coding.count(len(logs) + len(unknown))
        for name in unknown:
            out += _I16.pack(UNKNOWN_TOPIC_OR_PARTITION) + coding.blob(name) + bytes(16) + b"\0\1" + bytes(4) + b"\0"
        tails = [
            b"\0\2" + _TOPIC_PARTITION.pack(0, 0, node, 0) + (b"\2" + _I32.pack(node)) * 2 + b"\1\0" + bytes(4) + b"\0"
            for node in range(1, self.brokers + 1)
        ]
        for log in logs:
            out += b"\0\0"
            out += coding.blob(self._name(log))
            out += _ID.pack(_MARK, log)
            out += tails[self._leader(log)]
        return bytes(out + b"\0")

    def _offsets(self, body: memoryview) -> bytes:
        reader = FieldReader(body)
        reader.unpack(struct.Struct(">ib"))
        topics = reader.count()
        out = bytearray(4) + coding.count(topics)
        asked = struct.Struct(">iiq")
        for _ in range(topics):
            name = reader.blob() or b""
            reader.count()
            _, _, moment = reader.unpack(asked)
            reader.tags()
            reader.tags()
            log = self._log(name)
            offset = {LATEST: int(self.ends[log]) if log >= 0 else 0, EARLIEST: 0}[moment]
            code = 0 if self._has(log) else UNKNOWN_TOPIC_OR_PARTITION
            out += coding.blob(name) + b"\2" + _LISTED.pack(0, code, -1, offset, 0) + b"\0\0"
        return bytes(out + b"\0")

    def _produce(self, body: memoryview) -> bytes:
        at = 1 + 6
        topics, at = decode_unsigned(body, at)
        out = bytearray(encode_unsigned(topics))
        grown: list[int] = []
        for _ in range(topics - 1):
            size, at = decode_unsigned(body, at)
            name = bytes(body[at : at + size - 1])
            at += size - 1 + 1 + 4
            size, at = decode_unsigned(body, at)
            batch = bytes(body[at : at + size - 1])
            at += size - 1 + 2
            log = self._log(name)
            base = int(self.ends[log])
            if log >= self.boxes:
                self._ledgers[log - self.boxes].append(batch)
                self._grown(log - self.boxes)
            else:
                self.ends[log] += parse_header(batch).count
                grown.append(log)
            out += coding.blob(name) + b"\2" + _PRODUCED.pack(0, 0, base, -1, 0) + b"\1\0\0" + b"\0"
        self._notify(np.array(grown, dtype=np.int64))
        return bytes(out + bytes(4) + b"\0")

    # ---- fetching

    def _fetch(self, transport: FakeTransport, correlation: int, body: memoryview) -> None:
        _, wait_ms, _, most, _, number, epoch = _FETCH_HEAD.unpack_from(body)
        count, at = decode_unsigned(body, _FETCH_HEAD.size)
        wanted = np.frombuffer(body, _WANTED, count - 1, at)
        count, at = decode_unsigned(body, at + (count - 1) * _WANTED.itemsize)
        forgotten = np.frombuffer(body, _FORGOTTEN, count - 1, at)
        logs, offsets = wanted["log"].astype(np.int64), wanted["offset"].astype(np.int64)
        if epoch == fetch_codec.EPOCH_NONE:
            self._end_session(number)
            transport.answer(correlation, self._answer(0, logs, offsets, most)[0])
            return
        if epoch == fetch_codec.EPOCH_OPEN:
            self._end_session(number)
            number = self._next_session
            self._next_session += 1
            self._sessions[number] = _Session(logs)
            self.counts.sessions = len(self._sessions)
        session = self._sessions.get(number)
        if session is None:
            transport.answer(correlation, _error(FETCH_SESSION_ID_NOT_FOUND))
            return
        if len(forgotten):
            gone = forgotten["log"].astype(np.int64)
            self._session_of[gone] = -1
            session.logs = np.setdiff1d(session.logs, gone)
        new = logs[self._session_of[logs] != number]
        if epoch != fetch_codec.EPOCH_OPEN and len(new):
            session.logs = np.concatenate((session.logs, new))
        self._session_of[logs] = number
        self._told[new] = -1
        self.position[logs] = offsets
        session.poll = _Poll(transport, correlation, most, epoch == fetch_codec.EPOCH_OPEN)
        if wait_ms == 0 or (self.ends[session.logs] > self.position[session.logs]).any():
            self._answer_poll(number)
        else:
            session.poll.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._too_long, number)

    def _end_session(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self._session_of[session.logs] = -1
            if session.poll is not None and session.poll.timer is not None:
                session.poll.timer.cancel()
            self.counts.sessions = len(self._sessions)

    def _too_long(self, number: int) -> None:
        with self.own_time():
            self._answer_poll(number)

    def _notify(self, logs: npt.NDArray[np.int64]) -> None:
        for number in np.unique(self._session_of[logs]):
            session = self._sessions.get(int(number))
            if session is not None and session.poll is not None:
                self._answer_poll(int(number))

    def _answer_poll(self, number: int) -> None:
        session = self._sessions[number]
        poll, session.poll = session.poll, None
        if poll is None:
            return
        if poll.timer is not None:
            poll.timer.cancel()
        logs = session.logs
        if not poll.full:
            logs = logs[(self.ends[logs] > self.position[logs]) | (self.ends[logs] != self._told[logs])]
        answer, told = self._answer(number, logs, self.position[logs], poll.most)
        self._told[told] = self.ends[told]
        poll.transport.answer(poll.correlation, answer)

    def _answer(
        self, number: int, logs: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], most: int
    ) -> tuple[bytes, list[int]]:
        """An answer with the next batch of each log, as far as ``most`` bytes reach, and the logs in it."""
        parts: list[bytes] = []
        told: list[int] = []
        size = 0
        for log, offset in zip(logs.tolist(), offsets.tolist(), strict=True):
            end = int(self.ends[log])
            records = b""
            if offset < end and (size == 0 or size < most):
                records = box_batch(offset) if log < self.boxes else self._ledgers[log - self.boxes].read(offset)
                size += len(records)
            parts += (
                _ID.pack(_MARK, log),
                b"\2",
                _PARTITION.pack(0, 0, end, end, 0),
                b"\1\xff\xff\xff\xff",
                encode_unsigned(len(records) + 1),
                records,
                b"\0\0",
            )
            told.append(log)
        head = struct.pack(">ihi", 0, 0, number) + coding.count(len(told))
        return head + b"".join(parts) + b"\0", told


def _error(code: int) -> bytes:
    return struct.pack(">ihi", 0, code, 0) + b"\1\0"


class FakeTransport(asyncio.Transport):
    """One connection's way to a cluster, within this process."""

    def __init__(self, cluster: FakeCluster, connection: Connection) -> None:
        super().__init__()
        self._cluster, self._connection = cluster, connection
        self._closed = False
        self._loop = asyncio.get_running_loop()
        cluster.counts.connections += 1
        cluster.counts.most_connections = max(cluster.counts.most_connections, cluster.counts.connections)

    def write(self, data: Any) -> None:
        self._cluster.handle(self, bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def answer(self, correlation: int, body: bytes) -> None:
        """Have an answer received in the loop's next turn."""
        self._loop.call_soon(self._deliver, _I32.pack(correlation) + b"\0", body)

    def _deliver(self, head: bytes, body: bytes) -> None:
        if self._closed:
            return
        connection = self._connection
        with self._cluster.own_time():
            connection.get_buffer(-1)[:4] = _I32.pack(len(head) + len(body))
        connection.buffer_updated(4)
        with self._cluster.own_time():
            room = connection.get_buffer(-1)
            room[: len(head)] = head
            room[len(head) :] = body
        connection.buffer_updated(len(head) + len(body))

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._cluster.counts.connections -= 1
            self._loop.call_soon(self._connection.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return self._closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


@contextlib.contextmanager
def connected_to(clusters: Mapping[str, FakeCluster]) -> Iterator[None]:
    """Have the product's client connect to these clusters, by site, instead of to brokers."""

    async def connect(
        host: str, port: int, endpoint: KafkaEndpoint, *, client_id: str, request_timeout: float, later: Endpoint
    ) -> Connection:
        connection = Connection(f"{host}:{port}", endpoint, client_id, request_timeout, later=later)
        connection.connection_made(FakeTransport(clusters[endpoint.site], connection))
        return connection

    with patch("fairlead.kafka.client.pool.connect", cast(Callable[..., Any], connect)):
        yield
