"""The sink ``fairlead``: what Spark calls when rows are written. Options: ``shore.sink.options``; columns:
``shore.sink.options``.

Contract
--------
* Tasks write nothing. They check their rows and hand them to the driver in commit messages; a task that is tried again,
  or runs twice, does no harm. A batch of more than ``maxBytesPerBatch`` fails before anything is appended.
* When all tasks are done, the driver appends each log's rows: in the order of the tasks, contiguous unless others write
  the log, each record with a header that names app, batch and index (``shore.sink.append``).
* Spark repeats a batch with the same number until it has noted its success, so a batch may come again after a crash at
  any point. The driver therefore first reads the log back to the app's last record:
  nothing of the batch there: all is appended; a part of it: what is missing is appended; all of it: nothing.
  **Exactly once** follows as long as the query gives the same rows for the same batch, in whatever order. If it does
  not, and the batch was appended in part, the query fails (``ChangedBatchError``) rather than guess.
* Every append is a compare-and-swap on the log's end. Of two drivers of the same query one gets ``LogMovedError``.
* If ``commit`` raises, the query ends; started again, it repeats the batch. There is nothing to undo: ``abort`` comes
  only before anything was appended.
* Between logs there is no transaction: a reader may see a batch in one log before it is in another.
* A log of a new ``app`` is read back to its beginning once, which takes as long as reading it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import ConnectionLost, RequestTimeout
from shore.errors import BatchTooLargeError, site_unreachable
from shore.sink.append import append_batch
from shore.sink.options import ROWS, SinkOptions, by_log, check_columns, normalised_rows, size_of

CLIENT_ID = "fairlead-sink"


class RowsMessage(WriterCommitMessage):
    """The rows of one task, as an Arrow stream."""

    def __init__(self, rows: pa.Table) -> None:
        with pa.BufferOutputStream() as out:
            with pa.ipc.new_stream(out, ROWS, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
                stream.write_table(rows)
            self.content: bytes = out.getvalue().to_pybytes()

    @property
    def rows(self) -> pa.Table:
        return pa.ipc.open_stream(self.content).read_all()


class SinkWriter:
    """What batch and streaming writers have in common; holds nothing that cannot be pickled."""

    def __init__(self, endpoint: KafkaEndpoint, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.log)
        self._endpoint = endpoint
        self._options = options
        self._timed = "timestamp" in schema.names

    def gather(self, iterator: Iterator[pa.RecordBatch]) -> RowsMessage:
        """In a task: its rows, checked and bounded."""
        tables: list[pa.Table] = []
        size = 0
        for batch in iterator:
            tables.append(normalised_rows(batch, self._options.log))
            size = self._bounded(size + size_of(tables[-1]))
        rows = pa.concat_tables(tables) if tables else ROWS.empty_table()
        by_log([rows], 0)  # a row that cannot be a record is found here, where it costs the driver nothing
        return RowsMessage(rows)

    def _bounded(self, size: int) -> int:
        if size > self._options.max_bytes:
            raise BatchTooLargeError(
                f"a batch has more than maxBytesPerBatch ({self._options.max_bytes:,} bytes), all of which the driver "
                "would hold",
                hint="lower maxRecordsPerTrigger or maxBytesPerTrigger where the query reads, or raise this bound "
                "together with spark.driver.memory",
            )
        return size

    def append(self, messages: Sequence[WriterCommitMessage | None], app: str, batch: int) -> int:
        """On the driver: what the logs do not have yet of a batch. Raises as ``append_batch``."""
        tables = [message.rows for message in messages if isinstance(message, RowsMessage)]
        self._bounded(sum(size_of(table) for table in tables))
        rows = by_log(tables, time.time_ns() // 1_000_000)

        async def work() -> int:
            async with await Cluster.open(self._endpoint, client_id=CLIENT_ID) as cluster:
                return await append_batch(
                    cluster,
                    rows,
                    app=app,
                    batch=batch,
                    timed=self._timed,
                    create=self._options.create_logs,
                    appended=self.appended,
                )

        try:
            return asyncio.run(work()) if rows else 0
        except (ConnectionLost, RequestTimeout) as error:
            raise site_unreachable(self._endpoint, error) from error

    def appended(self, log: str, count: int) -> None:
        """Called after each append; tests plant their crashes here."""


class StreamLogWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Micro-batches of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.gather(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._options.app is None:
            raise AssertionError("the options of a streaming query have an app")
        self.append(messages, self._options.app, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: nothing was appended yet."""


class BatchLogWriter(SinkWriter, DataSourceArrowWriter):
    """One batch write: batch 0 of its ``app``. Written again with the same app and rows, it adds nothing; without an
    app it is a batch of its own each time, and one that failed half-way may be there in part."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.gather(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.append(messages, self._options.app or uuid.uuid4().hex, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to undo: nothing was appended yet."""
