"""A day again: what the logs have of it and the log tables lack is added, and the derived tables' share is made anew.

First everything is compared (``plan``), then what differs is put right (``apply``); a second run finds nothing. Shore
must stand still: its jobs go on from their checkpoints afterwards, and see the rows that were added.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable, write_deltalake

from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.lease import check_lease
from shore.jobs.checkpoint import read_checkpoint
from shore.paths import TablePaths
from shore.repair.logs import LogRepair, find_odd_rows, repair_logs
from shore.tables import TABLES
from shore.tables.catalogue import job_of
from shore.verify.catalogue import DERIVED, FROM_LOGS, Derived, FromLogs, sources_of
from shore.verify.compare import Compared, compare, connection
from topologies.model import Topology

_RFC3339 = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(frozen=True, slots=True)
class Span:
    """From ``since``, inclusive, to ``until``, exclusive; None: without an end."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def predicate(self, column: str) -> str | None:
        """As Delta's SQL; None for all times."""
        parts = [f"{column} >= '{self.since:{_RFC3339}}'"] if self.since is not None else []
        parts += [f"{column} < '{self.until:{_RFC3339}}'"] if self.until is not None else []
        return " and ".join(parts) or None

    def matches(self, column: str) -> pc.Expression | None:
        """For Arrow; None for all times."""
        found = pc.field(column) >= self.since if self.since is not None else None
        if self.until is not None:
            before = pc.field(column) < self.until
            found = before if found is None else found & before
        return found


ALWAYS = Span()


def recomputed_rows(entry: Derived, paths: TablePaths, span: Span) -> pa.Table:
    """What the table must hold, of this span where the table has a time to tell by."""
    rows = entry.everything(paths)
    matches = span.matches(entry.time) if entry.time is not None else None
    rows = rows if matches is None else rows.filter(matches)
    schema = TABLES[entry.table].plain_schema
    rows = pa.table([rows[n] if n in rows.schema.names else pa.nulls(len(rows)) for n in schema.names], schema.names)
    return TABLES[entry.table].sorted(rows.cast(schema))


def compare_derived(entry: Derived, paths: TablePaths, span: Span) -> Compared:
    """How the table differs now from what it must hold, within the span."""
    rows: pads.Dataset = DeltaTable(paths.table(entry.table)).to_pyarrow_dataset()
    matches = span.matches(entry.time) if entry.time is not None else None
    if matches is not None:
        rows = rows.filter(matches)
    with connection() as opened:
        expected = recomputed_rows(entry, paths, span)
        return compare(opened, entry.table, rows, expected, TABLES[entry.table].key, tolerance=entry.tolerance)


def recompute(entry: Derived, paths: TablePaths, span: Span = ALWAYS) -> int:
    """Replace the rows of the span, or of the whole table where it has no time to tell by; gives their number."""
    fresh = recomputed_rows(entry, paths, span)
    predicate = span.predicate(entry.time) if entry.time is not None else None
    check_lease(paths.table(entry.table))
    write_deltalake(DeltaTable(paths.table(entry.table)), fresh, mode="overwrite", predicate=predicate)
    return int(fresh.num_rows)


Tell = Callable[[str], None]
# Not the table of a job with a state of its own, which is not wholly given by its inputs, and whose job would know
# nothing of it: 'fairlead shore rebuild' is for these.
_MADE: Final = tuple(each for each in DERIVED if each.compared is None)


