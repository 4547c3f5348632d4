"""Repair a span of time: add the rows that the logs have and log tables lack, and recompute derived tables.

``plan_backfill`` compares everything, then ``apply_backfill`` repairs what differs; a second run finds nothing. Shore
must be stopped. Afterwards its jobs continue from their checkpoints and see the added rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from fairlead.errors import ConfigurationError, RefusedError, UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.datasource import register
from shore.delta.commit import Between, conform, create_tables, exchange_rows, replace_rows
from shore.delta.lake import Lake
from shore.jobs.alerts_now import name_shore
from shore.jobs.checkpoint import read_checkpoint
from shore.jobs.readings import add_inspections
from shore.kept import Kept, comparable, forgotten, kept_of
from shore.paths import TablePaths
from shore.repair.logs import LogRepair, find_odd_rows, repair_logs
from shore.tables import TABLES
from shore.tables.alerts_now import ALERTS_NOW
from shore.tables.graph import Derived
from shore.tables.model import MICROSECOND
from shore.tables.readings import READINGS
from shore.verify.catalogue import BY_STATE, DERIVED, FROM_LOGS, FromLogs, mended_by, sources_of
from shore.verify.compare import compare
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class BackfillSpan:
    """From ``since``, inclusive, to ``until``, exclusive; None: open."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def bounds(self, derived: Derived) -> tuple[Between, ...]:
        """Return the condition for a table's rows of this span; empty: all rows, also without a time column."""
        if derived.time is None or self == ALWAYS:
            return ()
        return (Between(derived.time, self.since, self.until - MICROSECOND if self.until is not None else None),)

    def rows(self, derived: Derived, rows: DataFrame) -> DataFrame:
        """Return those of a table's rows that are in this span, with the table's columns."""
        rows = conform(rows, derived.table)
        for bound in self.bounds(derived):
            rows = rows.where(bound.of())
        return rows


ALWAYS: Final = BackfillSpan()


def count_odd_rows(derived: Derived, lake: Lake, topology: Topology, span: BackfillSpan) -> int:
    """Count the rows of a derived table, within the span, that differ from what its inputs give now. Rows that cannot
    be compared (``shore.kept``) do not count."""
    stored, expected = _both(derived, lake, topology, span)
    return compare(stored, expected, derived.table.key).differing


def recompute(derived: Derived, lake: Lake, topology: Topology, span: BackfillSpan = ALWAYS) -> int:
    """Make the rows of the span equal to what the inputs give; the whole table where it has no time column. Rows that
    cannot be compared (``shore.kept``) stay as they are. Return how many rows were written or deleted."""
    table, bounds = derived.table, span.bounds(derived)
    if table.name == ALERTS_NOW.name:
        name_shore(lake)  # a MERGE by key would not find the rows of an earlier release
    stored, fresh = _both(derived, lake, topology, span)
    if stored.groupBy(*table.key).count().where("count > 1").isEmpty():
        return replace_rows(lake, table, fresh, stored=stored, bounds=bounds)
    return exchange_rows(lake, table, stored, fresh, bounds=bounds)  # a MERGE by key would keep duplicate rows


def why_forgotten(derived: Derived, paths: TablePaths) -> str:
    """Return why a table cannot be made again without losing rows; empty where it can."""
    return forgotten(derived, _kept(derived, paths))


def _both(derived: Derived, lake: Lake, topology: Topology, span: BackfillSpan) -> tuple[DataFrame, DataFrame]:
    """Return the rows of a derived table within the span that can be compared: those stored, and those that its inputs
    give now."""
    kept = _kept(derived, lake.paths)
    stored, expected = lake.read(derived.table.name), lake.expected_rows(derived, topology)
    return (
        comparable(derived, span.rows(derived, stored), kept),
        comparable(derived, span.rows(derived, expected), kept),
    )


def _kept(derived: Derived, paths: TablePaths) -> Kept:
    return kept_of(paths, (derived.table.name, *derived.inputs))


Tell = Callable[[str], None]
# Not the table of a job with a state of its own: its inputs do not give all of it, and its job would not see the
# repair. 'fairlead shore rebuild' is for these.
_MADE: Final = tuple(each for each in DERIVED if each.table.name not in BY_STATE)


@dataclass(frozen=True, slots=True)
class DerivedRepair:
    """A derived table, and how many of its rows differ from what its inputs give before the log tables are repaired."""

    derived: Derived
    rows: int

    @property
    def table(self) -> str:
        """The table's name."""
        return self.derived.table.name


