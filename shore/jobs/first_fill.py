"""Fill the tables of a job for the first time, where its inputs are small: one append for each table, no batch.

A batch first finds what its rows touch and what the tables have of it, and a query that reads a Delta table for the
first time sorts the table's files by Spark. On a laptop that is most of the work of a first fill, because Spark plans
each such step for a quarter of a second (measured: 316 steps instead of 70 for all jobs of a voyage of ten boxes).
Large inputs are left to the batches, whose size is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from shore.delta.commit import replace_rows
from shore.jobs.checkpoint import has_begun, table_end, write_table_checkpoint
from shore.jobs.model import Job, JobContext
from shore.jobs.query import SPARK_ERRORS
from shore.tables.graph import DERIVED, Settings
from shore.tables.hours import ACTIVATION_ENERGY

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
"""Of all files of a job's inputs: some two million readings."""


def fill_first(context: JobContext, jobs: Sequence[Job]) -> None:
    """Fill the tables of those jobs that are all empty and whose inputs are small, side by side. Leave each job a
    checkpoint after the versions of its inputs that the tables were computed from.

    A job that was interrupted here, or that Spark fails here, has some of its tables and no checkpoint: its query then
    computes them from all rows, batch by batch.
    """
    due = [job for job in jobs if _is_due(context, job)]
    if due:
        with ThreadPoolExecutor(len(due), "first-fill") as pool:
            list(pool.map(lambda job: _fill(context, job), due))


def _is_due(context: JobContext, job: Job) -> bool:
    derived = {each.table.name for each in DERIVED}
    return (
        bool(job.inputs)
        and derived.issuperset(job.tables)
        and not has_begun(context.paths, job.name)
        and all(map(context.lake.is_empty, job.tables))
    )


def _fill(context: JobContext, job: Job) -> None:
    paths = context.paths
    if not 0 < sum(map(context.lake.bytes_of, job.inputs)) <= MOST_BYTES:
        return
    ends = {name: table_end(paths, name) for name in job.inputs}
    versions = {name: end.version - 1 for name, end in ends.items()}
    lake = context.lake.in_own_session()
    shore = context.topology.shore
    settings = Settings(shore.activation_energy if shore is not None else ACTIVATION_ENERGY)
    try:
        for each in DERIVED:
            if each.table.name in job.tables:
                replace_rows(lake, each.table, each.compute(lake.inputs(each.inputs, versions), settings))
    except SPARK_ERRORS as error:
        logger.warning("job %s fills its tables batch by batch, because Spark failed: %s", job.name, error)
        return
    write_table_checkpoint(paths, job.name, list(ends.values()), "{}")
