"""Maintenance of the tables: compact small files, delete files that no version needs, delete rows past their retention.

Each verb is a plan (figures that delta-rs reads from the table's log in milliseconds) and its execution by Spark.
``fairlead shore run`` does all three on a schedule (``shore.jobs.maintenance``). ``fairlead shore compact`` and
``vacuum`` hold the same lock, because only one process writes a table.

**Compact** is Delta's OPTIMIZE: it merges small files. It also clusters a table with liquid clustering, by groups of
files; a full group is not written again. OPTIMIZE moves rows and changes none: its commit says so (``dataChange``
false), and Delta's streaming source skips it.

New files first go together into files of some megabytes (``NEW``), and a large one is made of these when they have
enough for it (``GROWING``). So today's rows are not among those of all days, and a batch, which asks for a day or an
hour of some boxes, reads few others. In one file of 64 MB there are 14 days of 2,000 boxes.

A batch that changes a row writes the row's whole file again. So in the tables of ``CHANGING`` groups are small, and
after OPTIMIZE the rows of the last days get files of their own: only late readings change rows in large files. With 100
days of 2,000 boxes a batch of ``conditions`` took 204 CPU-s while all rows were in one file. This commit replaces rows
by equal ones; Delta refuses to mark it as a move. No job follows these tables.

**Vacuum** is Delta's VACUUM: it deletes files that no recent version needs, and files that crashed writers left behind.
A file is kept for ``KEEP`` after it was replaced. For that long, readers of an older version can go on, and older
versions can be read. Vacuum skips a table while a job has still to read rows from before that time.

**Retention** deletes the rows of a table whose times (``TIMES``) are all before a day; of ``alerts_ashore`` the states
of alerts that were over before it, so that an alert has all of its states or none. ``kept_since`` says which rows may
be gone. A comparison of a table with its inputs leaves these rows out on both sides (``shore.kept``). It skips a table
while a job has still to read such rows.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fairlead.errors import RefusedError, UnavailableError, first_line
from fairlead.records import UNREADABLE, decoder
from shore.delta.lease import check_lease
from shore.delta.table_errors import check_tables, open_table, unreadable_table_error
from shore.errors import COMMIT_CONFLICTS
from shore.paths import TablePaths
from shore.storage import Storage
from shore.tables import TABLES, Table
from shore.tables.alerts_ashore import ALERTS_ASHORE

if TYPE_CHECKING:  # plans need no Spark
    from pyspark.sql import Column, DataFrame, SparkSession

CLUSTERED: Final = {"readings": "equipment_reference"}
"""The Z-order column of tables that were created before liquid clustering."""
CHANGING: Final = frozenset({"conditions", "mkt", "excursions", "excursion_parts", "quality"})
"""Clustered tables whose newest rows change with each new reading."""
RECENT: Final = dt.timedelta(days=1)
"""Rows of these tables are recent from this long before today on, by their times (``TIMES``)."""
_APART_BYTES: Final = 4 << 20  # tables of fewer bytes are written again in no time
FEW: Final = 8  # files: up to so many small ones, or files opened by one query, need no compaction
_ROW_GROUP_BYTES: Final = 16 << 20  # the least that a query for one container reads
_ATTEMPTS: Final = 5
_CLUSTERING: Final = "clustering"  # the table feature of liquid clustering
_DELTA: Final = "spark.databricks.delta"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of files.

    Args:
        target: Larger files are cut.
        small: Files below it are put together. A group of files with so many bytes is full: it is not clustered again.
        group: Of files that are clustered together. No group reaches it, so it is well above ``small``.
    """

    target: int
    small: int
    group: int

    @property
    def settings(self) -> dict[str, int]:
        """The settings of a session that compacts."""
        clustering = f"{_DELTA}.optimize.clustering.mergeStrategy.minCubeSize"
        return {
            f"{_DELTA}.optimize.maxFileSize": self.target,
            f"{_DELTA}.optimize.minFileSize": self.small,
            f"{clustering}.threshold": self.small,
            f"{clustering}.targetCubeSize": self.group,
        }


NEW: Final = Sizes(target=64 << 20, small=2 << 20, group=4 << 20)
GROWING: Final = Sizes(target=64 << 20, small=32 << 20, group=64 << 20)
OF_CHANGING: Final = Sizes(target=32 << 20, small=16 << 20, group=32 << 20)


