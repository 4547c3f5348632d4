"""Fill the tables of a job for the first time, where its inputs are small: one append for each table, no batch.

A batch first finds what its rows touch and what the tables have of it, and a query that reads a Delta table for the
first time sorts the table's files by Spark. Spark plans each such step, which costs a laptop more than the rows do. For
the first fill of a voyage of ten boxes it runs 369 queries this way instead of 537, with 15 % less CPU (Spark 4.2.0).
Large inputs are left to the batches, whose size is bounded.
"""

from __future__ import annotations

import logging
from typing import Final

from shore.delta.commit import conform
from shore.jobs.checkpoint import PARTITIONS, complete_settings, has_begun, table_end, write_table_checkpoint
from shore.jobs.model import Job, JobContext
from shore.jobs.query import SPARK_ERRORS, job_failure
from shore.tables.graph import DERIVED

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
"""Of all files of a job's inputs: some two million readings."""
_MANY_BYTES: Final = 1 << 20
"""From some 30,000 readings on, generated code pays: 190,000 readings take 26 instead of 83 CPU-s (Spark 4.2.0)."""


def fill_first(context: JobContext, job: Job) -> None:
    """Fill the tables of a job if they are all empty and its inputs are small. Leave a checkpoint after the versions of
    the inputs that the tables were computed from.

    A job that was interrupted here, or that Spark fails here, has some of its tables and no checkpoint: its query then
    computes them from all rows, batch by batch.
    """
    if not _is_due(context, job):
        return
    size = sum(map(context.lake.bytes_of, job.inputs))
    if not 0 < size <= MOST_BYTES:
        return
    ends = {name: table_end(context.paths, name) for name in job.inputs}
    versions = {name: end.version - 1 for name, end in ends.items()}
    lake = context.lake.in_own_session()
    if size >= _MANY_BYTES:
        lake.generate_code()
    try:
        for each in DERIVED:
            if each.table.name in job.tables:
                rows = lake.expected_rows(each, context.topology, versions)
                lake.append(each.table.name, conform(rows, each.table))  # without rows too: to count them costs as much
    except SPARK_ERRORS as error:
        logger.warning("its tables are filled batch by batch: %s", job_failure(job.name, str(error)).what)
        return
    settings = complete_settings("{}", str(context.spark.conf.get(PARTITIONS)))
    write_table_checkpoint(context.paths, job.name, list(ends.values()), settings)


def _is_due(context: JobContext, job: Job) -> bool:
    derived = {each.table.name for each in DERIVED}
    return (
        not job.reads_logs
        and derived.issuperset(job.tables)
        and not has_begun(context.paths, job.name)
        and all(map(context.lake.is_empty, job.tables))
    )
