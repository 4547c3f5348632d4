"""Tables ``sites`` and ``owners`` follow the topology; what was made with others is then made again."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from shore.delta import datasets
from shore.paths import TablePaths
from shore.tables.model import Table
from shore.tables.reference import OWNERS, SITES, owner_rows, site_rows
from topologies.drawing.seachart import ports
from topologies.model import Topology


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
