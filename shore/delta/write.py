"""Writing a Delta table without Spark: appending exactly once, and replacing rows, in one commit each.

**Appending**: rows that are on the driver. Each commit also records (``app``, ``version``): ``app`` names a sequence of
commits (a customer's feed), ``version`` counts up within it. delta-rs records such transactions and does not look at
them, so this does. Two writers at once cannot both commit: the loser of the race gets delta-rs's
``CommitFailedError``.

**Replacing**: derived tables are kept by making rows again from other tables. Whatever new rows touch (the hours of a
box, the intervals of a log) is computed again as a whole and replaces what was there. Doing it twice gives the same
table, so a repeated batch, a crash between two writes and late data are no special cases.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from shore.delta.lease import check_lease


def last_version(location: str, app: str) -> int | None:
    """The last version that application ``app`` committed to the table; None when it never did."""
    return DeltaTable(location).transaction_version(app)


def append_once(
    location: str, rows: pa.Table, *, app: str, version: int, noted: Mapping[str, int] | None = None
) -> bool:
    """Append ``rows`` in one commit; False when (``app``, ``version``) was committed before.

    Args:
        noted: Further numbers that the commit records, by name (``last_version`` reads them).
    """
    check_lease(location)
    table = DeltaTable(location)
    done = table.transaction_version(app)
    if done is not None and done >= version:
        return False
    numbers = {app: version, **(noted or {})}
    properties = CommitProperties(app_transactions=[Transaction(name, number) for name, number in numbers.items()])
    write_deltalake(table, rows, mode="append", commit_properties=properties)
    return True


_RFC3339 = "%Y-%m-%dT%H:%M:%S.%fZ"
_MANY = 100  # values: each costs delta-rs about a millisecond, and far more where it rewrites a file for it


@dataclass(frozen=True, slots=True)
class ReplaceScope:
    """Which rows are made again: those whose ``column`` has one of ``values``, and, where ``time`` names a column,
    whose time there is in [``since``, ``until``). A bound that is None is open. ``equal``: numbers that other columns
    must have."""

    column: str
    values: Collection[str]
    time: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    equal: Mapping[str, int] = field(default_factory=dict)

    @property
    def predicate(self) -> str:
        """The scope as Delta's SQL."""
        quoted = ", ".join(_quoted(value) for value in sorted(self.values))
        return " and ".join([f"{self.column} in ({quoted})", *self._others()])

    @property
    def hull(self) -> str:
        """A range, as Delta's SQL, in which the whole scope lies."""
        low, high = _quoted(min(self.values)), _quoted(max(self.values))
        return " and ".join([f"{self.column} >= {low} and {self.column} <= {high}", *self._others()])

    @property
    def matches(self) -> pc.Expression:
        """The scope for Arrow."""
        found = pc.field(self.column).isin(pa.array(sorted(self.values), pa.string()))
        return found if self._span is None else found & self._span

    @property
    def hull_matches(self) -> pc.Expression:
        """``hull`` for Arrow."""
        column = pc.field(self.column)
        found = (column >= min(self.values)) & (column <= max(self.values))
        return found if self._span is None else found & self._span

    @property
    def _span(self) -> pc.Expression | None:
        parts = [pc.field(column) == value for column, value in self.equal.items()]
        if self.time is not None and self.since is not None:
            parts.append(pc.field(self.time) >= self.since)
        if self.time is not None and self.until is not None:
            parts.append(pc.field(self.time) < self.until)
        return functools.reduce(operator.and_, parts) if parts else None

    def _others(self) -> list[str]:
        parts = [f"{column} = {value}" for column, value in self.equal.items()]
        if self.time is not None and self.since is not None:
            parts.append(f"{self.time} >= '{self.since:{_RFC3339}}'")
        if self.time is not None and self.until is not None:
            parts.append(f"{self.time} < '{self.until:{_RFC3339}}'")
        return parts


def replace_rows(location: str, fresh: pa.Table, scope: ReplaceScope, *, key: Collection[str]) -> None:
    """Make the table's rows within ``scope`` equal to ``fresh``, in one commit; other rows stay as they are.

    Only one process may write the table meanwhile.

    Args:
        fresh: All rows that the scope is to have, none outside it (delta-rs refuses the commit otherwise).
        key: Columns to sort by, so that files prune well.
    """
    if not scope.values:
        return
    check_lease(location)
    if len(scope.values) <= _MANY:
        write_deltalake(DeltaTable(location), _sorted(fresh, key), mode="overwrite", predicate=scope.predicate)
        return
    strange = fresh.filter(~scope.matches)
    if strange.num_rows:
        raise ValueError(f"{strange.num_rows} rows are outside the scope that they are to replace")
    exchange_rows(location, fresh, scope.matches, within=(scope.hull, scope.hull_matches), key=key)


def exchange_rows(
    location: str,
    fresh: pa.Table,
    gone: pc.Expression,
    *,
    key: Collection[str],
    within: tuple[str, pc.Expression] | None = None,
) -> None:
    """Take the rows that match ``gone`` out of a table and put ``fresh`` in, in one commit.

    Reads and writes all rows that ``within`` bounds, or the whole table, which must fit into memory: for small tables,
    and for scopes that Delta's SQL has no short words for. Only one process may write the table meanwhile.

    Args:
        gone: True or false for every row, never null.
        within: A part of the table as Delta's SQL and for Arrow, to which ``gone`` and ``fresh`` are bounded.
    """
    check_lease(location)
    table = DeltaTable(location)
    stays = ~gone if within is None else within[1] & ~gone
    others = table.to_pyarrow_dataset().to_table(filter=stays).select(fresh.schema.names)
    rows = _sorted(pa.concat_tables([others.cast(fresh.schema), fresh]), key)
    write_deltalake(table, rows, mode="overwrite", predicate=None if within is None else within[0])


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _sorted(rows: pa.Table, key: Collection[str]) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in key])
