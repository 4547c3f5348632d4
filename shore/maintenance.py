"""Looking after the tables: fewer and better sorted files, deleting files that no version needs, and rows past their
retention.

Each verb is a plan (figures that delta-rs reads from the table's log, in milliseconds) and its execution by Spark.
``fairlead shore run`` does all three on a schedule (``shore.jobs.maintenance``). As only one process writes a table,
``fairlead shore compact`` and ``vacuum`` hold the same lock.

**Compact** is Delta's OPTIMIZE: small files become few. A table with liquid clustering is clustered on the way, by
groups of ``CUBE_BYTES``: a full group is not written again. A compaction moves rows and changes none: its commit says
so (``dataChange`` false), and Delta's streaming source passes over it.

**Vacuum** is Delta's VACUUM: delete files that no version of the last days needs, and what crashed writers left behind.
Files are kept for ``KEEP`` since they were replaced: that long can readers that opened an older version go on, and
versions be looked at. A table is left alone while a job has still to read what it had before that.

**Retention** deletes the rows of a table whose times (``TIMES``) are all before a day. ``kept_since`` says which rows
that concerns: who compares a table with what it is made of leaves them out on both sides.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fairlead.errors import RefusedError, UnavailableError
from shore.delta.lease import check_lease
from shore.delta.table_errors import check_tables, open_table, unreadable_table_error
from shore.errors import COMMIT_CONFLICTS
from shore.paths import TablePaths
from shore.storage import Storage
from shore.tables import TABLES, Table

if TYPE_CHECKING:  # plans need no Spark
    from pyspark.sql import SparkSession

CLUSTERED: Final = {"readings": "equipment_reference"}
"""The column by which the rows of a table from before liquid clustering are put together."""
TARGET_BYTES: Final = 128 << 20
SMALL_BYTES: Final = TARGET_BYTES // 2
CUBE_BYTES: Final = 512 << 20
FEW: Final = 8  # files: so many small ones, or opened by one query, are no reason to do anything
_ROW_GROUP_BYTES: Final = 16 << 20  # what a query for one container reads at least
_ATTEMPTS: Final = 5
_CLUSTERING: Final = "clustering"  # the table feature of liquid clustering


def maintenance_session(spark: SparkSession) -> SparkSession:
    """A session beside the one that runs queries, with settings of its own.

    OPTIMIZE works on one group of files at a time. VACUUM lists files in as many tasks as there are cores; its default
    is 10,000 tasks.
    """
    session = spark.newSession()
    prefix = "spark.databricks.delta"
    for name, value in {
        f"{prefix}.optimize.maxFileSize": TARGET_BYTES,
        f"{prefix}.optimize.minFileSize": SMALL_BYTES,
        f"{prefix}.optimize.maxThreads": 1,
        f"{prefix}.optimize.clustering.mergeStrategy.minCubeSize.threshold": CUBE_BYTES,
        f"{prefix}.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": CUBE_BYTES,
        f"{prefix}.vacuum.logging.enabled": "false",
        "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
        "parquet.block.size": _ROW_GROUP_BYTES,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": max(4, spark.sparkContext.defaultParallelism),
    }.items():
        session.conf.set(name, str(value))
    return session


@dataclass(frozen=True, slots=True)
class CompactStep:
    """One table as it is.

    Args:
        small: Files that are smaller than half of the target.
        cluster_by: The columns by which rows are put together; empty for most tables.
        liquid: Whether the table has liquid clustering; one of an older release does not.
        opened: Files that a query for one value of the first of ``cluster_by`` opens at most; None for other tables.
        views: Files whose strings or bytes are stored as Arrow's views, which Arrow cannot filter: delta-rs's delete,
            update and merge write them. Counted for tables on this machine only.
        key: The first column of the table's key.
        why: What is to be done and why; empty when nothing is.
    """

    table: str
    files: int
    small: int
    bytes: int
    cluster_by: tuple[str, ...]
    liquid: bool
    opened: int | None
    views: int
    key: str
    why: str


def plan_compaction(
    paths: TablePaths, names: Iterable[str] | None = None, *, tables: Mapping[str, Table] = TABLES
) -> tuple[CompactStep, ...]:
    """What there is to do for these tables, or for all that are there.

    Args:
        tables: All that there can be (``shore.feeds.readers.kept_tables`` has those of customers, too).

    Raises:
        UnknownNameError: there is no such table.
        UnavailableError: one cannot be opened.
    """
    wanted = list(names or ())
    check_tables(wanted, tables)
    steps = []
    for name in wanted or tables:
        delta = open_table(paths, name)
        if delta is not None:
            actions = pa.table(delta.get_add_actions(flatten=True))
            views = _views(paths.table(name), actions["path"].to_pylist()) if paths.is_local else 0
            liquid = _CLUSTERING in (delta.protocol().writer_features or ())
            steps.append(_step(name, tables[name], actions, views, liquid=liquid))
    return tuple(steps)


def compact(spark: SparkSession, paths: TablePaths, step: CompactStep) -> tuple[int, int]:
    """Carry out one step, in a session of ``maintenance_session``.

    Returns:
        How many files the table had and has.

    Raises:
        UnavailableError: writers were faster every time, or a file is gone or damaged.
        LeaseLostError: another machine has taken the right to write.
    """
    from delta.tables import DeltaTable as Delta

    location = paths.table(step.table)
    before = len(DeltaTable(location).file_uris())
    for _ in range(_ATTEMPTS):
        check_lease(location)
        with _as_table_errors(), _conflicts() as conflict:
            if step.liquid and step.views:
                spark.sql(f"optimize delta.`{location}` full")
            elif step.views or (step.cluster_by and not step.liquid):
                Delta.forPath(spark, location).optimize().executeZOrderBy(*(step.cluster_by or (step.key,)))
            else:
                Delta.forPath(spark, location).optimize().executeCompaction()
        if not conflict:
            return before, len(DeltaTable(location).file_uris())
    raise UnavailableError(
        f"table {step.table} could not be compacted: writers were faster {_ATTEMPTS} times",
        hint="nothing was changed; it is tried again at the next time",
        table=step.table,
    )


@contextlib.contextmanager
def _conflicts() -> Iterator[list[Exception]]:
    """Collect the error of a commit that lost the race against another one."""
    found: list[Exception] = []
    try:
        yield found
    except Exception as error:
        if type(error).__name__ not in COMMIT_CONFLICTS:
            raise
        found.append(error)


@contextlib.contextmanager
def _as_table_errors() -> Iterator[None]:
    """Raise what Spark says of files that are gone or damaged as ``UnavailableError``."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise unreadable_table_error(str(error.java_exception)) from error
    except (PySparkException, Py4JError) as error:
        raise unreadable_table_error(str(error)) from error


