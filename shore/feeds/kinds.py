"""Record in table ``feeds`` with which kind of feed each customer was last compared as a whole.

A comparison of everything delivers what is missing and retracts what is too much, whatever kind of feed it was before.
So a customer may change to any other kind and back, or leave and come back. The notes are properties of the table
(``fairlead.feed.<customer>``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable

from shore.delta.lease import check_lease
from shore.feeds.readers import FeedReader
from shore.paths import TablePaths
from shore.tables.feeds import FEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX: Final = "fairlead.feed."
_LEFT: Final = "left"
"""Noted for a customer that has no feed here any more: batches pass without it. It is no kind of feed."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A customer not yet compared as a whole with its present kind of feed. ``known``: it was, with another kind or
    before it left."""

    reader: FeedReader
    known: bool


def newcomers(paths: TablePaths, readers: Iterable[FeedReader]) -> list[Newcomer]:
    """Return the readers whose present kind of feed table ``feeds`` does not have."""
    noted = _noted(paths)
    kinds = {reader: noted.get(reader.customer) for reader in readers}
    return [Newcomer(reader, known=kind is not None) for reader, kind in kinds.items() if kind != reader.kind]


def note_kinds(spark: SparkSession, paths: TablePaths, readers: Iterable[FeedReader]) -> None:
    """Record in one commit that these customers have been compared as a whole with their present kind of feed, and that
    no others have a feed here."""
    noted = _noted(paths)
    kinds = dict.fromkeys(noted, _LEFT) | {reader.customer: reader.kind for reader in readers}
    changed = {customer: kind for customer, kind in kinds.items() if noted.get(customer) != kind}
    if changed:
        notes = ", ".join(f"'{_PREFIX}{customer}' = '{kind}'" for customer, kind in changed.items())
        location = paths.table(FEEDS.name)
        check_lease(location)
        spark.sql(f"alter table delta.`{location}` set tblproperties ({notes})")


def _noted(paths: TablePaths) -> dict[str, str]:
    """Return what the table's properties note, by customer."""
    properties = DeltaTable(paths.table(FEEDS.name)).metadata().configuration
    return {name.removeprefix(_PREFIX): kind for name, kind in properties.items() if name.startswith(_PREFIX)}
