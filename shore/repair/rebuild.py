"""``shore rebuild JOB``: make a job's checkpoint and tables consistent again, whichever of them was lost.

A job that reads logs: the rows that its tables lack are added from the logs. Its new checkpoint stands where its tables
end, log by log. Nothing is read twice, and rows whose records retention has deleted stay. Where retention has deleted
rows, a log stands no earlier than the old checkpoint says, if it can be read.

A job that reads tables: its tables are recomputed from their inputs, and its checkpoint is archived. The job then reads
its inputs once more, which changes no correct row. A table with rows stays as it is where retention has deleted rows
from which it follows (``shore.kept``).

A job that reads logs and keeps a state of its own (``alerts``): its tables are emptied and its checkpoint is archived.
The job reads the logs once more, as far as they reach back.

``feeds``: the table is read again from the customers' feeds, which have what customers were given. Without its
checkpoint the job compares everything once more and delivers nothing twice.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlead.errors import UnavailableError, UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.datasource import register
from shore.delta.commit import create_tables
from shore.delta.lake import Lake
from shore.delta.lease import check_lease
from shore.errors import CheckpointDamagedError, SplitStateError
from shore.feeds.readers import logs_here
from shore.jobs.checkpoint import (
    PARTITIONS,
    archive_checkpoint,
    complete_settings,
    read_checkpoint,
    settings_line,
    write_checkpoint,
)
from shore.jobs.model import Job
from shore.jobs.state import check_state
from shore.kept import kept_of
from shore.paths import TablePaths
from shore.repair.backfill import recompute, why_forgotten
from shore.repair.logs import find_odd_rows, repair_logs
from shore.sink.exactly_once import reread
from shore.source.offsets import Positions
from shore.tables import TABLES
from shore.tables.model import Table
from shore.verify.catalogue import DERIVED, FROM_LOGS
from shore.verify.logs import own_positions
from topologies.model import Topology

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was done.

    Args:
        created: Tables that did not exist.
        written: Rows written, by table.
        logs: How many logs have a position in the new checkpoint; None for jobs that get none.
        put_aside: Where the job's old checkpoint is now; None when it had none.
        next: Jobs that must be rebuilt next, because an input of theirs was recreated.
    """

    job: str
    created: tuple[str, ...]
    written: dict[str, int]
    logs: int | None
    put_aside: str | None
    next: tuple[str, ...]


def rebuild_job(
    job: str,
    jobs: dict[str, Job],
    lake: Lake,
    topology: Topology,
    endpoint: KafkaEndpoint,
    *,
    tell: Tell = lambda what: None,
) -> Rebuilt:
    """Make a job's checkpoint and tables consistent. The caller holds shore's lock.

    Raises:
        UnknownNameError: there is no such job.
        ConnectionLost, RequestTimeout, BrokerError, PySparkException: the logs cannot be read; the checkpoint is not
            archived then.
    """
    if job not in jobs:
        raise UnknownNameError("job", job, jobs)
    one, paths = jobs[job], lake.paths
    register(lake.spark, endpoint)
    lost = {name: table for name, table in TABLES.items() if not DeltaTable.is_deltatable(paths.table(name))}
    create_tables(lake.spark, {paths.table(name): table for name, table in lost.items()})
    written: dict[str, int] = {}
    positions: Positions | None = None
    aside: str | None = None
    settings = complete_settings(settings_line(paths, job), str(lake.spark.conf.get(PARTITIONS)))
    suffix = f"replaced-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}"
    if one.reads_logs and not any(entry.job == job for entry in FROM_LOGS):
        # First: an empty table with the old checkpoint would look correct, and its rows would be missing for good.
        aside = archive_checkpoint(paths, job, suffix)
        for name in one.tables:
            tell(f"emptying {name}")
            empty_table(lake, TABLES[name])
            written[name] = 0
    elif one.reads_logs:
        positions = {}
        for entry in FROM_LOGS:
            if entry.job != job:
                continue
            tell(f"looking where {entry.name} end")
            ends = ends_of(lake, entry.tables)
            if kept_of(paths, entry.tables) and lost.keys().isdisjoint(entry.tables):
                read = own_positions(_read_before(paths, job), entry.takes(topology))
                ends = {log: max(read.get(log, 0), ends.get(log, 0)) for log in (*read, *ends)}
            tell(f"comparing {entry.name} with the logs")
            found = find_odd_rows(entry, lake, topology, endpoint, ends)
            if found.missing or found.wrong:
                written[entry.name] = repair_logs(found, lake)
            positions |= ends
    elif job == "feeds":
        tell("reading the feeds")
        written["feeds"] = reread(lake, endpoint, [each.customer for each in logs_here(topology)])
    for derived in DERIVED:  # in the graph's order: inputs first
        name = derived.table.name
        if name in one.tables and name not in written:
            if (why := why_forgotten(derived, paths)) and not lake.is_empty(name):
                tell(f"leaving {name} as it is: {why}")
                continue
            tell(f"making {name} again")
            written[name] = recompute(derived, lake, topology)
    aside = aside or archive_checkpoint(paths, job, suffix)
    if positions is not None:
        write_checkpoint(paths, job, positions, settings)
    logs = len(positions) if positions is not None else None
    created = tuple(name for name in lost if name in one.tables)
    return Rebuilt(job, created, written, logs, aside, _next(paths, jobs))


def _read_before(paths: TablePaths, job: str) -> Positions:
    """Return the positions of a job's checkpoint; none where it is lost or damaged."""
    try:
        checkpoint = read_checkpoint(paths, job)
    except CheckpointDamagedError:
        return {}
    return checkpoint.positions if checkpoint is not None else {}


def empty_table(lake: Lake, table: Table) -> None:
    """Delete all rows of a table."""
    location = lake.paths.table(table.name)
    check_lease(location)
    SparkTable.forPath(lake.spark, location).delete()


def ends_of(lake: Lake, tables: tuple[str, ...]) -> Positions:
    """Return the offset after the last row of each log in these tables."""
    rows = reduce(DataFrame.unionAll, (lake.read(name).select("log", "log_offset") for name in tables))
    ends = rows.groupBy("log").agg((F.max("log_offset") + 1).alias("stop")).toArrow()
    return dict(zip(ends["log"].to_pylist(), ends["stop"].to_pylist(), strict=True))


def _next(paths: TablePaths, jobs: dict[str, Job]) -> tuple[str, ...]:
    found = []
    for name, job in jobs.items():
        try:
            check_state(paths, [job])
        except SplitStateError:
            found.append(name)
        except UnavailableError:  # a damaged table of another job: its own repair says what to do
            continue
    return tuple(found)
