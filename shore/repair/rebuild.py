"""``shore rebuild JOB``: a job's checkpoint and tables made to belong together again, whatever of them was lost.

A job that reads logs: its new checkpoint stands where its tables end, log by log; what they lack before that is added
from the logs first. Nothing is read twice, and rows whose records retention has deleted stay.

A job that reads tables: its tables are made again from their inputs, and its checkpoint is put aside: it then reads its
inputs once more, which changes nothing that is right.

A job that reads logs and keeps a state of its own (``alerts``): its tables are emptied and its checkpoint is put aside:
it reads the logs once more, as far as they reach back.

``feeds``: what customers were given stands in their feeds, from which the table is read again; the job without its
checkpoint looks at everything once more and gives nobody what he has.
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
from shore.errors import SplitStateError
from shore.feeds.readers import customers_here
from shore.jobs.checkpoint import archive_checkpoint, settings_line, write_checkpoint
from shore.jobs.model import Job
from shore.jobs.state import check_state
from shore.paths import TablePaths
from shore.repair.backfill import recompute
from shore.repair.logs import find_odd_rows, repair_logs
from shore.sink.exactly_once import reread
from shore.source.offsets import Positions
from shore.tables import TABLES
from shore.tables.model import Table
from shore.verify.catalogue import DERIVED, FROM_LOGS
from topologies.model import Topology

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was done.

    Args:
        created: Tables that were not there.
        written: Rows written, by table.
        logs: Logs whose positions are in the new checkpoint; None for jobs that read tables.
        put_aside: Where the checkpoint is now that the job had; None when it had none.
        next: Jobs that must be rebuilt now, too: an input of theirs was made anew.
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
    """Make a job's checkpoint and tables belong together. The caller holds shore's lock.

    Raises:
        UnknownNameError: there is no such job.
        ConnectionLost, RequestTimeout, BrokerError, PySparkException: the logs cannot be read; nothing was put aside
            then.
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
    settings = settings_line(paths, job)
    suffix = f"replaced-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}"
    if one.reads_logs and not any(entry.job == job for entry in FROM_LOGS):
        # First: an empty table with the old checkpoint would seem to be right, and rows would be missing for ever.
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
            tell(f"comparing {entry.name} with the logs")
            found = find_odd_rows(entry, lake, topology, endpoint, ends)
            if found.missing or found.wrong:
                written[entry.name] = repair_logs(found, lake)
            positions |= ends
    elif job == "feeds":
        tell("reading the feeds")
        written["feeds"] = reread(lake, endpoint, customers_here(topology))
    for derived in DERIVED:  # in the graph's order: inputs first
        name = derived.table.name
        if name in one.tables and name not in written:
            tell(f"making {name} again")
            written[name] = recompute(derived, lake, topology)
    aside = aside or archive_checkpoint(paths, job, suffix)
    if positions is not None:
        write_checkpoint(paths, job, positions, settings)
    logs = len(positions) if positions is not None else None
    created = tuple(name for name in lost if name in one.tables)
    return Rebuilt(job, created, written, logs, aside, _next(paths, jobs))


def empty_table(lake: Lake, table: Table) -> None:
    """Delete all rows."""
    location = lake.paths.table(table.name)
    check_lease(location)
    SparkTable.forPath(lake.spark, location).delete()


def ends_of(lake: Lake, tables: tuple[str, ...]) -> Positions:
    """The offset after the last row of each log in these tables."""
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
        except UnavailableError:  # a damaged table of another job: whoever mends that is told what to do then
            continue
    return tuple(found)