def maintenance_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the one that runs queries, with its own settings.

    OPTIMIZE works on one group of files at a time. VACUUM lists files in as many tasks as there are cores, at least 4;
    its default is 10,000 tasks.
    """
    session = spark.newSession()
    for name, value in {
        f"{_DELTA}.optimize.maxThreads": 1,
        f"{_DELTA}.vacuum.logging.enabled": "false",
        "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
        "parquet.block.size": _ROW_GROUP_BYTES,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": max(4, spark.sparkContext.defaultParallelism),
    }.items():
        session.conf.set(name, str(value))
    return session


@dataclass(frozen=True, slots=True)
class CompactStep:
    """The compaction of one table, and the figures behind it.

    Args:
        sizes: Those of the files to make.
        small: Number of files that are small by ``sizes``.
        cluster_by: The columns that rows are clustered by; empty for most tables.
        liquid: Whether the table has liquid clustering; tables of older releases do not.
        opened: The most files that a query for one value of the first of ``cluster_by`` opens; None for other tables.
        views: Number of files whose strings or bytes are Arrow views, which Arrow cannot filter: delta-rs's delete,
            update and merge write them. Counted only for tables on this machine.
        key: The first column of the table's key.
        recent_since: Rows with times at or after this get files of their own; None where none do.
        why: What to do and why; empty when there is nothing to do.
    """

    table: str
    sizes: Sizes
    files: int
    small: int
    bytes: int
    cluster_by: tuple[str, ...]
    liquid: bool
    opened: int | None
    views: int
    key: str
    recent_since: dt.datetime | None
    why: str


def plan_compaction(
    paths: TablePaths,
    names: Iterable[str] | None = None,
    *,
    tables: Mapping[str, Table] = TABLES,
    now: dt.datetime | None = None,
) -> tuple[CompactStep, ...]:
    """Return one step for each of these tables, or of all tables that exist. A step may have nothing to do.

    Args:
        tables: All known tables (``shore.feeds.readers.kept_tables`` adds those of customers).
        now: The time from which the age of rows counts; by default this machine's.

    Raises:
        UnknownNameError: there is no such table.
        UnavailableError: a table cannot be opened.
    """
    wanted = list(names or ())
    check_tables(wanted, tables)
    since = _day(now or dt.datetime.now(dt.UTC)) - RECENT
    steps = []
    for name in wanted or tables:
        delta = open_table(paths, name)
        if delta is not None:
            actions = pa.table(delta.get_add_actions(flatten=True))
            views = _views(paths.table(name), actions["path"].to_pylist()) if paths.is_local else 0
            liquid = _CLUSTERING in (delta.protocol().writer_features or ())
            steps.append(_step(name, tables[name], actions, views, since, liquid=liquid))
    return tuple(steps)


def compact(spark: SparkSession, paths: TablePaths, step: CompactStep) -> tuple[int, int]:
    """Compact one table, in a session of ``maintenance_session``.

    Returns:
        The number of files before and after.

    Raises:
        UnavailableError: all attempts conflicted with other writers, or a file is gone or damaged.
        LeaseLostError: another machine has taken the right to write.
    """
    from delta.tables import DeltaTable as Delta

    location = paths.table(step.table)
    before = len(DeltaTable(location).file_uris())
    for name, value in step.sizes.settings.items():
        spark.conf.set(name, str(value))

    def optimize() -> None:
        if step.liquid and step.views:
            spark.sql(f"optimize delta.`{location}` full")
        elif step.views or (step.cluster_by and not step.liquid):
            Delta.forPath(spark, location).optimize().executeZOrderBy(*(step.cluster_by or (step.key,)))
        else:
            Delta.forPath(spark, location).optimize().executeCompaction()

    failed = f"table {step.table} could not be compacted"
    _commit(step.table, location, optimize, failed)
    if step.recent_since is not None:
        _commit(step.table, location, partial(_set_apart, spark, location, step, step.recent_since), failed)
    return before, len(DeltaTable(location).file_uris())


def _commit(table: str, location: str, work: Callable[[], None], failed: str) -> None:
    """Do work that ends with a commit to a table, again if it conflicts with another writer's.

    Raises:
        UnavailableError: ``failed``, because all attempts conflicted.
    """
    for _ in range(_ATTEMPTS):
        check_lease(location)
        with _as_table_errors(), _conflicts() as conflict:
            work()
        if not conflict:
            return
    raise UnavailableError(
        f"{failed}: writers were faster {_ATTEMPTS} times",
        hint="nothing was changed; it is tried again at the next time",
        table=table,
    )


def _set_apart(spark: SparkSession, location: str, step: CompactStep, since: dt.datetime) -> None:
    """Move the rows with a time at or after ``since`` to files that have no others.

    The rows are read as the table is when this commit begins, although they are asked for before: Delta plans a scan of
    a table that is being written by the writer's own snapshot (``PrepareDeltaScan``).
    """
    recent = " or ".join(f"{time} >= timestamp '{since.isoformat()}'" for time in TIMES[step.table])
    rows = spark.read.format("delta").load(location).where(recent)
    if step.cluster_by:  # tables of an earlier release may not be clustered
        rows = rows.sortWithinPartitions(*step.cluster_by)
    rows.write.format("delta").mode("overwrite").option("replaceWhere", recent).save(location)


@contextlib.contextmanager
def _conflicts() -> Iterator[list[Exception]]:
    """Catch the error of a commit that conflicts with another one, and put it into the yielded list."""
    found: list[Exception] = []
    try:
        yield found
    except Exception as error:
        if type(error).__name__ not in COMMIT_CONFLICTS:
            raise
        found.append(error)


@contextlib.contextmanager
def _as_table_errors() -> Iterator[None]:
    """Turn Spark's errors about missing or damaged files into ``UnavailableError``."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise unreadable_table_error(str(error.java_exception)) from error
    except (PySparkException, Py4JError) as error:
        raise unreadable_table_error(str(error)) from error


