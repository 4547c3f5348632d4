"""New data files of a Delta table: tasks write them, the driver commits them all at once (``shore.delta.write``).

What is written and never committed (the task failed, or the driver died) is in no version of the table; ``shore
vacuum`` deletes it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from shore.tables.model import Table

ROWS_PER_GROUP: Final = 50_000
"""Rows of a Parquet row group: few enough to be held by every task, many enough for readers."""
_CODEC: Final = "zstd"  # half the size of snappy for a fifth of a microsecond a row


class NewFile(NamedTuple):
    """A file that no version of the table has yet. ``path`` is relative to the table, ``stats`` as the Delta protocol
    ("Per-file Statistics") has it."""

    table: str
    path: str
    rows: int
    bytes: int
    stats: str


FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("path", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("stats", pa.string()),
    ]
)


def as_batch(files: Sequence[NewFile]) -> pa.RecordBatch:
    """One row for each file."""
    return pa.RecordBatch.from_pylist([file._asdict() for file in files], schema=FILES_SCHEMA)


class FileWriter:
    """Writes rows into one new file of a table, which begins to exist with its first row.

    Args:
        folder: Where the table stands: a path, or a URL that delta-rs knows.
        table: Must name the columns that its files have statistics of (``Table.pruned_by``).
    """

    def __init__(self, folder: str, table: Table) -> None:
        self._table = table
        self._schema = table.plain_schema
        self._bounds = ColumnBounds(table.pruned_by)
        self._path = f"part-{uuid.uuid4()}.{_CODEC}.parquet"
        self._files, self._place = _opened(folder, self._path)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows of the table's columns, in their order."""
        if not rows.num_rows:
            return  # it would hold what it was cut from
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> NewFile | None:
        """The finished file; None when there were no rows."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        size = self._files.get_file_info(self._place).size
        return NewFile(self._table.name, self._path, self._bounds.rows, size, json.dumps(self._bounds.to_delta()))

    def abandon(self) -> None:
        """Leave nothing behind, where that can be done."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
                self._files.delete_file(self._place)

    def _flush(self) -> None:
        if not self._waiting_rows:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._place,
                self._schema,
                filesystem=self._files,
                compression=_CODEC,
                use_dictionary=[field.name for field in self._schema if pa.types.is_string(field.type)],
                write_statistics=list(self._table.pruned_by),
            )
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._bounds.add(rows)
        self._writer.write_table(rows, row_group_size=self._waiting_rows)
        self._waiting, self._waiting_rows = [], 0


class ColumnBounds:
    """A file's statistics of some columns for Delta's log. Times are in whole milliseconds there, rounded outwards.

    Of each of these columns that has a value there must be bounds: delta-rs takes a missing one for null, and leaves
    the file out of every question about the column.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._nulls = dict.fromkeys(columns, 0)
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """Count these rows too."""
        self.rows += rows.num_rows
        for name in self._nulls:
            self._nulls[name] += rows[name].null_count
            low, high = pc.min_max(rows[name]).as_py().values()
            if low is not None:
                before = self._bounds.get(name, (low, high))
                self._bounds[name] = min(low, before[0]), max(high, before[1])

    def to_delta(self) -> dict[str, Any]:
        """As the Delta protocol has it."""
        return {
            "numRecords": self.rows,
            "minValues": {name: _value(low, up=False) for name, (low, _) in self._bounds.items()},
            "maxValues": {name: _value(high, up=True) for name, (_, high) in self._bounds.items()},
            "nullCount": self._nulls,
        }


def _value(value: Any, *, up: bool) -> Any:
    if not isinstance(value, dt.datetime):
        return value
    value = value.astimezone(dt.UTC)
    if up and value.microsecond % 1000:
        value += dt.timedelta(milliseconds=1)
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _opened(folder: str, path: str) -> tuple[pa_fs.FileSystem, str]:
    if "://" in folder:
        return pa_fs.PyFileSystem(DeltaStorageHandler(folder)), path
    return pa_fs.LocalFileSystem(), f"{folder}/{path}"
