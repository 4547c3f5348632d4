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

from fairlead.errors import UnavailableError, UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.checkpoint import put_aside, settings_line, write_checkpoint
from shore.errors import SplitStateError
from shore.jobs.model import Job
from shore.jobs.state import check_state
from shore.places import Places
from shore.repair.derived import make_again
from shore.repair.feeds import read_again
from shore.repair.logs import find_odd, repair
from shore.source.offsets import Positions
from shore.tables import TABLES
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


def rebuild(
    job: str,
    jobs: dict[str, Job],
    topology: Topology,
    endpoint: KafkaEndpoint,
    places: Places,
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
        if not DeltaTable.is_deltatable(places.table(name)):
            TABLES[name].create(places.table(name))
            created += [name] if name in one.tables else []
    written: dict[str, int] = {}
    positions: Positions | None = None
    aside: str | None = None
    settings = settings_line(places, job)
    archive = f"replaced-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}"
    if one.reads_logs and not any(entry.job == job for entry in FROM_LOGS):
        # First: an empty table with the old checkpoint would seem to be right, and rows would be missing for ever.
        aside = put_aside(places, job, archive)
        for name in one.tables:
            tell(f"emptying {name}")
            write_deltalake(DeltaTable(places.table(name)), TABLES[name].plain_schema.empty_table(), mode="overwrite")
            written[name] = 0
    elif one.reads_logs:
        positions = {}
        for entry in FROM_LOGS:
            if entry.job != job:
                continue
            tell(f"looking where {entry.name} end")
            ends = ends_of(places, entry.tables)
            tell(f"comparing {entry.name} with the logs")
            found = find_odd(entry, topology, endpoint, places, ends)
            if found.missing or found.wrong:
                written[entry.name] = repair(found, endpoint, places)
            positions |= ends
    elif job == "feeds":
        tell("reading the feeds")
        written["feeds"] = read_again(topology, endpoint, places)
    for each in DERIVED:
        if each.job == job and each.table not in written:
            tell(f"making {each.table} again")
            written[each.table] = make_again(each, places)
    aside = aside or put_aside(places, job, archive)
    if positions is not None:
        write_checkpoint(places, job, positions, settings)
    logs = len(positions) if positions is not None else None
    return Rebuilt(job, tuple(created), written, logs, aside, _next(places, jobs))


def ends_of(places: Places, tables: tuple[str, ...]) -> Positions:
    """The offset after the last row of each log in these tables."""
    found: Positions = {}
    with duckdb.connect(":memory:") as opened:
        opened.execute("set memory_limit = '1GB'")
        for name in tables:
            rows = DeltaTable(places.table(name)).to_pyarrow_dataset()
            opened.register("rows", rows.scanner(columns=["log", "log_offset"]).to_reader())
            ends: pa.Table = opened.sql(
                "select log, max(log_offset) + 1 as stop from rows group by log"
            ).to_arrow_table()
            opened.unregister("rows")
            for log, stop in zip(ends["log"].to_pylist(), ends["stop"].to_pylist(), strict=True):
                found[log] = max(stop, found.get(log, 0))
    return found


def _next(places: Places, jobs: dict[str, Job]) -> tuple[str, ...]:
    found = []
    for name, job in jobs.items():
        try:
            check_state(places, [job])
        except SplitStateError:
            found.append(name)
        except UnavailableError:  # a damaged table of another job: whoever mends that is told what to do then
            continue
    return tuple(found)
