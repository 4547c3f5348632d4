"""Fill the tables of a job for the first time, where its inputs are small, without a batch: one append for each table.

A batch first finds what its rows touch and what the tables have of it, and a query that reads a Delta table for the
first time sorts the table's files by Spark. Spark plans each such step, which costs a laptop more than the rows do. The
first fill of a voyage of ten boxes runs 294 queries; it ran 465, with 88 instead of 62 CPU-s in the JVM, when tables
read their inputs from Delta and feeds had batches (Spark 4.2.0). Large inputs are left to the batches, whose size is
bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shore.delta.commit import conform
from shore.delta.lake import SMALL_BYTES, Lake
from shore.jobs.checkpoint import PARTITIONS, complete_settings, has_begun, table_end, write_table_checkpoint
from shore.jobs.model import Job, JobContext
from shore.jobs.query import SPARK_ERRORS, job_failure
from shore.tables.graph import DERIVED

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
"""Of all files of a job's inputs: some two million readings."""


def fill_first(context: JobContext, job: Job) -> None:
    """Fill the tables of a job that are computed from others (``without_batch``), if they are all empty.

    A job that was interrupted here, or that Spark fails here, has some of its tables and no checkpoint: its query then
    computes them from all rows, batch by batch.
    """

    def fill(lake: Lake, versions: Mapping[str, int]) -> None:
        for each in DERIVED:
            if each.table.name in job.tables:
                rows = lake.expected_rows(each, context.topology, versions)
                lake.append(each.table.name, conform(rows, each.table))  # without rows too: to count them costs as much

    if _is_due(context, job):
        without_batch(context, job.name, job.inputs, fill)


def without_batch(
    context: JobContext, job: str, inputs: Sequence[str], fill: Callable[[Lake, Mapping[str, int]], object]
) -> bool:
    """Fill the tables of a job that has not begun by one call, if its inputs are small and not all empty. Leave a
    checkpoint after the versions of the inputs, so that its query goes on from there. Return False where Spark failed
    the fill, perhaps half-way.

    Args:
        inputs: ``Job.inputs``.
        fill: Fills the tables from these versions of the inputs, or newer ones. Where it fails by Spark, the query
            starts from the beginning.
    """
    size = sum(map(context.lake.bytes_of, inputs))
    if not 0 < size <= MOST_BYTES:
        return True
    ends = {name: table_end(context.paths, name) for name in inputs}
    if size <= SMALL_BYTES:
        lake = context.lake.of_small_tables()
    else:
        lake = context.lake.in_own_session()
        lake.generate_code()
    try:
        fill(lake, {name: end.version - 1 for name, end in ends.items()})
    except SPARK_ERRORS as error:
        logger.warning("its tables are filled batch by batch: %s", job_failure(job, str(error)).what)
        return False
    settings = complete_settings("{}", str(context.spark.conf.get(PARTITIONS)))
    write_table_checkpoint(context.paths, job, list(ends.values()), settings)
    return True


def _is_due(context: JobContext, job: Job) -> bool:
    derived = {each.table.name for each in DERIVED}
    return (
        not job.reads_logs
        and derived.issuperset(job.tables)
        and not has_begun(context.paths, job.name)
        and all(map(context.lake.is_empty, job.tables))
    )
