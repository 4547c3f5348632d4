"""Record in table ``feeds`` with which kind of feed each customer was last compared as a whole.

A comparison of everything delivers what is missing and retracts what is too much, whatever kind of feed it was before.
So a customer may change to any other kind and back. The notes are properties of the table
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


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A customer not yet compared as a whole with its present kind of feed. ``known``: it was, with another kind."""

    reader: FeedReader
    known: bool


def newcomers(paths: TablePaths, readers: Iterable[FeedReader]) -> list[Newcomer]:
    """Return the readers whose present kind of feed table ``feeds`` does not have."""
    noted = DeltaTable(paths.table(FEEDS.name)).metadata().configuration
    kinds = {reader: noted.get(_PREFIX + reader.customer) for reader in readers}
    return [Newcomer(reader, known=kind is not None) for reader, kind in kinds.items() if kind != reader.kind]


def note_kinds(spark: SparkSession, paths: TablePaths, readers: Iterable[FeedReader]) -> None:
    """Record in one commit that these customers have been compared as a whole with their present kind of feed."""
    notes = ", ".join(f"'{_PREFIX}{reader.customer}' = '{reader.kind}'" for reader in readers)
    if notes:
        location = paths.table(FEEDS.name)
        check_lease(location)
        spark.sql(f"alter table delta.`{location}` set tblproperties ({notes})")
