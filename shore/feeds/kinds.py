"""As what each customer was last compared whole, noted in table ``feeds``: who is new, or gets another kind of feed.

A look at everything gives what is missing and retracts what is too much, whatever kind of feed it was before. So a
customer may change to any other kind and back. The notes are properties of the table (``fairlead.feed.<customer>``).
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
    """A customer that has not been compared whole as what it is now. ``known``: but as something else."""

    reader: FeedReader
    known: bool


def newcomers(paths: TablePaths, readers: Iterable[FeedReader]) -> list[Newcomer]:
    """Those of these readers that table ``feeds`` does not know as what they are."""
    noted = DeltaTable(paths.table(FEEDS.name)).metadata().configuration
    kinds = {reader: noted.get(_PREFIX + reader.customer) for reader in readers}
    return [Newcomer(reader, known=kind is not None) for reader, kind in kinds.items() if kind != reader.kind]


def note_kinds(spark: SparkSession, paths: TablePaths, readers: Iterable[FeedReader]) -> None:
    """Remember in one commit that these customers have been compared whole as what they are."""
    notes = ", ".join(f"'{_PREFIX}{reader.customer}' = '{reader.kind}'" for reader in readers)
    if notes:
        location = paths.table(FEEDS.name)
        check_lease(location)
        spark.sql(f"alter table delta.`{location}` set tblproperties ({notes})")
