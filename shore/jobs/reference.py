"""Keep tables ``sites``, ``owners`` and ``geofences`` equal to the topology.

Jobs that read them recompute their rows on a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from shore.delta import datasets
from shore.paths import TablePaths
from shore.tables.model import Table
from shore.tables.reference import GEOFENCES, OWNERS, SITES, geofence_rows, owner_rows, site_rows
from topologies.drawing.seachart import ports
from topologies.model import Topology

if TYPE_CHECKING:  # comparing tables needs no Spark
    from shore.delta.lake import Lake


def write(lake: Lake, topology: Topology) -> None:
    """Make the tables equal to the topology. A table that is equal already gets no commit."""
    from shore.delta.commit import replace_rows

    fresh = rows_of_topology(topology)
    for table in (SITES, OWNERS, GEOFENCES):
        if not stored(lake.paths, table).equals(fresh[table.name]):
            replace_rows(lake, table, lake.spark.createDataFrame(fresh[table.name]))


def rows_of_topology(topology: Topology) -> dict[str, pa.Table]:
    """Return the rows that each of the tables must have, by the table's name."""
    return {
        SITES.name: site_rows(topology, ports()),
        OWNERS.name: owner_rows(topology),
        GEOFENCES.name: geofence_rows(topology),
    }


def stored(paths: TablePaths, table: Table) -> pa.Table:
    """Return the stored rows of one of the tables, sorted by its key."""
    return table.sorted(datasets.rows(paths, table))