def files_opened(ranges: Sequence[tuple[Any, Any]]) -> int:
    """Return the largest number of these ranges (least and greatest value) that one value can be in. Pure."""
    edges = sorted([(low, 0) for low, _ in ranges] + [(high, 1) for _, high in ranges])
    most = now = 0
    for _, ends in edges:
        now += -1 if ends else 1
        most = max(most, now)
    return most


def _views(location: str, files: Iterable[str]) -> int:
    """Return how many of these files of a table have Arrow view columns. Files that cannot be read do not count."""
    return sum(_has_views(Path(location, file)) for file in files)


def _has_views(file: Path) -> bool:
    try:
        types = pq.read_schema(file).types
    except (OSError, pa.ArrowException):
        return False
    return any(pa.types.is_string_view(each) or pa.types.is_binary_view(each) for each in types)


def _step(name: str, table: Table, actions: pa.Table, views: int, since: dt.datetime, *, liquid: bool) -> CompactStep:
    sizes = actions["size_bytes"].to_pylist()
    columns = table.cluster_by if liquid else tuple(filter(None, [CLUSTERED.get(name)]))
    wanted = OF_CHANGING if name in CHANGING else GROWING
    by_parts = wanted is GROWING and (liquid or not columns) and not views  # else, all files are written again
    if by_parts and sum(size for size in sizes if size < GROWING.small) < GROWING.small:
        wanted = NEW
    small = sum(size < wanted.small for size in sizes)
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
    apart = since if name in CHANGING and sum(sizes) >= _APART_BYTES else None
    return CompactStep(
        name, wanted, len(sizes), small, sum(sizes), columns, liquid, opened, views, table.key[0], apart, why
    )


def _statistics(actions: pa.Table, name: str) -> list[Any]:
    known = name in actions.schema.names
    return actions[name].to_pylist() if known else [None] * actions.num_rows


