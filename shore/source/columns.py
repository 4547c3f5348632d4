"""Rows of the source: collecting stored batches and making Arrow record batches of them, in one of two shapes. Pure.

``RAW``: one row per data record with everything Kafka has of it, whatever it holds. The other is parsed:
``shore.source.readings``. Markers and fillers are never rows. Pieces of the fetched buffer
(``fairlead.kafka.columnar.Slices``) become Arrow arrays without an object for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairlead.kafka.columnar import NONE, ByteSlices, Columns, Stretch, decode
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.names import parse_log
from fairlead.records import headers
from shore.source.offsets import partition_id
from shore.tables.model import TIME
from shore.tables.readings import HEADERS

_MOST_BYTES: Final = 2**31 - 1  # that Arrow's plain arrays can point into
_USUAL_DIGITS: Final = 13  # milliseconds since 1970, from 2001 to 2286
_NEWLINE: Final = 10


def binary(data: bytes | bytearray, slices: ByteSlices) -> pa.Array:
    """One value for each slice, null for null. The slices lie one after the other, as those of a column do."""
    rows = len(slices.size)
    if not rows:
        return pa.array([], pa.binary())
    if len(data) > _MOST_BYTES:
        raise CorruptBatch(f"{len(data)} bytes of records, unpacked, are more than one array can have")
    absent = slices.size < 0
    if absent.all():
        return pa.nulls(rows, pa.binary())
    # To Arrow the buffer is an array already: of values, and of what lies between them. It copies every other one.
    end = np.maximum.accumulate(np.where(absent, 0, slices.start + slices.size))
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = np.where(absent, end, slices.start)
    edges[1::2] = end
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(wanted, mask=absent if absent.any() else None))


def text(data: bytes | bytearray, slices: ByteSlices) -> pa.Array:
    """The same as strings; what is no UTF-8 has replacement characters."""
    values = binary(data, slices)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [v.decode(errors="replace") if v is not None else None for v in values.to_pylist()], pa.string()
        )


def lines(data: bytes, slices: ByteSlices) -> pa.Buffer | None:
    """All values, each with a newline after it, as one text; None when one of them is null, empty, or has line breaks
    or another beginning than ``{``. What follows a value in ``data`` must be no part of another one."""
    if not len(slices.size) or (slices.size <= 0).any():
        return None
    raw = np.frombuffer(bytearray(data), np.uint8)
    if (raw[slices.start] != ord("{")).any():
        return None
    raw[slices.start + slices.size] = _NEWLINE
    joined = binary(raw, ByteSlices(slices.start, slices.size + 1))  # type: ignore[arg-type]  # a buffer as well
    found = joined.buffers()[2]
    written = np.frombuffer(found, np.uint8)
    if np.count_nonzero(written == _NEWLINE) != len(slices.size) or (written == ord("\r")).any():
        return None
    return found


def milliseconds(data: bytes, slices: ByteSlices) -> pa.Array:
    """Decimal milliseconds since 1970 as microseconds (int64); null where there are none, or no such number."""
    present = slices.size != NONE
    if not present.any():
        return pa.nulls(len(present), pa.int64())
    if (slices.size[present] == _USUAL_DIGITS).all():
        raw = np.frombuffer(data, np.uint8)
        digits = raw[slices.start[present][:, None] + np.arange(_USUAL_DIGITS)].astype(np.int64) - ord("0")
        if ((digits >= 0) & (digits <= 9)).all():
            number = np.zeros(len(present), np.int64)
            number[present] = digits @ (10 ** np.arange(_USUAL_DIGITS - 1, -1, -1, dtype=np.int64)) * 1000
            return pa.array(number, mask=~present)
    return pa.array([_milliseconds(value) for value in binary(data, slices).to_pylist()], pa.int64())


def _milliseconds(value: bytes | None) -> int | None:
    return int(value) * 1000 if value is not None and value.isdigit() and len(value) <= 15 else None


def chosen(values: pa.Array, number: npt.NDArray[np.int64]) -> pa.Array:
    """For each number the value of that place."""
    return values.take(pa.array(number))


ROWS_PER_BATCH: Final = 10_000  # rows of one Arrow batch: a few MB, and enough to make its overhead small
BYTES_PER_BATCH: Final = 16 << 20  # of stored batches, whatever is in them: what a task holds at once

RAW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("stream", pa.string()),  # of the topic's name; null when it is no log of any stream
        pa.field("log_key", pa.string()),  # container number, site or ship of the topic's name; null likewise
        pa.field("site", pa.string()),  # whose Kafka it was read from
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIME),  # of the Kafka record: device time
        pa.field("received", TIME),  # of the bridge's header; null without one
        pa.field("term", pa.int32()),  # null for batches that Fairlead did not write
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("value", pa.binary()),
    ]
)


class Collector(ABC):
    """Takes stored batches log by log, gives their data records back as one Arrow batch."""

    def __init__(self) -> None:
        self._logs: list[tuple[str, int]] = []
        self._stretches: list[Stretch] = []
        self._records = self._bytes = 0

    def add(self, topic: str, partition: int, stretch: Stretch) -> None:
        """Take batches of a log; what they lie in is held until the next ``take_batch``."""
        self._logs.append((topic, partition))
        self._stretches.append(stretch)
        self._records += stretch.records
        self._bytes += stretch.end

    @property
    def full(self) -> bool:
        """Whether it is time to take what was added."""
        return self._records >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take_batch(self) -> pa.RecordBatch:
        """The rows of everything that was added since the last time: perhaps none.

        Raises:
            CorruptBatch: stored batches cannot be read.
        """
        logs, stretches = self._logs, self._stretches
        self._logs, self._stretches = [], []
        self._records = self._bytes = 0
        try:
            records = decode(stretches)
        except CorruptBatch:
            for log, stretch in zip(logs, stretches, strict=True):
                _check(partition_id(*log), stretch)
            raise
        return self._rows(logs, data_records(records))

    @abstractmethod
    def _rows(self, logs: list[tuple[str, int]], records: Columns) -> pa.RecordBatch:
        """The batch. ``records.stretch`` are places in ``logs``."""


def _check(log: str, stretch: Stretch) -> None:
    """Raise what is wrong with a log's batches, with its name."""
    try:
        decode([stretch])
    except CorruptBatch as error:
        raise CorruptBatch(
            f"{log}: {error.what}",
            hint="the broker's own copy is damaged: take the log from another site, then go on from the checkpoint",
            log=log,
            **error.fields,
        ) from None


def data_records(records: Columns) -> Columns:
    """What is neither marker nor filler."""
    kind = records.header(headers.KIND.encode(), first=True)
    if (kind.size == NONE).all():
        return records
    return records.where(~(records.equal(kind, headers.MARKER) | records.equal(kind, headers.FILLER)))


def received(records: Columns) -> pa.Array:
    """When the bridge had each record."""
    return milliseconds(records.data, records.header(headers.RECEIVED.encode())).cast(TIME)


def record_time(records: Columns) -> pa.Array:
    """Kafka's time of each record."""
    return pa.array(records.time_ms * 1000).cast(TIME)


def terms(records: Columns) -> pa.Array:
    """The custody term of each record; null where Fairlead did not write it."""
    return pa.array(records.term.astype(np.int32), mask=records.term == 0)


def header_lists(records: Columns) -> pa.Array:
    """All headers of each record."""
    table = records.headers
    ends = np.cumsum(np.bincount(table.row, minlength=len(records)))
    edges = np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int32)
    # Names and values of one header lie before those of the next, also from row to row.
    pairs = pa.StructArray.from_arrays(
        [text(records.data, table.name), binary(records.data, table.value)], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(edges), pairs, type=HEADERS)