def files_opened(ranges: Sequence[tuple[Any, Any]]) -> int:
    """In how many of these ranges (least and greatest value) a value can be at most. Pure."""
    edges = sorted([(low, 0) for low, _ in ranges] + [(high, 1) for _, high in ranges])
    most = now = 0
    for _, ends in edges:
        now += -1 if ends else 1
        most = max(most, now)
    return most


def _views(location: str, files: Iterable[str]) -> int:
    """How many of these files of a table have columns that are views; one that cannot be read is none."""
    return sum(_has_views(Path(location, file)) for file in files)


def _has_views(file: Path) -> bool:
    try:
        types = pq.read_schema(file).types
    except (OSError, pa.ArrowException):
        return False
    return any(pa.types.is_string_view(each) or pa.types.is_binary_view(each) for each in types)


def _step(name: str, table: Table, actions: pa.Table, views: int, *, liquid: bool) -> CompactStep:
    sizes = actions["size_bytes"].to_pylist()
    small = sum(size < SMALL_BYTES for size in sizes)
    columns = table.cluster_by if liquid else tuple(filter(None, [CLUSTERED.get(name)]))
    opened = None
    if columns:
        low, high = (_statistics(actions, f"{edge}.{columns[0]}") for edge in ("min", "max"))
        ranges = [(a, b) for a, b in zip(low, high, strict=True) if a is not None and b is not None]
        opened = files_opened(ranges) + len(sizes) - len(ranges)
    why = ""
    if views:
        why = f"write {views:,} files again that cannot be filtered: delta-rs's delete, update or merge wrote them"
    elif opened is not None and not liquid and opened > FEW:
        why = f"put rows together by {columns[0]}: a query for one opens up to {opened:,} files"
    elif (liquid or not columns) and small > FEW:
        why = f"make few files of {small:,} small ones"
        why += f", by {' and '.join(columns)}" if columns else ""
    return CompactStep(name, len(sizes), small, sum(sizes), columns, liquid, opened, views, table.key[0], why)