KEEP: Final = dt.timedelta(days=7)
_HOUR: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class VacuumStep:
    """The files of one table that vacuum can delete. ``bytes`` is None for tables at a storage URL. ``why`` says why
    vacuum must leave the table alone; empty otherwise."""

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
    """Return what vacuum can delete of these tables, or of all tables that exist. Delete nothing.

    Args:
        keep: How long files are kept after they were replaced; rounded down to hours.
        force: Allow less than ``KEEP``.
        unread: Returns why vacuum must leave a table alone that loses its files from before a time, or an empty text
            (``shore.jobs.maintenance.unread_by``).
        tables: All known tables (``shore.feeds.readers.kept_tables`` adds those of customers).

    Raises:
        RefusedError: ``keep`` is too short.
        UnknownNameError: there is no such table.
        UnavailableError: a table cannot be opened.
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
    """Delete the files of one step, in a session of ``maintenance_session``. Return their number as planned; 0 for a
    step with ``why``, which deletes nothing.

    Raises:
        RefusedError: ``keep`` is too short.
        UnavailableError: the table cannot be read, or files cannot be deleted.
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
    """Return how many of these files exist, and their bytes: delta-rs also names files that are deleted already."""
    if not paths.is_local:
        return len(files), None
    there = [Path(paths.table(name)) / file for file in files]
    sizes = [path.stat().st_size for path in there if path.is_file()]
    return len(sizes), sum(sizes)


TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "readings": ("device_date_time", "received_date_time"),
    "readings_rejected": ("record_date_time", "received_date_time"),
    "positions": ("device_date_time", "record_date_time"),
    "environment": ("device_date_time", "record_date_time"),
    "digests": ("as_of_date_time", "record_date_time"),
    "conditions": ("window_end",),
    "mkt": ("window_end",),
    "excursions": ("start_date_time", "last_date_time"),
    "excursion_parts": ("part_start", "last_date_time"),
    "alerts_ashore": ("event_date_time",),
    "port_calls": ("call_date_time",),
    "voyages": ("leg_date_time",),
    "quality": ("day",),
}
"""Tables whose rows may be deleted by age, and the time columns of a row. A row is deleted when all of them are before
the limit; a null does not count, and a row that has none of them stays. The first column is the table's own time: no
row with this time at or after ``kept_since`` was deleted. A reading that arrives late stays for its whole retention,
because the time of its arrival counts, too.

Other tables hold the current state, custody, bookings, or deliveries to customers: their old rows still count.
"""
_RETENTION: Final = "retention"


class KeptSince(msgspec.Struct, frozen=True):
    """Content of ``retention/<table>.json`` beside the tables."""

    kept_since: dt.datetime


_kept_since = decoder(KeptSince)


def kept_since(paths: TablePaths, table: str) -> dt.datetime | None:
    """Return the time before which retention may have deleted rows of a table, by the first of ``TIMES``; None where it
    deleted none. Later rows all exist. The time never moves back, even if the topology sets a longer retention.

    Raises:
        UnavailableError: the storage does not answer; or the file cannot be decoded. An earlier release left it cut off
            where the disk was full. Taken for absent, it would let jobs delete what was made of deleted rows.
    """
    try:
        note = Storage(f"{paths.base}/{_RETENTION}").read(f"{table}.json")
    except FileNotFoundError:
        return None
    try:
        return _kept_since.decode(note).kept_since
    except UNREADABLE as error:
        file = f"{paths.base}/{_RETENTION}/{table}.json"
        raise UnavailableError(
            f"{file} cannot be read: {first_line(error)}",
            hint="write into it since when all rows are there, such as the day of the oldest one: "
            '{"kept_since": "2026-03-01T00:00:00Z"}; remove it only if retention never deleted rows of the table',
            file=file,
        ) from error


def wholly_before(table: str, limit: dt.datetime) -> Column:
    """Return the condition of every row that retention deletes: all of its times (``TIMES``) are before the limit."""
    from pyspark.sql import functions as F

    times = [F.col(column) for column in TIMES[table]]
    early = [time < F.lit(limit) for time in times]
    # Delta finds the files of such a condition by their statistics; it would open all for one with ``coalesce``.
    return reduce(and_, (one | time.isNull() for one, time in zip(early, times, strict=True))) & reduce(or_, early)


@dataclass(frozen=True, slots=True)
class ExpiryStep:
    """The expiry of one table: delete rows whose times are all before ``before``. ``files`` counts files with such.
    ``why`` says why retention must leave the table alone; empty otherwise."""

    table: str
    before: dt.datetime
    files: int
    why: str = ""


