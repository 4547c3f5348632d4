"""A day again: what the logs have of it and the log tables lack is added, and the derived tables' share is made anew.

First everything is compared (``plan``), then what differs is put right (``apply``); a second run finds nothing. Shore
must stand still: its jobs go on from their checkpoints afterwards, and see the rows that were added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from deltalake import DeltaTable

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, UnknownNameError
from shore.checkpoint import read_checkpoint
from shore.places import Places
from shore.repair.derived import Span, differing, make_again
from shore.repair.logs import LogRepair, find_odd, repair
from shore.tables import TABLES
from shore.verify.catalogue import DERIVED, FROM_LOGS, Derived, job_of
from topologies.model import Topology

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
    """What there is to do. Derived tables are made anew also when only their inputs change."""

    span: Span
    logs: tuple[LogRepair, ...]
    derived: tuple[DerivedRepair, ...]

    @property
    def empty(self) -> bool:
        """Whether everything is as it must be."""
        return not any(each.missing or each.wrong for each in self.logs) and not any(d.rows for d in self.derived)


def plan(
    topology: Topology,
    endpoint: KafkaEndpoint,
    places: Places,
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
        ConfigurationError: a table cannot be backfilled, or the span is empty.
        CheckpointDamagedError: it is not known how far a job has read.
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read.
    """
    wanted = _wanted(tables)
    if span.since is not None and span.until is not None and span.until <= span.since:
        raise ConfigurationError(f"{span.until} is not after {span.since}", hint="--to is exclusive: the day after")
    logs = []
    for entry in FROM_LOGS:
        if wanted is not None and wanted.isdisjoint(entry.tables):
            continue
        checkpoint = read_checkpoint(places, entry.job)
        if checkpoint is None:
            continue
        tell(f"comparing {entry.name} with the logs")
        found = find_odd(entry, topology, endpoint, places, checkpoint.positions, since=span.since, until=span.until)
        logs.append(found)
    derived = []
    for each in _MADE:
        if (wanted is None or each.table in wanted) and _there(each, places):
            tell(f"comparing {each.table} with what {' and '.join(each.inputs)} give")
            derived.append(DerivedRepair(each, differing(each, places, span).differing))
    return Backfill(span, tuple(logs), tuple(derived))


def apply(todo: Backfill, endpoint: KafkaEndpoint, places: Places, *, tell: Tell = lambda what: None) -> dict[str, int]:
    """Put right what a plan found; gives how many rows were written, by table (or tables that hold logs together)."""
    written: dict[str, int] = {}
    for each in todo.logs:
        if each.missing or each.wrong:
            tell(f"adding {each.missing + each.wrong:,} rows to {each.entry.name}")
            written[each.entry.name] = repair(each, endpoint, places)
    changed = {name for each in todo.logs if each.missing or each.wrong for name in each.entry.tables}
    for one in todo.derived:  # in the catalogue's order: inputs first
        if one.rows or changed.intersection(one.entry.inputs):
            tell(f"making {one.entry.table} again")
            written[one.entry.table] = make_again(one.entry, places, todo.span)
            changed.add(one.entry.table)
    return written


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


def _there(entry: Derived, places: Places) -> bool:
    return all(DeltaTable.is_deltatable(places.table(name)) for name in (entry.table, *entry.inputs))
