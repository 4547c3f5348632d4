"""Compare derived tables with what their inputs give. This is possible when their job has read all of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from shore.delta.commit import conform
from shore.delta.lake import Lake, computed
from shore.jobs.checkpoint import Checkpoint, backlog_of, read_checkpoint, table_ids
from shore.jobs.reference import rows_of_topology
from shore.kept import Kept, comparable, forgotten, kept_of, kept_rows, whole_since
from shore.paths import TablePaths
from shore.source.offsets import Positions
from shore.tables import TABLES
from shore.tables.catalogue import job_of
from shore.tables.graph import Derived
from shore.verify.catalogue import BY_STATE, FROM_LOGS
from shore.verify.compare import Compared, TableCheck, compare
from shore.verify.logs import versions_of
from topologies.model import Topology

_ATTEMPTS: Final = 3


def check_derived(derived: Derived, lake: Lake, topology: Topology, *, small: Lake | None = None) -> TableCheck:
    """Compare one derived table with all that its inputs give.

    The table and its inputs are read in versions of one moment at which the job had read all of them, so they may
    change meanwhile. Where there was no such moment ``same`` is None and ``notes`` say why.

    Args:
        small: The result of ``Lake.of_small_tables``, for tables that are small.

    Raises:
        CheckpointDamagedError: it is not known how far the job has read.
        PySparkException: a table cannot be read.
    """
    name, paths = derived.table.name, lake.paths
    versions, behind, why = settled(paths, (name, *derived.inputs), lambda: _lag(derived, paths))
    if why:
        return TableCheck(table=name, kind="derived", same=None, behind=behind, notes=(why,))
    kept = kept_of(paths, versions)
    if why := forgotten(derived, kept):
        return TableCheck(table=name, kind="derived", same=None, behind=behind, forgotten=True, notes=(why,))
    lake = small if small is not None and lake.are_small(versions) else lake
    found = compare_derived(derived, lake, topology, versions, kept)
    if found.differing and read_checkpoint(paths, job_of(name)) is None:
        return TableCheck(table=name, kind="derived", same=None, notes=(f"job {job_of(name)} has not run yet",))
    if (since := whole_since(derived, kept)) is None:
        return _checked(name, found, behind)
    note = f"rows before {since:%Y-%m-%d %H:%M} UTC are not compared: retention has deleted rows of "
    return _checked(name, found, behind, note + " and ".join(each for each in (name, *derived.inputs) if each in kept))


def compare_derived(
    derived: Derived, lake: Lake, topology: Topology, versions: Mapping[str, int], kept: Kept
) -> Compared:
    """Compare a table with what its inputs give, all of them in these versions, as far as rows were ``kept``."""
    table = derived.table
    stored = lake.read(table.name, versions[table.name])
    if (by_state := BY_STATE.get(table.name)) is None:
        expected = conform(lake.expected_rows(derived, topology, versions), table)
        stored = comparable(derived, conform(stored, table), kept)
        return compare(stored, comparable(derived, expected, kept), table.key)
    (source,) = derived.inputs
    both = computed(kept_rows(table.name, by_state(conform(stored, table), lake.read(source, versions[source])), kept))
    rows, expected = both.where("stored").drop("stored"), both.where("not stored").drop("stored")
    return compare(rows, expected, table.key)


def check_reference(table: str, lake: Lake, topology: Topology) -> TableCheck:
    """Compare a table made from the topology with the topology (``shore.jobs.reference``)."""
    if versions_of(lake.paths, (table,)) is None:
        return TableCheck(table=table, kind="derived", same=None, notes=("shore has not run yet",))
    expected = lake.spark.createDataFrame(rows_of_topology(topology)[table])
    found = compare(conform(lake.read(table), TABLES[table]), expected, TABLES[table].key, tolerance=0.0)
    if found.expected and not found.rows:
        return TableCheck(table=table, kind="derived", same=None, notes=("shore has not run yet",))
    return _checked(table, found, None)


def _checked(table: str, found: Compared, behind: int | None, *notes: str) -> TableCheck:
    return TableCheck(
        table=table,
        kind="derived",
        same=not found.differing,
        rows=found.rows,
        expected=found.expected,
        behind=behind,
        differing=found.differing,
        differences=found.differences(table),
        notes=notes,
    )


def settled(
    paths: TablePaths, tables: Collection[str], lag: Callable[[], tuple[int, str]]
) -> tuple[dict[str, int], int | None, str]:
    """Return versions of the tables of one moment at which the job had read all of its inputs.

    Args:
        lag: Returns how many rows of its inputs the job has not read, and why the tables cannot be compared now (empty
            when they can): ``job_lag``, or what calls it.

    Returns:
        The versions, the job's rows to read (None: not known), and why there was no such moment (empty when there was).
    """
    for _ in range(_ATTEMPTS):
        versions = versions_of(paths, tables)
        if versions is None:
            return {}, 0, "the table or one of its inputs is not there yet"
        behind, why = lag()
        if why:
            return {}, behind, why
        if versions_of(paths, versions) == versions:
            return versions, behind, ""
    return {}, None, "the tables change all the time; try again, or stop shore first"


def job_lag(checkpoint: Checkpoint, paths: TablePaths) -> tuple[int, str]:
    """Return how many rows of its input tables the job of a checkpoint has not read, and why what it writes cannot be
    compared now (empty when it can)."""
    job = checkpoint.job
    if checkpoint.under_way:
        return 0, f"job {job} works on a batch, or broke off in one; the next 'fairlead shore run' ends it"
    backlog = backlog_of(checkpoint, paths, table_ids(paths, TABLES))
    return backlog.rows, f"job {job} has {backlog.rows:,} rows still to read" if backlog.rows else ""


def _lag(derived: Derived, paths: TablePaths) -> tuple[int, str]:
    """Return ``job_lag`` of a table's job. A job that reads logs itself must have read as far as its inputs."""
    job = job_of(derived.table.name)
    checkpoint = read_checkpoint(paths, job)
    if checkpoint is None:
        return 0, ""  # the job may have nothing to do
    behind, why = job_lag(checkpoint, paths)
    if why or not checkpoint.positions:
        return behind, why
    for source in FROM_LOGS:
        if source.job != job and not set(source.tables).isdisjoint(derived.inputs):
            other = read_checkpoint(paths, source.job)
            apart = _apart(checkpoint.positions, other.positions if other is not None else {})
            if apart or (other is not None and other.under_way):
                return 0, f"jobs {job} and {source.job} have not read the same of {apart:,} logs"
    return 0, ""


def _apart(one: Positions, other: Positions) -> int:
    return sum(one.get(log) != other.get(log) for log in {*one, *other})
