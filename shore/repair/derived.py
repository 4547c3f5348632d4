"""Derived tables made again from their inputs, as a whole or for a span of time, in one commit each."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable, write_deltalake

from shore.lease import check_lease
from shore.places import Places
from shore.tables import TABLES
from shore.verify.catalogue import Derived
from shore.verify.compare import Compared, compare
from shore.verify.digest import connection

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


def made_again(entry: Derived, places: Places, span: Span) -> pa.Table:
    """What the table must hold, of this span where the table has a time to tell by."""
    rows = entry.everything(places)
    matches = span.matches(entry.time) if entry.time is not None else None
    rows = rows if matches is None else rows.filter(matches)
    schema = TABLES[entry.table].plain_schema
    rows = pa.table([rows[n] if n in rows.schema.names else pa.nulls(len(rows)) for n in schema.names], schema.names)
    return TABLES[entry.table].sorted(rows.cast(schema))


def differing(entry: Derived, places: Places, span: Span) -> Compared:
    """How the table differs now from what it must hold, within the span."""
    rows: pads.Dataset = DeltaTable(places.table(entry.table)).to_pyarrow_dataset()
    matches = span.matches(entry.time) if entry.time is not None else None
    if matches is not None:
        rows = rows.filter(matches)
    with connection() as opened:
        expected = made_again(entry, places, span)
        return compare(opened, entry.table, rows, expected, TABLES[entry.table].key, tolerance=entry.tolerance)


def make_again(entry: Derived, places: Places, span: Span = ALWAYS) -> int:
    """Replace the rows of the span, or of the whole table where it has no time to tell by; gives their number."""
    fresh = made_again(entry, places, span)
    predicate = span.predicate(entry.time) if entry.time is not None else None
    check_lease(places.table(entry.table))
    write_deltalake(DeltaTable(places.table(entry.table)), fresh, mode="overwrite", predicate=predicate)
    return int(fresh.num_rows)
