"""Rows of the source: collect stored batches and turn them into Arrow record batches, in one of two shapes. Pure.

``RAW_SCHEMA`` has one row per data record with everything that Kafka has of it. The other shape is parsed:
``shore.source.readings``. Markers and fillers never become rows. Slices of the fetched buffer
(``fairlead.kafka.columnar.ByteSlices``) become Arrow arrays without a Python object for each value.
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
from fairlead.records.reading import LATEST_MS
from shore.source.offsets import partition_id
from shore.tables.model import TIME
from shore.tables.readings import HEADERS

_MOST_BYTES: Final = 2**31 - 1  # the most that Arrow arrays with 32-bit offsets can address
_USUAL_DIGITS: Final = 13  # of milliseconds since 1970, from 2001 to 2286
_MOST_DIGITS: Final = 15  # of ``LATEST_MS``
_NEWLINE: Final = 10


def binary(data: bytes | bytearray, slices: ByteSlices) -> pa.Array:
    """Return one value for each slice, null for null slices. The slices follow each other, as those of a column do.
    Raise ``CorruptBatch`` where ``data`` is larger than one Arrow array can address."""
    rows = len(slices.size)
    if not rows:
        return pa.array([], pa.binary())
    if len(data) > _MOST_BYTES:
        raise CorruptBatch(f"{len(data)} bytes of records, unpacked, are more than one array can have")
    absent = slices.size < 0
    if absent.all():
        return pa.nulls(rows, pa.binary())
    # Arrow sees the whole buffer as an array of values alternating with the gaps between them, and copies the values.
    end = np.maximum.accumulate(np.where(absent, 0, slices.start + slices.size))
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = np.where(absent, end, slices.start)
    edges[1::2] = end
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(wanted, mask=absent if absent.any() else None))


def text(data: bytes | bytearray, slices: ByteSlices) -> pa.Array:
    """Return one string for each slice. Invalid UTF-8 becomes replacement characters. Raises as ``binary``."""
    values = binary(data, slices)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [v.decode(errors="replace") if v is not None else None for v in values.to_pylist()], pa.string()
        )


def lines(data: bytes, slices: ByteSlices) -> pa.Buffer | None:
    """Return all values as one text with a newline after each; None when a value is null, is empty, has line breaks, or
    does not begin with ``{``. The byte after a value in ``data`` must not belong to another value."""
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
    """Return decimal milliseconds since 1970 as microseconds (int64); null where a slice is null or no such number, or
    the time is after ``LATEST_MS``."""
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
    if value is None or not value.isdigit() or len(value) > _MOST_DIGITS or int(value) > LATEST_MS:
        return None
    return int(value) * 1000


def chosen(values: pa.Array, number: npt.NDArray[np.int64]) -> pa.Array:
    """Return the value at each of these places."""
    return values.take(pa.array(number))


ROWS_PER_BATCH: Final = 10_000  # rows of one Arrow batch: a few MB, and enough to make its overhead small
BYTES_PER_BATCH: Final = 16 << 20  # of stored batches, markers included: what a task holds at once

RAW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("stream", pa.string()),  # from the topic's name; null when the topic is no log of a stream
        pa.field("log_key", pa.string()),  # container number, site or ship from the topic's name; null likewise
        pa.field("site", pa.string()),  # the site whose Kafka the record was read from
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIME),  # of the Kafka record: device time
        pa.field("received", TIME),  # from the bridge's header; null without one
        pa.field("term", pa.int32()),  # null for batches that Fairlead did not write
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("value", pa.binary()),
    ]
)


class Collector(ABC):
    """Collects stored batches log by log, and returns their data records as one Arrow batch."""

    def __init__(self) -> None:
        self._logs: list[tuple[str, int]] = []
        self._stretches: list[Stretch] = []
        self._records = self._bytes = 0

    def add(self, topic: str, partition: int, stretch: Stretch) -> None:
        """Add batches of a log. Their buffer stays in memory until the next ``take_batch``."""
        self._logs.append((topic, partition))
        self._stretches.append(stretch)
        self._records += stretch.records
        self._bytes += stretch.end

    @property
    def full(self) -> bool:
        """Whether there is enough for one Arrow batch."""
        return self._records >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take_batch(self) -> pa.RecordBatch:
        """Return the rows of everything added since the last call; perhaps none.

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
        """Return the batch. ``records.stretch`` holds indexes into ``logs``."""


def _check(log: str, stretch: Stretch) -> None:
    """Raise ``CorruptBatch`` with the log's name if its batches cannot be decoded."""
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
    """Return the records that are neither markers nor fillers."""
    kind = records.header(headers.KIND.encode(), first=True)
    if (kind.size == NONE).all():
        return records
    return records.where(~(records.equal(kind, headers.MARKER) | records.equal(kind, headers.FILLER)))


def received(records: Columns) -> pa.Array:
    """Return when the bridge received each record; null without its header."""
    return milliseconds(records.data, records.header(headers.RECEIVED.encode())).cast(TIME)


def record_time(records: Columns) -> pa.Array:
    """Return Kafka's timestamp of each record, within 1970 and 9998 (as ``fairlead.kafka.convention.time_ms``)."""
    return pa.array(np.clip(records.time_ms, 0, LATEST_MS) * 1000).cast(TIME)


def terms(records: Columns) -> pa.Array:
    """Return the custody term of each record; null where Fairlead did not write it."""
    return pa.array(records.term.astype(np.int32), mask=records.term == 0)


def header_lists(records: Columns) -> pa.Array:
    """Return all headers of each record."""
    table = records.headers
    ends = np.cumsum(np.bincount(table.row, minlength=len(records)))
    edges = np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int32)
    # ``binary`` needs ordered slices: a header's name and value come before the next header's, across rows too.
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
    """Return where each copied record came from; null for records that are not copies."""
    return text(records.data, records.header(headers.ORIGIN.encode()))


def is_late(records: Columns) -> pa.Array:
    """Return whether each record was appended after newer readings of its device."""
    return pa.array(records.equal(records.header(headers.LATE.encode()), b"1"))