@dataclass(frozen=True, slots=True)
class DerivedRepair:
    """A derived table: how many of its rows differ from what they must be, before the log tables are put right."""

    entry: Derived
    rows: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """What there is to do. Derived tables are made anew also when only their inputs change.

    ``unproven``: rows of log tables that differ from the logs, are not of this span and are not put right, although
    derived tables of the plan are made from them, too.
    """

    span: Span
    logs: tuple[LogRepair, ...]
    derived: tuple[DerivedRepair, ...]
    unproven: Mapping[str, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether everything is as it must be."""
        return not any(each.missing or each.wrong for each in self.logs) and not any(d.rows for d in self.derived)


def plan_backfill(
    topology: Topology,
    endpoint: KafkaEndpoint,
    paths: TablePaths,
    span: Span,
    tables: Collection[str] | None = None,
    *,
    tell: Tell = lambda what: None,
) -> Backfill:
    """Compare tables with the logs and with their inputs, within a span of time; changes nothing.

    Args:
        tables: Only these; all when None.

    Raises:
        UnknownNameError: there is no such table.
        ConfigurationError: a table cannot be backfilled, the span is empty, or a derived table would be made again from
            rows that differ from the logs and are not put right (``tables`` leaves them out).
        CheckpointDamagedError: it is not known how far a job has read.
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read.
    """
    wanted = _wanted(tables)
    if span.since is not None and span.until is not None and span.until <= span.since:
        raise ConfigurationError(f"{span.until} is not after {span.since}", hint="--until is exclusive: the day after")
    logs = []
    for entry in FROM_LOGS:
        if wanted is not None and wanted.isdisjoint(entry.tables):
            continue
        checkpoint = read_checkpoint(paths, entry.job)
        if checkpoint is None:
            continue
        tell(f"comparing {entry.name} with the logs")
        found = find_odd_rows(
            entry, topology, endpoint, paths, checkpoint.positions, since=span.since, until=span.until
        )
        logs.append(found)
    derived = []
    for each in _MADE:
        if (wanted is None or each.table in wanted) and _there(each, paths):
            tell(f"comparing {each.table} with what {' and '.join(each.inputs)} give")
            derived.append(DerivedRepair(each, compare_derived(each, paths, span).differing))
    mended = {each.entry.name for each in logs}
    changing = {name for each in logs if each.missing or each.wrong for name in each.entry.tables}
    made = [each.entry for each in derived if each.rows or changing.intersection(sources_of(each.entry.inputs))]
    unproven = {}
    for entry, tables_made in _sources(made).items():
        checkpoint = read_checkpoint(paths, entry.job)
        if checkpoint is None or (entry.name in mended and span == ALWAYS):
            continue
        tell(f"comparing {entry.name}, from which {', '.join(tables_made)} follow, with the logs")
        whole = find_odd_rows(entry, topology, endpoint, paths, checkpoint.positions)
        if entry.name not in mended and (rows := whole.missing + whole.wrong):
            raise _made_from_wrong(tables_made, entry, rows)
        own = next((each for each in logs if each.entry is entry), whole)
        if outside := whole.missing + whole.wrong - own.missing - own.wrong:
            unproven[entry.name] = outside
    return Backfill(span, tuple(logs), tuple(derived), unproven)


def apply_backfill(
    todo: Backfill, endpoint: KafkaEndpoint, paths: TablePaths, *, tell: Tell = lambda what: None
) -> dict[str, int]:
    """Put right what a plan found; gives how many rows were written, by table (or tables that hold logs together)."""
    written: dict[str, int] = {}
    for each in todo.logs:
        if each.missing or each.wrong:
            tell(f"adding {each.missing + each.wrong:,} rows to {each.entry.name}")
            written[each.entry.name] = repair_logs(each, endpoint, paths)
    changed = {name for each in todo.logs if each.missing or each.wrong for name in each.entry.tables}
    for one in todo.derived:  # in the catalogue's order: inputs first
        if one.rows or changed.intersection(one.entry.inputs):
            tell(f"making {one.entry.table} again")
            written[one.entry.table] = recompute(one.entry, paths, todo.span)
            changed.add(one.entry.table)
    return written


def _sources(made: Iterable[Derived]) -> dict[FromLogs, list[str]]:
    """The tables that hold logs from which these follow, with the names of those that do."""
    found: dict[FromLogs, list[str]] = {}
    for one in made:
        for entry in FROM_LOGS:
            if not set(entry.tables).isdisjoint(sources_of(one.inputs)):
                found.setdefault(entry, []).append(one.table)
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
    possible = {name for entry in FROM_LOGS for name in entry.tables} | {each.table for each in _MADE}
    for name in tables:
        if name not in TABLES:
            raise UnknownNameError("table", name, possible)
        if name not in possible:
            raise ConfigurationError(
                f"table {name} cannot be backfilled: it does not follow from other tables alone",
                hint=f"run 'fairlead shore rebuild {job_of(name)}'; tables that can be: {', '.join(sorted(possible))}",
            )
    return frozenset(tables)


def _there(entry: Derived, paths: TablePaths) -> bool:
    return all(DeltaTable.is_deltatable(paths.table(name)) for name in (entry.table, *entry.inputs))