@dataclass(frozen=True, slots=True)
class Backfill:
    """What there is to do. Derived tables are also recomputed when only their inputs change.

    ``unproven``: rows of log tables that differ from the logs, are outside this span and are not repaired, although
    derived tables of the plan are computed from them too.
    """

    span: BackfillSpan
    logs: tuple[LogRepair, ...]
    derived: tuple[DerivedRepair, ...]
    unproven: Mapping[str, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to repair."""
        return not any(each.missing or each.wrong for each in self.logs) and not any(d.rows for d in self.derived)


def plan_backfill(
    lake: Lake,
    topology: Topology,
    endpoint: KafkaEndpoint,
    span: BackfillSpan,
    tables: Collection[str] | None = None,
    *,
    tell: Tell = lambda what: None,
) -> Backfill:
    """Compare tables with the logs and with their inputs, within a span of time. Change nothing.

    Args:
        tables: Only these; all when None.

    Raises:
        UnknownNameError: there is no such table.
        RefusedError: retention has deleted rows from which one of ``tables`` follows. Without ``tables``, such tables
            are left out.
        ConfigurationError: a table cannot be backfilled, the span is empty, or a derived table would be recomputed from
            rows that differ from the logs and are not repaired (``tables`` leaves them out).
        CheckpointDamagedError: it is not known how far a job has read.
        ConnectionLost, RequestTimeout, BrokerError, PySparkException: the logs cannot be read.
    """
    wanted, paths = _wanted(tables), lake.paths
    if span.since is not None and span.until is not None and span.until <= span.since:
        raise ConfigurationError(f"{span.until} is not after {span.since}", hint="--until is exclusive: the day after")
    register(lake.spark, endpoint)
    logs = []
    for entry in FROM_LOGS:
        if wanted is not None and wanted.isdisjoint(entry.tables):
            continue
        checkpoint = read_checkpoint(paths, entry.job)
        if checkpoint is None:
            continue
        tell(f"comparing {entry.name} with the logs")
        positions = checkpoint.positions
        logs.append(find_odd_rows(entry, lake, topology, endpoint, positions, since=span.since, until=span.until))
    derived = []
    for each in _MADE:
        name = each.table.name
        if (wanted is None or name in wanted) and _there(each, paths):
            if why := why_forgotten(each, paths):
                if wanted is not None:
                    raise RefusedError(f"{name} cannot be made again: {why}", hint="leave it out", table=name)
                tell(f"leaving out {name}: {why}")
                continue
            tell(f"comparing {name} with what {' and '.join(each.inputs)} give")
            derived.append(DerivedRepair(each, count_odd_rows(each, lake, topology, span)))
    mended = {each.entry.name for each in logs}
    changing = {name for each in logs if each.missing or each.wrong for name in each.entry.tables}
    made = [one.derived for one in derived if one.rows or changing.intersection(sources_of(one.derived.inputs))]
    unproven = {}
    for entry, tables_made in _sources(made).items():
        checkpoint = read_checkpoint(paths, entry.job)
        if checkpoint is None or (entry.name in mended and span == ALWAYS):
            continue
        tell(f"comparing {entry.name}, from which {', '.join(tables_made)} follow, with the logs")
        whole = find_odd_rows(entry, lake, topology, endpoint, checkpoint.positions)
        if entry.name not in mended and (rows := whole.missing + whole.wrong):
            raise _made_from_wrong(tables_made, entry, rows)
        own = next((each for each in logs if each.entry is entry), whole)
        if outside := whole.missing + whole.wrong - own.missing - own.wrong:
            unproven[entry.name] = outside
    return Backfill(span, tuple(logs), tuple(derived), unproven)


def apply_backfill(todo: Backfill, lake: Lake, topology: Topology, *, tell: Tell = lambda what: None) -> dict[str, int]:
    """Repair what a plan found. Return how many rows were written, by table (or by tables that hold logs together).

    The tables get columns that they lack: shore may not have run since an update.
    """
    written: dict[str, int] = {}
    for each in todo.logs:
        if each.missing or each.wrong:
            tell(f"adding {each.missing + each.wrong:,} rows to {each.entry.name}")
            if READINGS.name in each.entry.tables:
                add_inspections(lake)
            create_tables(lake.spark, {lake.paths.table(name): TABLES[name] for name in each.entry.tables})
            written[each.entry.name] = repair_logs(each, lake)
    changed = {name for each in todo.logs if each.missing or each.wrong for name in each.entry.tables}
    for one in todo.derived:  # in the graph's order: inputs first
        if one.rows or changed.intersection(one.derived.inputs):
            tell(f"making {one.table} again")
            create_tables(lake.spark, {lake.paths.table(one.table): one.derived.table})
            if rows := recompute(one.derived, lake, topology, todo.span):
                written[one.table] = rows
                changed.add(one.table)
    return written


def _sources(made: Iterable[Derived]) -> dict[FromLogs, list[str]]:
    """The log tables from which these tables follow, each with the names of those tables."""
    found: dict[FromLogs, list[str]] = {}
    for one in made:
        for entry in FROM_LOGS:
            if not set(entry.tables).isdisjoint(sources_of(one.inputs)):
                found.setdefault(entry, []).append(one.table.name)
    return found


def _made_from_wrong(tables: Sequence[str], entry: FromLogs, rows: int) -> ConfigurationError:
    source = entry.tables[0]
    return ConfigurationError(
        f"{', '.join(tables)} cannot be made again: {entry.name} differs from the logs in {rows:,} "
        f"{'row' if rows == 1 else 'rows'}, which would then show there, too",
        hint=f"put {source} right as well: leave out --table, or add --table {source}; 'fairlead shore verify --table "
        f"{source}' says which rows differ",
        tables=list(tables),
        source=entry.name,
    )


def _wanted(tables: Collection[str] | None) -> frozenset[str] | None:
    if not tables:
        return None
    possible = {name for entry in FROM_LOGS for name in entry.tables} | {each.table.name for each in _MADE}
    for name in tables:
        if name not in TABLES:
            raise UnknownNameError("table", name, possible)
        if name not in possible:
            raise ConfigurationError(
                f"table {name} cannot be backfilled: it does not follow from other tables alone",
                hint=f"run '{mended_by(name)}'; tables that can be: {', '.join(sorted(possible))}",
            )
    return frozenset(tables)


def _there(derived: Derived, paths: TablePaths) -> bool:
    return all(DeltaTable.is_deltatable(paths.table(name)) for name in (derived.table.name, *derived.inputs))
