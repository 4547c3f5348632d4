"""The tables that customers have of their own, under the names by which shore's operators know them. Pure.

``customers/<customer>`` stands in ``TablePaths.customer``, outside shore's own tables; whatever looks after tables by
name takes it as one of them where it is given ``kept_tables`` of the topology.
"""

from __future__ import annotations

from shore.feeds.readers import readers_here
from shore.paths import CUSTOMERS
from shore.tables import TABLES, Table
from shore.tables.customer_feed import CUSTOMER_FEED
from topologies.model import Topology


def customers_tables(topology: Topology) -> dict[str, Table]:
    """The tables of customers that the topology gives one, by name."""
    return {CUSTOMERS + reader.customer: CUSTOMER_FEED for reader in readers_here(topology) if reader.table}


def kept_tables(topology: Topology) -> dict[str, Table]:
    """All tables that shore keeps: its own, and those of customers."""
    return TABLES | customers_tables(topology)
