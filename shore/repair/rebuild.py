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

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from fairlead.errors import UnavailableError, UnknownNameError
from fairlead.home import topology_folder
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.lake import Lake
from shore.errors import SplitStateError
from shore.feeds.readers import customers_here
from shore.jobs.checkpoint import archive_checkpoint, settings_line, write_checkpoint
from shore.jobs.model import Job
from shore.jobs.runner import own_session
from shore.jobs.state import check_state
from shore.paths import TablePaths
from shore.repair.backfill import recompute
from shore.repair.logs import find_odd_rows, repair_logs
from shore.sink.exactly_once import reread
from shore.source.offsets import Positions
from shore.tables import TABLES
from shore.verify.catalogue import DERIVED, FROM_LOGS
from topologies.model import Topology


def reread_feeds(topology: Topology, endpoint: KafkaEndpoint, paths: TablePaths) -> int:
    """Make table ``feeds`` what the feeds hold; gives the number of its rows. Uses the Spark session of this process,
    or starts one.

    Raises:
        ConnectionLost, RequestTimeout, BrokerError: the feeds cannot be read.
    """
    customers = customers_here(topology)
    running = SparkSession.getActiveSession()
    if running is not None:
        return reread(Lake(running, paths), endpoint, customers)
    if topology.shore is None:
        return 0
    with own_session(topology_folder(topology.name), topology.shore) as session:
        return reread(Lake(session, paths), endpoint, customers)


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
    topology: Topology,
    endpoint: KafkaEndpoint,
    paths: TablePaths,
    *,
    tell: Tell = lambda what: None,
) -> Rebuilt:
    """Make a job's checkpoint and tables belong together. The caller holds shore's lock.

    Raises:
        UnknownNameError: there is no such job.
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read; nothing was put aside then.
    """
    if job not in jobs:
        raise UnknownNameError("job", job, jobs)
    one = jobs[job]
    created = []
    for name in TABLES:
        if not DeltaTable.is_deltatable(paths.table(name)):
            TABLES[name].create(paths.table(name))
            created += [name] if name in one.tables else []
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
            write_deltalake(DeltaTable(paths.table(name)), TABLES[name].plain_schema.empty_table(), mode="overwrite")
            written[name] = 0
    elif one.reads_logs:
        positions = {}
        for entry in FROM_LOGS:
            if entry.job != job:
                continue
            tell(f"looking where {entry.name} end")
            ends = ends_of(paths, entry.tables)
            tell(f"comparing {entry.name} with the logs")
            found = find_odd_rows(entry, topology, endpoint, paths, ends)
            if found.missing or found.wrong:
                written[entry.name] = repair_logs(found, endpoint, paths)
            positions |= ends
    elif job == "feeds":
        tell("reading the feeds")
        written["feeds"] = reread_feeds(topology, endpoint, paths)
    for each in DERIVED:
        if each.job == job and each.table not in written:
            tell(f"making {each.table} again")
            written[each.table] = recompute(each, paths)
    aside = aside or archive_checkpoint(paths, job, suffix)
    if positions is not None:
        write_checkpoint(paths, job, positions, settings)
    logs = len(positions) if positions is not None else None
    return Rebuilt(job, tuple(created), written, logs, aside, _next(paths, jobs))


def ends_of(paths: TablePaths, tables: tuple[str, ...]) -> Positions:
    """The offset after the last row of each log in these tables."""
    found: Positions = {}
    with duckdb.connect(":memory:") as opened:
        opened.execute("set memory_limit = '1GB'")
        for name in tables:
            rows = DeltaTable(paths.table(name)).to_pyarrow_dataset()
            opened.register("rows", rows.scanner(columns=["log", "log_offset"]).to_reader())
            ends: pa.Table = opened.sql(
                "select log, max(log_offset) + 1 as stop from rows group by log"
            ).to_arrow_table()
            opened.unregister("rows")
            for log, stop in zip(ends["log"].to_pylist(), ends["stop"].to_pylist(), strict=True):
                found[log] = max(stop, found.get(log, 0))
    return found


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
