"""Record in table ``feeds`` with which kind of feed each customer was last compared as a whole.

A comparison of everything delivers what is missing and retracts what is too much, whatever kind of feed it was before.
So a customer may change to any other kind and back, or leave and come back. The notes are properties of the table
(``fairlead.feed.<customer>``).

A port authority's records have names of ships, ports and lines, and those of a coarse feed have ports. They come from
the topology and are in no batch. So the note of such a kind has a digest of them. A note without one, of an older
version, counts as another kind: the feed is compared once more, and what had become wrong before is put right.

The topology also decides which grants of custody count. The table notes what decided it (``fairlead.ledgers``), so that
the feeds of containers with other grants can be compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from deltalake import DeltaTable

from shore.delta import datasets
from shore.delta.lease import check_lease
from shore.feeds.readers import FeedReader
from shore.paths import TablePaths
from shore.tables.feeds import FEEDS
from shore.tables.reference import OWNERS, SITES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX: Final = "fairlead.feed."
_BELIEVED_BY: Final = "fairlead.ledgers"
Ledgers: TypeAlias = tuple[Mapping[str, str], Mapping[str, str]]
"""What decides which ledger entries are believed: kinds by site, and streams by owner code."""
_LEFT: Final = "left"
"""Noted for a customer that has no feed here any more: batches pass without it. It is no kind of feed."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A customer not yet compared as a whole with its present kind of feed. ``known``: it was, with another kind or
    before it left."""

    reader: FeedReader
    known: bool


@dataclass(frozen=True, slots=True)
class FeedKinds:
    """What table ``feeds`` notes of each customer's kind of feed, and what it is to note now.

    Args:
        noted: By customer, also of those that have no feed here any more.
        present: Of each reader that has a feed here.
        believed_by: What decided which grants the feeds have; None where it is not noted: all counted.
    """

    paths: TablePaths
    noted: Mapping[str, str]
    present: Mapping[FeedReader, str]
    believed_by: Ledgers | None

    @classmethod
    def read(cls, paths: TablePaths, readers: Iterable[FeedReader]) -> FeedKinds:
        """Read both from the tables."""
        properties = DeltaTable(paths.table(FEEDS.name)).metadata().configuration
        noted = {name.removeprefix(_PREFIX): kind for name, kind in properties.items() if name.startswith(_PREFIX)}
        ledgers = properties.get(_BELIEVED_BY)
        believed_by = (
            None if ledgers is None else msgspec.json.decode(ledgers, type=tuple[dict[str, str], dict[str, str]])
        )
        return cls(paths, noted, _kinds(paths, readers), believed_by)

    def newcomers(self) -> list[Newcomer]:
        """Return the readers whose present kind of feed the table does not have."""
        return [
            Newcomer(reader, known=reader.customer in self.noted)
            for reader, kind in self.present.items()
            if self.noted.get(reader.customer) != kind
        ]

    def note(self, spark: SparkSession, believed_by: Ledgers | None) -> None:
        """Record in one commit that these customers have been compared as a whole with their present kind of feed, that
        no others have a feed here, and which grants count now."""
        kinds = dict.fromkeys(self.noted, _LEFT) | {reader.customer: kind for reader, kind in self.present.items()}
        changed = {f"{_PREFIX}{name}": kind for name, kind in kinds.items() if self.noted.get(name) != kind}
        if believed_by is not None and believed_by != self.believed_by:
            changed[_BELIEVED_BY] = json.dumps(believed_by)
        if changed:
            notes = ", ".join(f"'{name}' = '{value}'" for name, value in changed.items())
            location = self.paths.table(FEEDS.name)
            check_lease(location)
            spark.sql(f"alter table delta.`{location}` set tblproperties ({notes})")


def _kinds(paths: TablePaths, readers: Iterable[FeedReader]) -> dict[FeedReader, str]:
    """Return what to note of each reader."""
    found = {reader: reader.kind for reader in readers}
    if named := [reader for reader in found if reader.grain in ("movements", "coarse")]:
        digests = _digests_of_names(paths)
        found |= {reader: f"{reader.kind} {digests[reader.grain]}" for reader in named}
    return found


def _digests_of_names(paths: TablePaths) -> dict[str, str]:
    """Return by grain a digest of what its records have of tables ``sites`` and ``owners``: milestones the ports of
    sites; movements also the names of ships, and the lines of owner codes."""
    sites = SITES.sorted(datasets.rows(paths, SITES)).to_pylist()
    owners = OWNERS.sorted(datasets.rows(paths, OWNERS)).to_pylist()
    ports = [(row["site"], row["un_location_code"]) for row in sites if row["un_location_code"]]
    ships = [(row["vessel_imo_number"], row["title"]) for row in sites if row["kind"] == "ship"]
    lines = [(row["owner_code"], row["line"]) for row in owners]
    names = {"coarse": (ports,), "movements": (ports, ships, lines)}
    return {grain: hashlib.sha256(json.dumps(each).encode()).hexdigest()[:16] for grain, each in names.items()}
