"""Table ``feeds`` read again from the customers' feeds: what they were given stands there, whatever the table lacks.

A row that the table lacks would be given to its customer a second time, so nothing may be given before this is done.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from fairlead.errors import UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.feeds.count import rows_app
from shore.feeds.entitlement import customers_here
from shore.feeds.records import feed_topic
from shore.feeds.writer import app_of, read_back
from shore.places import Places
from shore.tables import TABLES
from shore.verify.records import CLIENT_ID, extents_of
from topologies.model import Topology

_TABLE: Final = "feeds"


def read_again(topology: Topology, endpoint: KafkaEndpoint, places: Places) -> int:
    """Make the table what the feeds hold; gives the number of its rows.

    Rows stay whose records a feed has no more (retention), and those of feeds that are not there. Broken off in
    between, the job reads the rest back before it gives anything.

    Raises:
        ConnectionLost, RequestTimeout, BrokerError: the feeds cannot be read.
    """
    customers = {feed_topic(customer): customer for customer in customers_here(topology)}
    extents = asyncio.run(_extents(endpoint, frozenset(customers)))
    starts = {customers[log]: extent.start for log, extent in extents.items()}
    if starts:
        table = DeltaTable(places.table(_TABLE))
        rows = table.to_pyarrow_dataset(schema=TABLES[_TABLE].plain_schema).to_table()
        for customer, start in starts.items():
            rows = rows.filter((pc.field("customer") != customer) | (pc.field("feed_offset") < start))
        known = [Transaction(app_of(customer), start - 1) for customer, start in starts.items()]
        known += [
            Transaction(rows_app(customer), pc.sum(pc.equal(rows["customer"], customer)).as_py() or 0)
            for customer in starts
        ]
        write_deltalake(table, rows, mode="overwrite", commit_properties=CommitProperties(app_transactions=known))
    for customer in starts:
        read_back(endpoint, places, customer)
    return int(DeltaTable(places.table(_TABLE)).count())


async def _extents(endpoint: KafkaEndpoint, topics: frozenset[str]) -> dict[str, OffsetRange]:
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        found, unreadable = await extents_of(cluster, lambda topic: topic in topics, ())
    if unreadable:
        log, why = next(iter(unreadable.items()))
        raise UnavailableError(f"feed {log} cannot be read: {why}", hint="nothing was changed; try again")
    return found
