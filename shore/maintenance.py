"""Looking after the tables: fewer and better sorted files, and deleting what no version needs.

Each verb is a plan (pure figures of what is there) and its execution, which may run while shore does. delta-rs does it,
no Spark.

**Compact**: small files become few, and the rows of ``readings`` are put together by container. A compaction moves rows
and changes none: its commit says so (``dataChange`` false), and Delta's streaming source passes over it. A commit that
loses the race against a writer is made again from what is there then; a writer that loses it is started again by
``shore run``.

**Vacuum**: delete files that no version of the last days needs, and what crashed writers left behind. Files are kept
for ``KEEP`` since they were replaced: that long can readers that opened an older version go on, and versions be looked
at. A table is left alone while a job has still to read what it had before that.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from fairlead.errors import RefusedError, UnavailableError
from shore.delta.table_errors import check_tables, open_table, unreadable_table_error
from shore.jobs.checkpoint import TablePosition, read_checkpoint, unread_rows
from shore.paths import TablePaths
from shore.tables import TABLES, Table

CLUSTERED: Final = {"readings": "equipment_reference"}
"""The column by which a table's rows are put together, so that a query for one value opens few files."""
TARGET_BYTES: Final = 128 << 20
SMALL_BYTES: Final = TARGET_BYTES // 2
FEW: Final = 8  # files: so many small ones, or opened by one query, are no reason to do anything
ROW_GROUP: Final = 100_000  # rows: what a query for one container reads at least
_MEMORY: Final = 1 << 30  # of a sort; more goes to disk
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class CompactStep:
    """One table as it is.

    Args:
        small: Files that are smaller than half of the target.
        views: Files whose strings or bytes are stored as Arrow's views, which Arrow cannot filter: delta-rs's delete,
            update and merge write them. Counted for tables on this machine only.
        key: The first column of the table's key.
        opened: Files that a query for one value of ``cluster_by`` opens at most; None for other tables.
        why: What is to be done and why; empty when nothing is.
    """

    table: str
    files: int
    small: int
    bytes: int
    cluster_by: str | None
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
            steps.append(_step(name, tables[name], actions, views))
    return tuple(steps)


def compact(paths: TablePaths, step: CompactStep) -> tuple[int, int]:
    """Carry out one step.

    Returns:
        How many files the table had and has.

    Raises:
        UnavailableError: writers were faster every time, or a file is gone or damaged.
    """
    properties = WriterProperties(compression="ZSTD", max_row_group_size=ROW_GROUP)
    more: dict[str, Any] = {
        "target_size": TARGET_BYTES,
        "writer_properties": properties,
        "max_spill_size": _MEMORY,
        "max_concurrent_tasks": 2,
    }
    for _ in range(_ATTEMPTS):
        table = DeltaTable(paths.table(step.table))
        before = len(table.file_uris())
        try:
            if step.cluster_by is not None or step.views:  # the other leaves alone a file that has no fellows
                table.optimize.z_order([step.cluster_by or step.key], **more)
            else:
                table.optimize.compact(**more)
        except CommitFailedError:
            continue
        except (DeltaError, OSError) as error:
            raise unreadable_table_error(str(error)) from error
        return before, len(DeltaTable(paths.table(step.table)).file_uris())
    raise UnavailableError(
        f"table {step.table} could not be compacted: writers were faster {_ATTEMPTS} times",
        hint="try again, or stop 'fairlead shore run' meanwhile; nothing was changed",
        table=step.table,
    )


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


