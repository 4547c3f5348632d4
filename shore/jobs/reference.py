"""Tables ``sites`` and ``owners`` follow the topology; jobs follow them, and make again what was made with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from shore.delta import datasets
from shore.paths import TablePaths
from shore.tables.model import Table
from shore.tables.reference import OWNERS, SITES, owner_rows, site_rows
from topologies.drawing.seachart import ports
from topologies.model import Topology

if TYPE_CHECKING:  # whoever only compares tables needs no Spark
    from shore.delta.lake import Lake


def write(lake: Lake, topology: Topology) -> None:
    """Make both tables equal to the topology; no commit where they are."""
    from shore.delta.commit import replace_rows

    fresh = rows_of_topology(topology)
    for table in (SITES, OWNERS):
        if not stored(lake.paths, table).equals(fresh[table.name]):
            replace_rows(lake, table, lake.spark.createDataFrame(fresh[table.name]))


def refresh(paths: TablePaths, topology: Topology) -> None:
    """Bring both tables up to date; they are left alone where they say the same already."""
    fresh = rows_of_topology(topology)
    for table in (SITES, OWNERS):
        rows = fresh[table.name]
        if not stored(paths, table).equals(rows):
            write_deltalake(DeltaTable(paths.table(table.name)), rows, mode="overwrite")


def rows_of_topology(topology: Topology) -> dict[str, pa.Table]:
    """The rows that both tables must have, by table."""
    return {SITES.name: site_rows(topology, ports()), OWNERS.name: owner_rows(topology)}


def stored(paths: TablePaths, table: Table) -> pa.Table:
    """The rows of one of them."""
    return table.sorted(datasets.rows(paths, table))


def version(paths: TablePaths) -> int:
    """Grows whenever one of them changes."""
    return sum(DeltaTable(paths.table(table.name)).version() for table in (SITES, OWNERS))
