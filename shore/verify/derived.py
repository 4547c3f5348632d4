"""Derived tables against what their inputs give. They can be compared when their job has read all of its inputs."""

from __future__ import annotations

from typing import Final

import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from shore.jobs.checkpoint import backlog_of, read_checkpoint, table_ids
from shore.jobs.reference import rows_of_topology
from shore.paths import TablePaths
from shore.source.offsets import Positions
from shore.tables import TABLES
from shore.verify.catalogue import FROM_LOGS, Derived
from shore.verify.compare import TableCheck, compare, connection
from topologies.model import Topology

_ATTEMPTS: Final = 3


def check_derived(entry: Derived, paths: TablePaths) -> TableCheck:
    """Compare one derived table with ``everything`` that its inputs give now.

    ``everything`` sees the inputs as they are now, so there is nothing to compare while the job has not read all of
    them, or while they grow: then ``same`` is None and ``notes`` say why.

    Raises:
        CheckpointDamagedError: it is not known how far the job has read.
    """
    for _ in range(_ATTEMPTS):
        before = _versions(entry, paths)
        if before is None:
            return _not_compared(entry, 0, "the table or one of its inputs is not there yet")
        behind, why = _lag(entry, paths)
        if why:
            return _not_compared(entry, behind, why)
        with connection() as opened:
            rows = DeltaTable(paths.table(entry.table), version=before[entry.table]).to_pyarrow_dataset()
            expected = entry.everything(paths)
            if entry.compared is not None:
                there, expected = entry.compared(paths, rows.to_table(), expected)
                rows = pads.dataset(there)
            key = TABLES[entry.table].key
            found = compare(opened, entry.table, rows, expected, key, tolerance=entry.tolerance)
        if _versions(entry, paths) == before:
            if found.differing and read_checkpoint(paths, entry.job) is None:
                return _not_compared(entry, None, f"job {entry.job} has not run yet")
            return TableCheck(
                table=entry.table,
                kind="derived",
                same=not found.differing,
                rows=found.rows,
                expected=found.expected,
                behind=behind,
                differing=found.differing,
                differences=found.differences,
            )
    return _not_compared(entry, None, "the tables changed while they were compared; try again, or stop shore first")


def check_reference(table: str, topology: Topology, paths: TablePaths) -> TableCheck:
    """Compare a table that says what the topology says (``shore.jobs.reference``)."""
    try:
        rows = DeltaTable(paths.table(table)).to_pyarrow_dataset()
    except TableNotFoundError:
        return TableCheck(table=table, kind="derived", same=None, notes=("shore has not run yet",))
    if not rows.count_rows():
        return TableCheck(table=table, kind="derived", same=None, notes=("shore has not run yet",))
    with connection() as opened:
        found = compare(opened, table, rows, rows_of_topology(topology)[table], TABLES[table].key, tolerance=0.0)
    return TableCheck(
        table=table,
        kind="derived",
        same=not found.differing,
        rows=found.rows,
        expected=found.expected,
        differing=found.differing,
        differences=found.differences,
    )


def _not_compared(entry: Derived, behind: int | None, why: str) -> TableCheck:
    return TableCheck(table=entry.table, kind="derived", same=None, behind=behind, notes=(why,))


def _versions(entry: Derived, paths: TablePaths) -> dict[str, int] | None:
    try:
        names = (entry.table, *entry.inputs)
        return {name: DeltaTable(paths.table(name)).version() for name in names}
    except TableNotFoundError:
        return None


def _lag(entry: Derived, paths: TablePaths) -> tuple[int, str]:
    """Rows of the inputs that the job has not read, and why the table cannot be compared (empty when it can)."""
    checkpoint = read_checkpoint(paths, entry.job)
    if checkpoint is None:
        return 0, ""  # there may be nothing for it to do
    if checkpoint.under_way:
        return 0, f"job {entry.job} works on a batch, or broke off in one; the next 'fairlead shore run' ends it"
    backlog = backlog_of(checkpoint, paths, table_ids(paths, TABLES))
    if backlog.rows:
        return backlog.rows, f"job {entry.job} has {backlog.rows:,} rows still to read"
    for source in FROM_LOGS:  # a job that reads the logs itself must have read what its inputs have
        if source.job != entry.job and checkpoint.positions and not set(source.tables).isdisjoint(entry.inputs):
            other = read_checkpoint(paths, source.job)
            apart = _apart(checkpoint.positions, other.positions if other is not None else {})
            if apart or (other is not None and other.under_way):
                return 0, f"jobs {entry.job} and {source.job} have not read the same of {apart:,} logs"
    return 0, ""


def _apart(one: Positions, other: Positions) -> int:
    return sum(one.get(log) != other.get(log) for log in {*one, *other})