def _step(name: str, table: Table, actions: pa.Table, views: int) -> CompactStep:
    sizes = actions["size_bytes"].to_pylist()
    small = sum(size < SMALL_BYTES for size in sizes)
    by = CLUSTERED.get(name)
    opened = None
    if by is not None:
        known = f"min.{by}" in actions.schema.names
        low = actions[f"min.{by}"].to_pylist() if known else [None] * len(sizes)
        high = actions[f"max.{by}"].to_pylist() if known else [None] * len(sizes)
        ranges = [(a, b) for a, b in zip(low, high, strict=True) if a is not None and b is not None]
        opened = files_opened(ranges) + len(sizes) - len(ranges)
    why = ""
    if views:
        why = f"write {views:,} files again that cannot be filtered: delta-rs's delete, update or merge wrote them"
    elif opened is not None and opened > FEW:
        why = f"put rows together by {by}: a query for one opens up to {opened:,} files"
    elif by is None and small > FEW:
        why = f"make few files of {small:,} small ones"
    return CompactStep(name, len(sizes), small, sum(sizes), by, opened, views, table.key[0], why)


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
    jobs: Iterable[str] = (),
    tables: Collection[str] = TABLES,
    now: dt.datetime,
) -> tuple[VacuumStep, ...]:
    """What can be deleted of these tables, or of all that are there; deletes nothing.

    Args:
        keep: For how long files are kept after they were replaced.
        force: Allow less than ``KEEP``.
        jobs: Those that read tables.
        tables: All that there can be (``shore.feeds.readers.kept_tables`` has those of customers, too).

    Raises:
        RefusedError: ``keep`` is too short.
        UnknownNameError: there is no such table.
        UnavailableError: one cannot be opened.
    """
    _check(keep, force=force)
    wanted = list(names or ())
    check_tables(wanted, tables)
    positions = _positions(paths, jobs)
    steps = []
    for name in wanted or tables:
        table = open_table(paths, name)
        if table is None:
            continue
        count, size = _there(paths, name, _vacuum(table, keep, dry_run=True))
        steps.append(VacuumStep(name, count, size, _unread(table, positions, now - keep)))
    return tuple(steps)


def vacuum(paths: TablePaths, step: VacuumStep, *, keep: dt.timedelta = KEEP, force: bool = False) -> int:
    """Carry out one step: delete the files. Gives their number; 0 for a step that says why not."""
    _check(keep, force=force)
    if step.why:
        return 0
    _vacuum(DeltaTable(paths.table(step.table)), keep, dry_run=False)
    return step.files


def _check(keep: dt.timedelta, *, force: bool) -> None:
    if keep < KEEP and not force:
        raise RefusedError(
            f"files that were replaced less than {KEEP.days} days ago may still be read: by queries that run, by jobs "
            "that were stopped, by whoever looks at yesterday's version",
            hint="--force deletes them all the same; stop shore and its readers first",
        )


def _vacuum(table: DeltaTable, keep: dt.timedelta, *, dry_run: bool) -> list[str]:
    return table.vacuum(
        retention_hours=int(keep / _HOUR), dry_run=dry_run, enforce_retention_duration=keep >= KEEP, full=True
    )


def _positions(paths: TablePaths, jobs: Iterable[str]) -> Mapping[str, list[tuple[str, TablePosition]]]:
    """Where jobs stand, by the tables' own ids."""
    found: dict[str, list[tuple[str, TablePosition]]] = {}
    for job in jobs:
        checkpoint = read_checkpoint(paths, job)
        for position in checkpoint.tables if checkpoint is not None else ():
            found.setdefault(position.table_id, []).append((job, position))
    return found


def _unread(table: DeltaTable, positions: Mapping[str, list[tuple[str, TablePosition]]], before: dt.datetime) -> str:
    for job, position in positions.get(str(table.metadata().id), ()):
        try:
            rows, since = unread_rows(table, position)
        except FileNotFoundError:
            return f"job {job} has stood still for so long that the table's log does not reach back to it"
        if rows and (since is None or since < before):
            return (
                f"job {job} has still to read rows of {since:%Y-%m-%d %H:%M} UTC" if since else f"job {job} is behind"
            )
    return ""


def _there(paths: TablePaths, name: str, files: Sequence[str]) -> tuple[int, int | None]:
    """How many of these files are there, and their bytes: delta-rs also names those that it deleted before."""
    if not paths.is_local:
        return len(files), None
    there = [Path(paths.table(name)) / file for file in files]
    sizes = [path.stat().st_size for path in there if path.is_file()]
    return len(sizes), sum(sizes)
