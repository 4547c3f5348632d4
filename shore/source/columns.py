"""Rows of the source: collecting stored batches and making Arrow record batches of them, in one of two shapes. Pure.

``RAW``: one row per data record with everything Kafka has of it, whatever it holds. The other is parsed:
``shore.source.readings``. Markers and fillers are never rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import pyarrow as pa

from fairlead.kafka.columnar import NONE, Columns, Stretch, decode
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.names import parse_log
from fairlead.records import headers
from shore.source.offsets import partition_id
from shore.source.slices import binary, chosen, milliseconds, text
from shore.tables.model import TIME
from shore.tables.readings import HEADERS

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
        """Take batches of a log; what they lie in is held until the next ``take``."""
        self._logs.append((topic, partition))
        self._stretches.append(stretch)
        self._records += stretch.records
        self._bytes += stretch.end

    @property
    def full(self) -> bool:
        """Whether it is time to take what was added."""
        return self._records >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def take(self) -> pa.RecordBatch:
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
