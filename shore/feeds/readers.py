"""Who reads which kind of feed (the customers whose feed begins where shore runs), and which tables they have. Pure.

A customer's own table is ``customers/<customer>``. It is in ``TablePaths.customer``, outside shore's own tables. Code
that maintains tables by name includes it when it is given ``kept_tables`` of the topology.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from shore.paths import CUSTOMERS
from shore.tables import TABLES, Table
from shore.tables.feeds import CUSTOMER_FEED
from topologies.model import Grain, Topology


@dataclass(frozen=True, slots=True)
class FeedReader:
    """A customer with a feed here. ``port``: the port whose movements it gets, with grain ``movements`` only.
    ``owners``: the owner codes about whose containers it gets alerts, with grain ``alerts`` only. ``table``: whether it
    also has a table of its own."""

    customer: str
    grain: Grain = "detailed"
    port: str | None = None
    table: bool = False
    owners: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of its feed. After a change of kind, everything it was given is compared again."""
        about = self.port or ",".join(sorted(self.owners))
        return f"{self.grain}:{about}" if about else self.grain


SHORE_LOG: Final = FeedReader("shore", "alerts")
"""Stands for the log of the alerts that shore finds (``topologies.model.SHORE_ALERTS``), which is written as feeds are.
No customer can have this name."""


def readers_here(topology: Topology) -> tuple[FeedReader, ...]:
    """Return the customers whose feed is at a site where shore may run. Shore writes it where it runs now."""
    if topology.shore is None:
        return ()
    return tuple(
        FeedReader(name, customer.feed, customer.port, customer.table, customer.owners)
        for name, customer in topology.customers.items()
        if customer.feed_at in topology.shore.sites
    )


def logs_here(topology: Topology) -> tuple[FeedReader, ...]:
    """Return what shore writes where it runs: the customers' feeds, and the log of the alerts that it finds."""
    return (*readers_here(topology), *((SHORE_LOG,) if topology.shore_raises_alerts else ()))


def reader_rows(readers: Iterable[FeedReader]) -> pa.Table:
    """Return relation ``customers``: customer, grain, port, owners (a list of owner codes)."""
    rows = [
        {"customer": each.customer, "grain": each.grain, "port": each.port, "owners": list(each.owners)}
        for each in readers
    ]
    texts = [(name, pa.string()) for name in ("customer", "grain", "port")]
    return pa.Table.from_pylist(rows, schema=pa.schema([*texts, ("owners", pa.list_(pa.string()))]))


def customers_tables(topology: Topology) -> dict[str, Table]:
    """Return the tables of customers that the topology gives a table, by name."""
    return {CUSTOMERS + reader.customer: CUSTOMER_FEED for reader in readers_here(topology) if reader.table}


def kept_tables(topology: Topology) -> dict[str, Table]:
    """Return all tables that shore keeps: its own, and those of customers."""
    return TABLES | customers_tables(topology)