def _statistics(actions: pa.Table, name: str) -> list[Any]:
    known = name in actions.schema.names
    return actions[name].to_pylist() if known else [None] * actions.num_rows


KEEP: Final = dt.timedelta(days=7)
_HOUR: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class VacuumStep:
    """What can be deleted of one table. ``bytes`` is None where files cannot be looked at (a storage URL). ``why`` says
    why nothing is to be deleted although something could be; empty otherwise."""

    table: str
    files: int
    bytes: int | None
    why: str = ""


def plan_vacuum(
    paths: TablePaths,
    names: Iterable[str] | None = None,
    *,
    keep: dt.timedelta = KEEP,
    force: bool = False,
    unread: Callable[[DeltaTable, dt.datetime], str] = lambda table, before: "",
    tables: Collection[str] = TABLES,
    now: dt.datetime,
) -> tuple[VacuumStep, ...]:
    """What can be deleted of these tables, or of all that are there; deletes nothing.

    Args:
        keep: For how long files are kept after they were replaced.
        force: Allow less than ``KEEP``.
        unread: Why a table must be left alone when its files from before this time go; empty otherwise
            (``shore.jobs.maintenance.unread_by``).
        tables: All that there can be (``shore.feeds.readers.kept_tables`` has those of customers, too).

    Raises:
        RefusedError: ``keep`` is too short.
        UnknownNameError: there is no such table.
        UnavailableError: one cannot be opened.
    """
    _check(keep, force=force)
    wanted = list(names or ())
    check_tables(wanted, tables)
    steps = []
    for name in wanted or tables:
        table = open_table(paths, name)
        if table is None:
            continue
        count, size = _there(
            paths, name, table.vacuum(int(keep / _HOUR), dry_run=True, enforce_retention_duration=False, full=True)
        )
        steps.append(VacuumStep(name, count, size, unread(table, now - keep)))
    return tuple(steps)


def vacuum(
    spark: SparkSession, paths: TablePaths, step: VacuumStep, *, keep: dt.timedelta = KEEP, force: bool = False
) -> int:
    """Carry out one step, in a session of ``maintenance_session``: delete the files. Gives their number; 0 for a step
    that says why not.

    Raises:
        RefusedError: ``keep`` is too short.
        UnavailableError: the table cannot be read, or files not be deleted.
        LeaseLostError: another machine has taken the right to write.
    """
    from delta.tables import DeltaTable as Delta

    _check(keep, force=force)
    if step.why:
        return 0
    location = paths.table(step.table)
    check_lease(location)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", str(keep >= KEEP).lower())
    with _as_table_errors():
        Delta.forPath(spark, location).vacuum(keep / _HOUR)
    return step.files


def _check(keep: dt.timedelta, *, force: bool) -> None:
    if keep < KEEP and not force:
        raise RefusedError(
            f"files that were replaced less than {KEEP.days} days ago may still be read: by queries that run, by jobs "
            "that were stopped, by whoever looks at yesterday's version",
            hint="--force deletes them all the same; stop shore and its readers first",
        )


def _there(paths: TablePaths, name: str, files: Sequence[str]) -> tuple[int, int | None]:
    """How many of these files are there, and their bytes: delta-rs also names those that it deleted before."""
    if not paths.is_local:
        return len(files), None
    there = [Path(paths.table(name)) / file for file in files]
    sizes = [path.stat().st_size for path in there if path.is_file()]
    return len(sizes), sum(sizes)


TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "readings": ("device_date_time", "received_date_time"),
    "readings_rejected": ("record_date_time",),
    "positions": ("device_date_time", "record_date_time"),
    "environment": ("device_date_time", "record_date_time"),
    "conditions": ("window_end",),
    "mkt": ("window_end",),
    "excursions": ("start_date_time", "last_date_time"),
    "excursion_parts": ("part_start", "last_date_time"),
    "alerts_ashore": ("event_date_time",),
    "port_calls": ("call_date_time",),
    "voyages": ("leg_date_time",),
    "quality": ("day",),
}
"""Tables whose rows may be deleted by age, and the times of a row: it is deleted when all of them are before the
limit. The first is the table's own time. All rows at or after ``kept_since`` of it are there. A reading that arrives
late stays for its whole retention, because the time of its arrival counts, too.

The other tables say what is so now, who holds or booked what, or what was given to whom: their old rows still count.
"""
_RETENTION: Final = "retention"


class KeptSince(msgspec.Struct, frozen=True):
    """Content of ``retention/<table>.json`` beside the tables."""

    kept_since: dt.datetime


def kept_since(paths: TablePaths, table: str) -> dt.datetime | None:
    """Rows of a table with a time (the first of ``TIMES``) before this may have been deleted by retention; None where
    none was. Other rows are all there. It never goes back, also when the topology gives the table a longer retention.

    Raises:
        UnavailableError: the storage does not answer.
    """
    try:
        note = Storage(f"{paths.base}/{_RETENTION}").read(f"{table}.json")
    except FileNotFoundError:
        return None
    return msgspec.json.decode(note, type=KeptSince).kept_since


@dataclass(frozen=True, slots=True)
class ExpiryStep:
    """One table with a retention: rows whose times are all before ``before`` go. ``files`` may have such rows."""

    table: str
    before: dt.datetime
    files: int


def plan_expiry(
    paths: TablePaths, retention: Mapping[str, dt.timedelta], *, now: dt.datetime
) -> tuple[ExpiryStep, ...]:
    """What there is to delete of tables with a retention; deletes nothing. Limits are the beginnings of days, UTC.

    Raises:
        UnavailableError: a table cannot be opened.
    """
    steps = []
    for name, keep in retention.items():
        table = open_table(paths, name)
        if table is None:
            continue
        before = (now - keep).astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        actions = pa.table(table.get_add_actions(flatten=True))
        columns = [_statistics(actions, f"min.{column}") for column in TIMES[name]]
        oldest = zip(*columns, strict=True)
        files = sum(all(time is None or _as_utc(time) < before for time in times) for times in oldest)
        steps.append(ExpiryStep(name, before, files))
    return tuple(steps)


def expire(spark: SparkSession, paths: TablePaths, step: ExpiryStep) -> int:
    """Carry out one step, in a session of ``maintenance_session``: delete the rows, by one commit. Gives their number.

    The limit is noted first (``kept_since``), so that nobody misses a row.

    Raises:
        UnavailableError: the table cannot be read or written, or writers were faster every time.
        LeaseLostError: another machine has taken the right to write.
    """
    from delta.tables import DeltaTable as Delta
    from pyspark.sql import functions as F

    if not step.files:
        return 0
    location = paths.table(step.table)
    limit = F.lit(step.before)
    old = reduce(and_, (F.col(column) < limit for column in TIMES[step.table]))
    for _ in range(_ATTEMPTS):
        check_lease(location)
        _note_kept_since(paths, step)
        version = DeltaTable(location).version()
        table = Delta.forPath(spark, location)
        with _as_table_errors(), _conflicts() as conflict:
            table.delete(old)
        if not conflict:
            commits = table.history().where(F.col("version") > version).where(F.col("operation") == "DELETE")
            return sum(int(each["operationMetrics"].get("numDeletedRows", 0)) for each in commits.collect())
    raise UnavailableError(
        f"old rows of table {step.table} could not be deleted: writers were faster {_ATTEMPTS} times",
        hint="nothing was changed; it is tried again at the next time",
        table=step.table,
    )


def _note_kept_since(paths: TablePaths, step: ExpiryStep) -> None:
    before = kept_since(paths, step.table)
    if before is None or before < step.before:
        note = msgspec.json.encode(KeptSince(step.before))
        Storage(f"{paths.base}/{_RETENTION}").write(f"{step.table}.json", note)


def _as_utc(time: dt.datetime | dt.date) -> dt.datetime:
    if not isinstance(time, dt.datetime):
        return dt.datetime.combine(time, dt.time(), dt.UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
