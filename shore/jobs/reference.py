"""Tables ``sites`` and ``owners`` follow the topology; what was made with others is then made again."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from shore import duck
from shore.places import Places
from shore.tables.model import Table
from shore.tables.reference import OWNERS, SITES, owner_rows, site_rows
from topologies.model import Topology
from topologies.seachart import ports


def refresh(places: Places, topology: Topology) -> None:
    """Bring both tables up to date; they are left alone where they say the same already."""
    for table, rows in ((SITES, site_rows(topology, ports())), (OWNERS, owner_rows(topology))):
        if not stored(places, table).equals(rows):
            write_deltalake(DeltaTable(places.table(table.name)), rows, mode="overwrite")


def stored(places: Places, table: Table) -> pa.Table:
    """The rows of one of them."""
    return table.sorted(duck.rows(places, table))


def version(places: Places) -> int:
    """Grows whenever one of them changes."""
    return sum(DeltaTable(places.table(table.name)).version() for table in (SITES, OWNERS))