class RawCollector(Collector):
    """Collects rows of ``RAW_SCHEMA``."""

    def __init__(self, site: str) -> None:
        super().__init__()
        self._site = site

    def _rows(self, logs: list[tuple[str, int]], records: Columns) -> pa.RecordBatch:
        names = [parse_log(topic) for topic, _ in logs]

        def of_log(values: list[str] | list[str | None], kind: pa.DataType) -> pa.Array:
            return chosen(pa.array(values, kind), records.stretch)

        columns = [
            of_log([topic for topic, _ in logs], pa.string()),
            of_log([name.stream if name else None for name in names], pa.string()),
            of_log([name.key if name else None for name in names], pa.string()),
            pa.array([self._site], pa.string()).take(pa.array(np.zeros(len(records), np.int64))),
            chosen(pa.array([partition for _, partition in logs], pa.int32()), records.stretch),
            pa.array(records.offset),
            record_time(records),
            received(records),
            terms(records),
            binary(records.data, records.key),
            header_lists(records),
            binary(records.data, records.value),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def log_origin(records: Columns) -> pa.Array:
    """Where each copied record came from; null for those that are no copies."""
    return text(records.data, records.header(headers.ORIGIN.encode()))


def is_late(records: Columns) -> pa.Array:
    """Whether each was appended after newer readings of its device."""
    return pa.array(records.equal(records.header(headers.LATE.encode()), b"1"))