def plan_expiry(
    paths: TablePaths,
    retention: Mapping[str, dt.timedelta],
    *,
    unread: Callable[[DeltaTable, Collection[str]], str] = lambda table, files: "",
    now: dt.datetime,
) -> tuple[ExpiryStep, ...]:
    """Return the rows that retention lets us delete, as one step for each table. Limits are starts of days in UTC.

    Args:
        unread: Returns why retention must leave these files of a table alone, or an empty text
            (``shore.jobs.maintenance.unread_files``).

    Raises:
        UnavailableError: a table cannot be opened.
    """
    steps = []
    for name, keep in retention.items():
        table = open_table(paths, name)
        if table is None:
            continue
        before = _day(now - keep)
        actions = pa.table(table.get_add_actions(flatten=True))
        oldest = zip(*(_statistics(actions, f"min.{column}") for column in TIMES[name]), strict=True)
        files = [
            path
            for path, timed, times in zip(
                actions["path"].to_pylist(), _timed(actions, TIMES[name]), oldest, strict=True
            )
            if timed and all(time is None or _as_utc(time) < before for time in times)
        ]
        steps.append(ExpiryStep(name, before, len(files), unread(table, files) if files else ""))
    return tuple(steps)


def _timed(actions: pa.Table, times: Sequence[str]) -> Iterator[bool]:
    """Return whether a row of each file may have any of these times."""
    rows = _statistics(actions, "num_records")
    nulls = zip(*(_statistics(actions, f"null_count.{column}") for column in times), strict=True)
    for count, absent in zip(rows, nulls, strict=True):
        yield any(each is None or each != count for each in absent)


def expire(spark: SparkSession, paths: TablePaths, step: ExpiryStep) -> int:
    """Delete the rows of one step by one commit, in a session of ``maintenance_session``. Return their number.

    Times that a row does not have do not count (``TIMES``). The limit is recorded first (``kept_since``), so that no
    comparison reports the deleted rows as missing.

    Raises:
        UnavailableError: the table cannot be read or written, or all attempts conflicted with other writers.
        LeaseLostError: another machine has taken the right to write.
    """
    from delta.tables import DeltaTable as Delta
    from pyspark.sql import functions as F

    if not step.files:
        return 0
    location = paths.table(step.table)
    version = DeltaTable(location).version()
    of_alerts = step.table == ALERTS_ASHORE.name
    operation, deleted = ("MERGE", "numTargetRowsDeleted") if of_alerts else ("DELETE", "numDeletedRows")

    def delete() -> None:
        _note_kept_since(paths, step)
        table = Delta.forPath(spark, location)
        if of_alerts:  # Delta's DELETE takes no query
            over = _over_before(table.toDF(), step.before).alias("s")
            early = F.col("t.event_date_time") < F.lit(step.before)  # true for them all; lets Delta skip files
            same = F.col("t.alert_id") == F.col("s.alert_id")
            table.alias("t").merge(over, same & early).whenMatchedDelete().execute()
        else:
            table.delete(wholly_before(step.table, step.before))

    _commit(step.table, location, delete, f"old rows of table {step.table} could not be deleted")
    commits = Delta.forPath(spark, location).history().where(F.col("version") > version)
    done = commits.where(F.col("operation") == operation).collect()
    return sum(int(each["operationMetrics"].get(deleted, 0)) for each in done)


def _over_before(alerts_ashore: DataFrame, limit: dt.datetime) -> DataFrame:
    """Return the ids of the alerts that have ended, and all of whose states are before the limit."""
    from pyspark.sql import functions as F

    newest, state = F.max("event_date_time").alias("newest"), F.max_by("state", "revision").alias("state")
    alerts = alerts_ashore.groupBy("alert_id").agg(newest, state)
    return alerts.where((F.col("newest") < F.lit(limit)) & (F.col("state") == "CLEARED")).select("alert_id")


def _note_kept_since(paths: TablePaths, step: ExpiryStep) -> None:
    before = kept_since(paths, step.table)
    if before is None or before < step.before:
        note = msgspec.json.encode(KeptSince(step.before))
        Storage(f"{paths.base}/{_RETENTION}").write(f"{step.table}.json", note)


def _day(time: dt.datetime) -> dt.datetime:
    """Return the start of a time's day in UTC."""
    return time.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _as_utc(time: dt.datetime | dt.date) -> dt.datetime:
    if not isinstance(time, dt.datetime):
        return dt.datetime.combine(time, dt.time(), dt.UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
